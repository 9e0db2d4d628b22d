/* SPDX-License-Identifier: Apache-2.0
 *
 * An alias table (M. D. Vose, "A Linear Algorithm for Generating Random Numbers with a Given
 * Distribution", IEEE TSE 17(9), 1991): each word's place holds it with one probability, and else
 * one other word, so that a draw is one look.
 *
 * Made of additions, divisions and square roots only, which round the same on every machine.
 */
#include "demo/words_noise.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/err.h"

static const double ALL = 4294967296.0; /* 2^32: a probability of 1 in 32 random bits */

struct words_noise {
	uint32_t n;
	double kept;
	struct place {
		uint64_t own;  /* below it: the word itself */
		uint64_t keep; /* an occurrence in the text is kept below it */
		uint32_t other;
	} place[];
};

/* Vose's: a place with less than its share is filled up by one that has more. */
static void fill(struct words_noise *noise, double *share, uint32_t *small, uint32_t *large)
{
	uint32_t n_small = 0, n_large = 0;

	for (uint32_t w = 0; w < noise->n; w++)
		if (share[w] < 1)
			small[n_small++] = w;
		else
			large[n_large++] = w;
	while (n_small && n_large) {
		uint32_t s = small[--n_small], l = large[n_large - 1];

		noise->place[s].own = (uint64_t)(share[s] * ALL);
		noise->place[s].other = l;
		share[l] -= 1 - share[s];
		if (share[l] < 1) {
			n_large--;
			small[n_small++] = l;
		}
	}
	/* What is left has its share but for rounding: its place is its own. */
}

int words_noise_create(const uint64_t *count, uint32_t n, double sample, struct words_noise **out)
{
	struct words_noise *noise = malloc(sizeof(*noise) + n * sizeof(noise->place[0]));
	double *share = malloc(n * sizeof(*share)), sum = 0, total = 0;
	uint32_t *lists = malloc(2UL * n * sizeof(*lists));

	if (!noise || !share || !lists) {
		free(noise);
		free(share);
		free(lists);
		return err_set(ENOMEM, "no memory for the draws of %u words", n);
	}
	noise->n = n;
	noise->kept = 0;
	for (uint32_t w = 0; w < n; w++) {
		share[w] = sqrt((double)count[w]) * sqrt(sqrt((double)count[w]));
		sum += share[w];
		total += (double)count[w];
	}
	for (uint32_t w = 0; w < n; w++) {
		double f = (double)count[w] / total, keep = sqrt(sample / f) + sample / f;

		keep = keep < 1 ? keep : 1;
		noise->kept += keep * (double)count[w];
		share[w] *= n / sum;
		noise->place[w] = (struct place){(uint64_t)ALL, (uint64_t)(keep * ALL), w};
	}
	fill(noise, share, lists, lists + n);
	free(share);
	free(lists);
	*out = noise;
	return 0;
}

void words_noise_destroy(struct words_noise *noise)
{
	free(noise);
}

uint32_t words_noise_draw(const struct words_noise *noise, uint32_t random)
{
	/* The product's high half is the place, its low half is uniform within it. */
	uint64_t product = (uint64_t)random * noise->n;
	const struct place *p = &noise->place[product >> 32];

	return (uint32_t)product < p->own ? (uint32_t)(product >> 32) : p->other;
}

bool words_noise_keeps(const struct words_noise *noise, uint32_t word, uint32_t random)
{
	return random < noise->place[word].keep;
}

double words_noise_kept(const struct words_noise *noise)
{
	return noise->kept;
}

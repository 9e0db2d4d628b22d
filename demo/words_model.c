/* SPDX-License-Identifier: Apache-2.0
 *
 * Skip-gram with negative sampling on plain arrays.
 */
#include "demo/words_model.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "kernels/rmath.h"

/* Partial sums of a dot product: enough for the compiler to use vectors, in a fixed order. */
enum { LANES = 16 };

static float dot(const float *a, const float *b, unsigned dim)
{
	float part[LANES] = {0};
	unsigned i = 0;

	for (; i + LANES <= dim; i += LANES)
		for (unsigned l = 0; l < LANES; l++)
			part[l] += a[i + l] * b[i + l];
	for (; i < dim; i++)
		part[i % LANES] += a[i] * b[i];
	for (unsigned half = LANES / 2; half; half /= 2)
		for (unsigned l = 0; l < half; l++)
			part[l] += part[l + half];
	return part[0];
}

/* grad_h += by · v, grad_v += by · h */
static void spread(float by, const float *restrict h, const float *restrict v,
		   float *restrict grad_h, float *restrict grad_v, unsigned dim)
{
	for (unsigned i = 0; i < dim; i++) {
		grad_h[i] += by * v[i];
		grad_v[i] += by * h[i];
	}
}

/* Scores are cut here, so that a product of some probabilities does not vanish; the sigmoid is as
 * good as 0 or 1 by then. */
static const double SCORE_MAX = 16;

/* 1/(1 + e^-x). A NaN counts as -SCORE_MAX: words_evaluate finds it at the end. */
static double sigmoid(double x)
{
	if (!(x > -SCORE_MAX))
		x = -SCORE_MAX;
	return 1 / (1 + rm_exp(-(x < SCORE_MAX ? x : SCORE_MAX)));
}

/* -ln of the product of probabilities: a logarithm for some of them at once. */
struct log_sum {
	double product, sum;
};

static void log_add(struct log_sum *s, double p)
{
	s->product *= p;
	if (s->product < 1e-200) {
		s->sum -= rm_log(s->product);
		s->product = 1;
	}
}

/* The pair's scores become the loss's derivatives by them. Apart from the vectors' loops, so that
 * the CPU has several exponentials under way. */
static void derive(double *score, unsigned targets, struct log_sum *loss)
{
	for (unsigned k = 0; k < targets; k++)
		score[k] = sigmoid(score[k]);
	for (unsigned k = 0; k < targets; k++) {
		log_add(loss, k == 0 ? score[k] : 1 - score[k]);
		score[k] -= k == 0;
	}
}

double words_gradient(const struct words_batch *b, unsigned dim,
		      const float *const row[WORDS_TABLES], float *const grad[WORDS_TABLES])
{
	struct log_sum loss = {.product = 1};
	double score[1 + WORDS_NEGATIVES_MAX];

	for (unsigned t = 0; t < WORDS_TABLES; t++)
		memset(grad[t], 0, (size_t)b->rows[t] * dim * sizeof(float));
	for (size_t p = 0; p < b->pairs; p++) {
		const uint32_t *target = b->target + p * b->targets;
		size_t middle = (size_t)b->middle[p] * dim;
		const float *h = row[WORDS_IN] + middle;

		for (unsigned k = 0; k < b->targets; k++)
			score[k] = dot(h, row[WORDS_OUT] + (size_t)target[k] * dim, dim);
		derive(score, b->targets, &loss);
		for (unsigned k = 0; k < b->targets; k++) {
			size_t at = (size_t)target[k] * dim;

			spread((float)score[k], h, row[WORDS_OUT] + at, grad[WORDS_IN] + middle,
			       grad[WORDS_OUT] + at, dim);
		}
	}
	return loss.sum - rm_log(loss.product);
}

/* ---- evaluation -------------------------------------------------------------------------- */

enum { EVALUATE_BATCH = 1024 };

static void score_batch(const struct words_batch *b, unsigned dim,
			const float *const table[WORDS_TABLES], struct log_sum *loss, double *wins)
{
	for (size_t p = 0; p < b->pairs; p++) {
		const float *h = table[WORDS_IN] + (size_t)b->id[WORDS_IN][b->middle[p]] * dim;
		float near = 0;

		for (unsigned k = 0; k < b->targets; k++) {
			int64_t id = b->id[WORDS_OUT][b->target[p * b->targets + k]];
			float x = dot(h, table[WORDS_OUT] + (size_t)id * dim, dim);

			log_add(loss, sigmoid(k == 0 ? x : -x));
			if (k == 0)
				near = x;
			else
				*wins += near > x ? 1 : near == x ? 0.5 : 0;
		}
	}
}

int words_evaluate(const struct words_config *config, const struct words_corpus *corpus,
		   const struct words_noise *noise, const float *const table[WORDS_TABLES],
		   struct words_score *out)
{
	struct log_sum loss = {.product = 1};
	struct words_config whole = *config;
	struct words_feed *feed;
	uint64_t pairs = 0;
	double wins = 0;
	int rc;

	for (unsigned t = 0; t < WORDS_TABLES; t++)
		if (kern_nonfinite(KERN_F32, table[t], (size_t)corpus->words * config->dim))
			return err_set(EDOM,
				       "the vectors have grown out of all bounds: the learning "
				       "rate is too high for this optimizer and batch");
	/* The same pairs, however training is cut. */
	whole.trainers = 1;
	whole.batch = EVALUATE_BATCH;
	rc = words_feed_create(&whole, corpus, noise, WORDS_HELD, &feed);
	if (rc < 0)
		return rc;
	/* The last batch begins a second pass; a text with no pairs at all ends, too. */
	while (words_feed_passes(feed) == 0) {
		const struct words_batch *b = words_feed_next(feed);

		score_batch(b, config->dim, table, &loss, &wins);
		pairs += b->pairs;
	}
	words_feed_destroy(feed);
	*out = (struct words_score){.pairs = pairs};
	if (pairs) {
		out->loss = (loss.sum - rm_log(loss.product)) / (double)pairs;
		out->auc = wins / ((double)pairs * config->negatives);
	}
	return 0;
}

void words_nearest(const float *in, uint32_t words, unsigned dim, uint32_t word, unsigned n,
		   uint32_t *out)
{
	const float *h = in + (size_t)word * dim;
	float best[WORDS_NEAREST_MAX];
	unsigned have = 0;

	for (uint32_t w = 0; w < words; w++) {
		const float *v = in + (size_t)w * dim;
		float norm = dot(v, v, dim), cosine = norm > 0 ? dot(h, v, dim) / sqrtf(norm) : 0;
		unsigned at = have;

		if (w == word)
			continue;
		for (; at > 0 && best[at - 1] < cosine; at--)
			if (at < n) {
				best[at] = best[at - 1];
				out[at] = out[at - 1];
			}
		if (at == n)
			continue;
		best[at] = cosine;
		out[at] = w;
		have += have < n;
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Goes through a shard of sentences. A token's draws are a function of the seed, its place in the
 * text and the pass, whoever makes them.
 */
#include "demo/words_feed.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "demo/shuffle.h"
#include "kernels/philox.h"

static const uint32_t NONE = UINT32_MAX;

struct words_feed {
	struct words_config config;
	const struct words_corpus *corpus;
	const struct words_noise *noise;
	uint32_t *order, n;  /* sentences of the shard */
	uint32_t pass, next; /* next: in order */

	/* The sentence that is being gone through, without the words that are thinned out. */
	struct kept {
		uint32_t word, token, window;
	} kept[WORDS_SENTENCE_MAX];
	uint32_t n_kept, at;

	uint32_t *place[WORDS_TABLES]; /* of a word in the batch's rows, or NONE */
	struct words_batch batch;
};

/* ---- sentences --------------------------------------------------------------------------- */

static void next_sentence(struct words_feed *f)
{
	const struct words_corpus *c = f->corpus;

	if (f->next == f->n) {
		f->next = 0;
		demo_shuffle(f->config.seed, WORDS_DRAW_ORDER, ++f->pass, f->order, f->n);
	}
	uint32_t s = f->order[f->next++];
	f->n_kept = f->at = 0;
	for (uint32_t t = c->start[s]; t < c->start[s + 1]; t++) {
		uint32_t r[4] = {t, f->pass, WORDS_DRAW_TOKEN, 0};

		philox4x32_10(r, f->config.seed);
		if (words_noise_keeps(f->noise, c->token[t], r[0]))
			f->kept[f->n_kept++] =
			    (struct kept){c->token[t], t,
					  1 + (uint32_t)((uint64_t)r[1] * f->config.window >> 32)};
	}
}

/* ---- minibatches ------------------------------------------------------------------------- */

static uint32_t row_of(struct words_feed *f, unsigned table, uint32_t word)
{
	uint32_t *place = &f->place[table][word];

	if (*place == NONE) {
		*place = f->batch.rows[table]++;
		f->batch.id[table][*place] = word;
	}
	return *place;
}

static void clear(struct words_feed *f)
{
	struct words_batch *b = &f->batch;

	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		for (uint32_t i = 0; i < b->rows[t]; i++)
			f->place[t][b->id[t][i]] = NONE;
		b->rows[t] = 0;
	}
	b->pairs = 0;
}

/* All pairs of the word at `at`. */
static void add_pairs(struct words_feed *f, uint32_t at)
{
	const struct kept *k = &f->kept[at];
	struct words_batch *b = &f->batch;
	uint32_t from = at > k->window ? at - k->window : 0;
	uint32_t to = f->n_kept - at > k->window ? at + k->window : f->n_kept - 1;
	uint32_t r[4], draws = 0;

	for (uint32_t i = from; i <= to; i++) {
		uint32_t *target = b->target + (size_t)b->pairs * b->targets;

		if (i == at)
			continue;
		b->middle[b->pairs++] = row_of(f, WORDS_IN, k->word);
		target[0] = row_of(f, WORDS_OUT, f->kept[i].word);
		for (unsigned n = 1; n < b->targets; n++, draws++) {
			if (draws % 4 == 0) {
				r[0] = k->token;
				r[1] = f->pass;
				r[2] = WORDS_DRAW_NOISE;
				r[3] = draws / 4;
				philox4x32_10(r, f->config.seed);
			}
			target[n] = row_of(f, WORDS_OUT, words_noise_draw(f->noise, r[draws % 4]));
		}
	}
}

const struct words_batch *words_feed_next(struct words_feed *f)
{
	clear(f);
	for (unsigned i = words_share(&f->config); i > 0; i--) {
		while (f->at == f->n_kept)
			next_sentence(f);
		add_pairs(f, f->at++);
	}
	return &f->batch;
}

uint32_t words_feed_passes(const struct words_feed *f)
{
	return f->pass + (f->next == f->n && f->at == f->n_kept);
}

/* ---- making ------------------------------------------------------------------------------ */

static size_t pairs_max(const struct words_config *config)
{
	return (size_t)words_share(config) * 2 * config->window;
}

uint32_t words_feed_rows_max(const struct words_config *config, const struct words_corpus *corpus,
			     unsigned table)
{
	size_t n =
	    table == WORDS_IN ? words_share(config) : pairs_max(config) * (1 + config->negatives);

	return n < corpus->words ? (uint32_t)n : corpus->words;
}

uint64_t words_feed_steps(const struct words_config *config, const struct words_noise *noise)
{
	double steps = words_noise_kept(noise) * config->epochs / config->batch;

	return steps < 1 ? 1 : (uint64_t)steps;
}

/* Every trainers-th training sentence, from `rank` on. */
static int take_shard(struct words_feed *f, int rank)
{
	const struct words_corpus *c = f->corpus;
	uint32_t step = rank == WORDS_HELD ? 1 : f->config.trainers;
	uint32_t all = rank == WORDS_HELD ? c->n_held : c->n_train;
	const uint32_t *from = rank == WORDS_HELD ? c->held : c->train;

	f->order = calloc(all / step + 1, sizeof(*f->order));
	if (!f->order)
		return err_set(ENOMEM, "no memory for %u sentences", all / step);
	for (uint32_t i = rank == WORDS_HELD ? 0 : (uint32_t)rank; i < all; i += step)
		f->order[f->n++] = from[i];
	if (!f->n)
		return err_set(EINVAL, "%u sentences are too few for %u trainers", all,
			       f->config.trainers);
	demo_shuffle(f->config.seed, WORDS_DRAW_ORDER, 0, f->order, f->n);
	return 0;
}

static int make_batch(struct words_feed *f)
{
	struct words_batch *b = &f->batch;
	size_t pairs = pairs_max(&f->config), words = f->corpus->words;
	bool there = true;

	b->targets = 1 + f->config.negatives;
	b->middle = calloc(pairs, sizeof(*b->middle));
	b->target = calloc(pairs, b->targets * sizeof(*b->target));
	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		f->place[t] = calloc(words, sizeof(*f->place[t]));
		b->id[t] = calloc(words_feed_rows_max(&f->config, f->corpus, t), sizeof(*b->id[t]));
		there &= f->place[t] && b->id[t];
		for (size_t w = 0; f->place[t] && w < words; w++)
			f->place[t][w] = NONE;
	}
	if (!b->middle || !b->target || !there)
		return err_set(ENOMEM, "no memory for minibatches of %zu pairs", pairs);
	return 0;
}

int words_feed_create(const struct words_config *config, const struct words_corpus *corpus,
		      const struct words_noise *noise, int rank, struct words_feed **out)
{
	struct words_feed *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return err_set(ENOMEM, "no memory for minibatches");
	f->config = *config;
	f->corpus = corpus;
	f->noise = noise;
	rc = take_shard(f, rank);
	if (rc == 0)
		rc = make_batch(f);
	if (rc < 0)
		words_feed_destroy(f);
	else
		*out = f;
	return rc;
}

void words_feed_destroy(struct words_feed *f)
{
	if (!f)
		return;
	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		free(f->place[t]);
		free(f->batch.id[t]);
	}
	free(f->batch.middle);
	free(f->batch.target);
	free(f->order);
	free(f);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Minibatches: (word in the middle, word near it) pairs of some sentences, with their noise words,
 * and the table rows that they touch.
 */
#ifndef GS_DEMO_WORDS_FEED_H
#define GS_DEMO_WORDS_FEED_H

#include "demo/words.h"
#include "demo/words_corpus.h"
#include "demo/words_noise.h"

struct words_batch {
	/* Distinct rows of each table, in the order in which they are met. */
	int64_t *id[WORDS_TABLES];
	uint32_t rows[WORDS_TABLES];
	uint32_t pairs;
	unsigned targets; /* of a pair: 1 + negatives */
	uint32_t *middle; /* [pairs]: which of id[WORDS_IN] */
	uint32_t *target; /* [pairs][targets], the true one first: which of id[WORDS_OUT] */
};

struct words_feed;

/* Over trainer `rank`'s shard of the training sentences, in a new order at each pass; or, with rank
 * WORDS_HELD, over all held-out ones. Corpus and noise must outlive it. Errors: -EINVAL (a shard
 * would be empty), -ENOMEM. */
enum { WORDS_HELD = -1 };
int words_feed_create(const struct words_config *config, const struct words_corpus *corpus,
		      const struct words_noise *noise, int rank, struct words_feed **out);
void words_feed_destroy(struct words_feed *feed);

/* The next minibatch, of words_share words in the middle; valid until the next call. */
const struct words_batch *words_feed_next(struct words_feed *feed);
/* How often the shard was gone through, wholly. */
uint32_t words_feed_passes(const struct words_feed *feed);

/* Steps of the whole run: each takes a batch out of the words that are kept. */
uint64_t words_feed_steps(const struct words_config *config, const struct words_noise *noise);
/* The most rows that a minibatch can touch of a table. */
uint32_t words_feed_rows_max(const struct words_config *config, const struct words_corpus *corpus,
			     unsigned table);

#endif

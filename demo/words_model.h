/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of a minibatch, its gradient, and how good vectors are. Sums are made in a written order
 * and exp and log are rmath's, so the same rows give the same bits on every machine.
 *
 * Of a pair with middle vector h, out vectors v0 (the word that is near) and v1 … vK (noise):
 * loss = -ln sigmoid(h·v0) - sum over k of ln sigmoid(-h·vk); (K+1) ln 2 of vectors that know
 * nothing.
 */
#ifndef GS_DEMO_WORDS_MODEL_H
#define GS_DEMO_WORDS_MODEL_H

#include "demo/words_feed.h"

/* Gradients of the sum of the pairs' losses by the batch's rows, [rows][dim], overwritten. row[t]
 * has the rows of batch->id[t]. Returns that sum. */
double words_gradient(const struct words_batch *batch, unsigned dim,
		      const float *const row[WORDS_TABLES], float *const grad[WORDS_TABLES]);

struct words_score {
	uint64_t pairs;
	double loss; /* mean, of a pair */
	double auc;  /* the chance that the word which is near scores above a noise word: 0.5 of
		      * vectors that know nothing; equal scores count half */
};

/* On the held-out sentences. table[t] has all of the table's rows. Errors: -EDOM (one
 * of them is not finite: training diverged), -ENOMEM. */
int words_evaluate(const struct words_config *config, const struct words_corpus *corpus,
		   const struct words_noise *noise, const float *const table[WORDS_TABLES],
		   struct words_score *out);

/* The `n` words whose in vectors have the smallest angle to `word`'s, nearest first, without
 * itself; n is at most WORDS_NEAREST_MAX and less than the vocabulary's size. */
enum { WORDS_NEAREST_MAX = 16 };
void words_nearest(const float *in, uint32_t words, unsigned dim, uint32_t word, unsigned n,
		   uint32_t *out);

#endif

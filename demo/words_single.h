/* SPDX-License-Identifier: Apache-2.0
 *
 * The words example in one process, without a server: what synchronous training with any number of
 * trainers must match bit for bit.
 */
#ifndef GS_DEMO_WORDS_SINGLE_H
#define GS_DEMO_WORDS_SINGLE_H

#include "demo/words_task.h"

struct words_result {
	struct words_score before, after;
	uint64_t checksum; /* words_checksum of the final vectors */
};

/* Trains as `trainers` trainers and a synchronous server would: each step makes the gradients of
 * all shards at the same vectors, adds up each row's in rank order, and applies the optimizer to
 * the rows that somebody touched. `in`, when it is not NULL, gets the final vectors of the table
 * "in", for the caller to free. Errors: as words_feed_create, -ENOMEM. */
int words_single_train(const struct words_task *task, float **in, struct words_result *out);

#endif

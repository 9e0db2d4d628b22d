/* SPDX-License-Identifier: Apache-2.0
 *
 * What every process of the words example makes of the text before it trains.
 */
#ifndef GS_DEMO_WORDS_TASK_H
#define GS_DEMO_WORDS_TASK_H

#include "demo/words_model.h"

struct words_task {
	struct words_config config;
	struct words_corpus *corpus;
	struct words_noise *noise;
	uint64_t steps;
};

/* Zeroed before. `file` as words_text_read takes it. Errors: as words_check, words_text_read,
 * words_corpus_create. words_task_end also after a failure. */
int words_task_start(struct words_task *task, const struct words_config *config, const char *file);
void words_task_end(struct words_task *task);

/* Room for a vector a word of the vocabulary; NULL when there is no memory. */
float *words_task_table(const struct words_task *task);
/* What training begins with. */
void words_task_init(const struct words_task *task, unsigned t, float *table);
/* words_evaluate. */
int words_task_score(const struct words_task *task, const float *const table[WORDS_TABLES],
		     struct words_score *out);

#endif

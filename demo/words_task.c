/* SPDX-License-Identifier: Apache-2.0
 *
 * From a text to what training needs.
 */
#include "demo/words_task.h"

#include <stdlib.h>

#include "demo/words_text.h"

int words_task_start(struct words_task *task, const struct words_config *config, const char *file)
{
	char *text;
	int rc = words_check(config);

	task->config = *config;
	if (rc == 0)
		rc = words_text_read(file, &text);
	if (rc == 0)
		rc = words_corpus_create(text, config->seed, config->min_count, &task->corpus);
	if (rc == 0)
		rc = words_noise_create(task->corpus->count, task->corpus->words, config->sample,
					&task->noise);
	if (rc == 0)
		task->steps = words_feed_steps(config, task->noise);
	return rc;
}

void words_task_end(struct words_task *task)
{
	words_noise_destroy(task->noise);
	words_corpus_destroy(task->corpus);
}

float *words_task_table(const struct words_task *task)
{
	return calloc(task->corpus->words, task->config.dim * sizeof(float));
}

void words_task_init(const struct words_task *task, unsigned t, float *table)
{
	struct words_init init = words_init_of(t, &task->config);

	kern_init_fill(init.kind, init.seed, init.a, init.b, 0, table,
		       (size_t)task->corpus->words * task->config.dim);
}

int words_task_score(const struct words_task *task, const float *const table[WORDS_TABLES],
		     struct words_score *out)
{
	return words_evaluate(&task->config, task->corpus, task->noise, table, out);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The text on two topics.
 */
#include "words_topics.h"

#include <check.h>
#include <stdlib.h>

#include "kernels/philox.h"

char *topics_text(void)
{
	char *text = malloc(TOPIC_LINES * TOPIC_LENGTH * 3 + 1), *p = text;

	for (uint32_t line = 0; line < TOPIC_LINES; line++)
		for (uint32_t i = 0; i < TOPIC_LENGTH; i++) {
			uint32_t r[4] = {line, i, 0, 0};

			philox4x32_10(r, 5);
			*p++ = line % 2 ? 's' : 'm';
			*p++ = (char)('a' + r[0] % TOPIC_WORDS);
			*p++ = i + 1 == TOPIC_LENGTH ? '\n' : ' ';
		}
	*p = 0;
	return text;
}

struct words_config topics_config(unsigned trainers)
{
	static const struct kern_setting lr = {"lr", 0.05};
	struct words_config c = words_default();

	ck_assert_int_eq(kern_opt_parse("sgd", &lr, 1, &c.opt), 0);
	c.trainers = trainers;
	c.batch = 48;
	c.dim = 16;
	c.sample = 1;
	c.epochs = 5;
	return c;
}

void topics_start(struct words_task *task, const struct words_config *config)
{
	*task = (struct words_task){.config = *config};
	ck_assert_int_eq(words_check(config), 0);
	ck_assert_int_eq(
	    words_corpus_create(topics_text(), config->seed, config->min_count, &task->corpus), 0);
	ck_assert_int_eq(words_noise_create(task->corpus->count, task->corpus->words,
					    config->sample, &task->noise),
			 0);
	task->steps = words_feed_steps(config, task->noise);
}

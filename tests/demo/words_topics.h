/* SPDX-License-Identifier: Apache-2.0
 *
 * A made-up text on two topics, whose words never stand in one line.
 */
#ifndef GS_TESTS_DEMO_WORDS_TOPICS_H
#define GS_TESTS_DEMO_WORDS_TOPICS_H

#include "demo/words_task.h"

enum { TOPIC_WORDS = 12, TOPIC_LINES = 600, TOPIC_LENGTH = 10 };

/* Words are "sa" … "sl" of the sea, "ma" … "ml" of the mountains. To be freed. */
char *topics_text(void);
/* A task on it: sgd with a rate of 0.05, 16 dimensions, a batch of 48. */
struct words_config topics_config(unsigned trainers);
void topics_start(struct words_task *task, const struct words_config *config);

#endif

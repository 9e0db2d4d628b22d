/* SPDX-License-Identifier: Apache-2.0
 *
 * Training word vectors without a server: what it reaches, and that it does what a server would.
 */
#include "suites.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "demo/words_single.h"
#include "words_topics.h"

static struct words_result train(const struct words_config *config, float **in)
{
	struct words_result r;
	struct words_task task;

	topics_start(&task, config);
	ck_assert_msg(words_single_train(&task, in, &r) == 0, "%s", err_text());
	words_task_end(&task);
	return r;
}

/* It finds the two topics: 0.75 is all that there is to know. */
START_TEST(learns)
{
	for (unsigned trainers = 1; trainers <= 4; trainers++) {
		struct words_config config = topics_config(trainers);
		struct words_result r = train(&config, NULL);

		ck_assert_double_eq(r.before.auc, 0.5);
		ck_assert_msg(r.after.auc > 0.7, "%u trainers: %g", trainers, r.after.auc);
		ck_assert_double_lt(r.after.loss, 0.85 * r.before.loss);
	}
}
END_TEST

START_TEST(words_of_a_topic_are_near)
{
	struct words_config config = topics_config(2);
	struct words_task task;
	struct words_result r;
	uint32_t near[TOPIC_WORDS - 1];
	float *in;

	config.epochs = 20;
	topics_start(&task, &config);
	ck_assert_int_eq(words_single_train(&task, &in, &r), 0);
	for (uint32_t w = 0; w < task.corpus->words; w++) {
		words_nearest(in, task.corpus->words, config.dim, w, TOPIC_WORDS - 1, near);
		for (unsigned i = 0; i < TOPIC_WORDS - 1; i++)
			ck_assert_int_eq(task.corpus->word[near[i]][0], task.corpus->word[w][0]);
	}
	free(in);
	words_task_end(&task);
}
END_TEST

START_TEST(same_bits)
{
	static const enum kern_dtype dtypes[] = {KERN_F32, KERN_BF16, KERN_F16};
	uint64_t sums[3];

	for (unsigned d = 0; d < 3; d++) {
		struct words_config config = topics_config(3);

		config.grad_dtype = dtypes[d];
		sums[d] = train(&config, NULL).checksum;
		ck_assert_uint_eq(train(&config, NULL).checksum, sums[d]);
		for (unsigned other = 0; other < d; other++)
			ck_assert_uint_ne(sums[other], sums[d]);
	}
	struct words_config config = topics_config(3);
	config.seed++;
	ck_assert_uint_ne(train(&config, NULL).checksum, sums[0]);
}
END_TEST

/* The steps by hand, on whole tables: w -= lr (g0 + g1 + g2), the sum in rank order. */
START_TEST(does_what_it_says)
{
	struct words_config config = topics_config(3);
	struct words_feed *feed[3];
	float *w[WORDS_TABLES], *sum[WORDS_TABLES], *row[WORDS_TABLES], *grad[WORDS_TABLES];
	struct words_task task;

	config.epochs = 1;
	topics_start(&task, &config);
	size_t len = (size_t)task.corpus->words * config.dim;
	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		w[t] = words_task_table(&task);
		sum[t] = words_task_table(&task);
		row[t] = words_task_table(&task);
		grad[t] = words_task_table(&task);
		words_task_init(&task, t, w[t]);
	}
	for (int r = 0; r < 3; r++)
		ck_assert_int_eq(words_feed_create(&config, task.corpus, task.noise, r, &feed[r]),
				 0);
	for (uint64_t step = 0; step < task.steps; step++) {
		for (unsigned t = 0; t < WORDS_TABLES; t++)
			memset(sum[t], 0, len * sizeof(float));
		for (unsigned r = 0; r < 3; r++) {
			const struct words_batch *b = words_feed_next(feed[r]);

			for (unsigned t = 0; t < WORDS_TABLES; t++)
				for (uint32_t i = 0; i < b->rows[t]; i++)
					memcpy(row[t] + i * config.dim,
					       w[t] + (size_t)b->id[t][i] * config.dim,
					       config.dim * sizeof(float));
			words_gradient(b, config.dim, (const float *const *)row, grad);
			for (unsigned t = 0; t < WORDS_TABLES; t++)
				for (size_t i = 0; i < b->rows[t] * config.dim; i++)
					sum[t][(size_t)b->id[t][i / config.dim] * config.dim +
					       i % config.dim] += grad[t][i];
		}
		for (unsigned t = 0; t < WORDS_TABLES; t++)
			for (size_t i = 0; i < len; i++)
				w[t][i] -= kern_opt_lr(&config.opt) * sum[t][i];
	}
	ck_assert_uint_eq(train(&config, NULL).checksum,
			  words_checksum((const float *const *)w, task.corpus->words, config.dim));
	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		free(w[t]);
		free(sum[t]);
		free(row[t]);
		free(grad[t]);
	}
	for (unsigned r = 0; r < 3; r++)
		words_feed_destroy(feed[r]);
	words_task_end(&task);
}
END_TEST

Suite *words_single_suite(void)
{
	Suite *suite = suite_create("words_single");
	TCase *tc = tcase_create("train");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, learns);
	tcase_add_test(tc, words_of_a_topic_are_near);
	tcase_add_test(tc, same_bits);
	tcase_add_test(tc, does_what_it_says);
	suite_add_tcase(suite, tc);
	return suite;
}

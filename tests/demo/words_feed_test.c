/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws by frequency, and the minibatches that are made of them.
 */
#include "suites.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "words_topics.h"

enum { DRAWS = 1 << 20 };

/* All 32-bit numbers at equal distances, so that frequencies are off by rounding alone. */
START_TEST(draws_by_frequency)
{
	static const uint64_t count[] = {1000000, 10000, 10000, 81, 16, 1, 1};
	enum { N = sizeof(count) / sizeof(count[0]) };
	unsigned got[N] = {0}, kept[N] = {0};
	struct words_noise *noise;
	double share = 0, total = 0, sum = 0;

	ck_assert_int_eq(words_noise_create(count, N, 1e-3, &noise), 0);
	for (uint32_t i = 0; i < DRAWS; i++) {
		uint32_t random = i * (uint32_t)((1ULL << 32) / DRAWS);

		got[words_noise_draw(noise, random)]++;
		for (uint32_t w = 0; w < N; w++)
			kept[w] += words_noise_keeps(noise, w, random);
	}
	for (unsigned w = 0; w < N; w++) {
		share += pow((double)count[w], 0.75);
		total += (double)count[w];
	}
	for (unsigned w = 0; w < N; w++) {
		double want = DRAWS * pow((double)count[w], 0.75) / share;
		double f = (double)count[w] / total, keep = fmin(1, sqrt(1e-3 / f) + 1e-3 / f);

		ck_assert_msg(fabs(got[w] - want) <= N + 1, "word %u: %u draws, not %g", w, got[w],
			      want);
		ck_assert_double_eq_tol(kept[w], keep * DRAWS, 1);
		sum += keep * (double)count[w];
	}
	ck_assert_double_eq_tol(words_noise_kept(noise), sum, 1e-6 * sum);
	words_noise_destroy(noise);
	words_noise_destroy(NULL);
}
END_TEST

static struct words_feed *feed(const struct words_task *task, int rank)
{
	struct words_feed *f = NULL;

	ck_assert_msg(words_feed_create(&task->config, task->corpus, task->noise, rank, &f) == 0,
		      "%s", err_text());
	return f;
}

/* Which topic a word is of. */
static char topic(const struct words_task *task, const struct words_batch *b, unsigned t,
		  uint32_t place)
{
	ck_assert_uint_lt(place, b->rows[t]);
	return task->corpus->word[b->id[t][place]][0];
}

START_TEST(batches_are_of_near_words)
{
	struct words_config config = topics_config(2);
	struct words_task task;
	struct words_feed *f;

	topics_start(&task, &config);
	f = feed(&task, 1);
	for (unsigned step = 0; step < 100; step++) {
		const struct words_batch *b = words_feed_next(f);

		/* 24 words in the middle with 1 to 10 around them. */
		ck_assert_uint_eq(words_share(&config), 24);
		ck_assert_uint_ge(b->pairs, 24);
		ck_assert_uint_le(b->pairs, 240);
		ck_assert_uint_eq(b->targets, 1 + config.negatives);
		for (unsigned t = 0; t < WORDS_TABLES; t++) {
			bool seen[2 * TOPIC_WORDS] = {false};

			ck_assert_uint_le(b->rows[t], words_feed_rows_max(&config, task.corpus, t));
			for (uint32_t i = 0; i < b->rows[t]; i++) {
				ck_assert_int_lt(b->id[t][i], task.corpus->words);
				ck_assert(!seen[b->id[t][i]]);
				seen[b->id[t][i]] = true;
			}
		}
		for (uint32_t p = 0; p < b->pairs; p++) {
			const uint32_t *target = b->target + p * b->targets;

			ck_assert_int_eq(topic(&task, b, WORDS_IN, b->middle[p]),
					 topic(&task, b, WORDS_OUT, target[0]));
			for (unsigned k = 1; k < b->targets; k++)
				ck_assert_uint_lt(target[k], b->rows[WORDS_OUT]);
		}
	}
	words_feed_destroy(f);
	words_feed_destroy(NULL);
	words_task_end(&task);
}
END_TEST

/* With every word kept, a pass meets each word of the shards as often as the vocabulary counts it.
 */
START_TEST(shards_cover_the_text)
{
	struct words_config config = topics_config(3);
	uint64_t middles = 0;
	struct words_task task;

	config.batch = 3; /* a word at a time */
	topics_start(&task, &config);
	ck_assert_uint_eq(task.steps, task.corpus->total * config.epochs / 3);
	for (int rank = 0; rank < 3; rank++) {
		struct words_feed *f = feed(&task, rank);

		for (; words_feed_passes(f) == 0; middles++)
			ck_assert_uint_eq(words_feed_next(f)->rows[WORDS_IN], 1);
		words_feed_destroy(f);
	}
	ck_assert_uint_eq(middles, task.corpus->total);
	words_task_end(&task);
}
END_TEST

static bool same_batch(const struct words_batch *a, const struct words_batch *b)
{
	for (unsigned t = 0; t < WORDS_TABLES; t++)
		if (a->rows[t] != b->rows[t] ||
		    memcmp(a->id[t], b->id[t], a->rows[t] * sizeof(*a->id[t])))
			return false;
	return a->pairs == b->pairs &&
	       !memcmp(a->middle, b->middle, a->pairs * sizeof(*a->middle)) &&
	       !memcmp(a->target, b->target, a->pairs * a->targets * sizeof(*a->target));
}

START_TEST(seed_and_rank_decide)
{
	struct words_config config = topics_config(2);
	struct words_task task;
	struct words_feed *a, *again, *other;

	topics_start(&task, &config);
	a = feed(&task, 0);
	again = feed(&task, 0);
	other = feed(&task, 1);
	for (unsigned step = 0; step < 200; step++) {
		const struct words_batch *batch = words_feed_next(a);

		ck_assert(same_batch(batch, words_feed_next(again)));
		ck_assert(!same_batch(batch, words_feed_next(other)));
	}
	words_feed_destroy(a);
	words_feed_destroy(again);
	words_feed_destroy(other);
	words_task_end(&task);
}
END_TEST

START_TEST(refuses)
{
	struct words_config config = topics_config(2);
	struct words_feed *f = NULL;
	struct words_task task;

	topics_start(&task, &config);
	task.corpus->n_train = 1;
	ck_assert_int_eq(words_feed_create(&config, task.corpus, task.noise, 1, &f), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "too few for 2 trainers"));
	ck_assert_ptr_null(f);
	words_task_end(&task);

	config.trainers = 49;
	ck_assert_int_eq(words_check(&config), -EINVAL);
	config = topics_config(1);
	config.negatives = 65;
	ck_assert_int_eq(words_check(&config), -EINVAL);
	config = topics_config(1);
	config.sample = 0;
	ck_assert_int_eq(words_check(&config), -EINVAL);
	config = topics_config(1);
	config.dim = 0;
	ck_assert_int_eq(words_check(&config), -EINVAL);
}
END_TEST

Suite *words_feed_suite(void)
{
	Suite *suite = suite_create("words_feed");
	TCase *tc = tcase_create("feed");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, draws_by_frequency);
	tcase_add_test(tc, batches_are_of_near_words);
	tcase_add_test(tc, shards_cover_the_text);
	tcase_add_test(tc, seed_and_rank_decide);
	tcase_add_test(tc, refuses);
	suite_add_tcase(suite, tc);
	return suite;
}

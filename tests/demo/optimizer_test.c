/* SPDX-License-Identifier: Apache-2.0
 *
 * The demo's optimizers as text, and that each learns the digits at its default rate, with
 * gradients of each format.
 */
#include "suites.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "demo/optimizer.h"
#include "demo/single.h"

enum { SEEDS = 2 };

static const char *const dtypes[] = {"f32", "bf16", "f16"};

START_TEST(there_and_back)
{
	static const char *const texts[][2] = {
	    {"sgd", "sgd:lr=0.5"},
	    {"sgd:lr=0.125", "sgd:lr=0.125"},
	    {"momentum:dampening=0.5", "momentum:lr=0.1,dampening=0.5"},
	    {"adam:beta1=0.8,lr=0.1", "adam:lr=0.1,beta1=0.8"},
	    {"adam:lr=1e-5,eps=1e-8", "adam:lr=1e-05"},
	    {"adamw:weight_decay=0.1,clip_norm=2", "adamw:lr=0.002,clip_norm=2,weight_decay=0.1"},
	};
	char buf[OPTIMIZER_TEXT];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kern_opt opt, again;

		ck_assert_int_eq(optimizer_parse(texts[i][0], &opt), 0);
		ck_assert_str_eq(optimizer_text(&opt, buf), texts[i][1]);
		ck_assert_int_eq(optimizer_parse(buf, &again), 0);
		ck_assert(kern_opt_same(&opt, &again));
	}
}
END_TEST

/* The words example passes them on as text, too. */
START_TEST(there_and_back_of_rows)
{
	static const char *const texts[] = {
	    "adagrad:lr=0.15",
	    "rowwise_adagrad:lr=0.1",
	    "rowwise_adagrad:lr=0.1,initial_accumulator=0.5,eps=0.001,clip_value=2",
	};
	char buf[OPTIMIZER_TEXT];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kern_opt opt;

		ck_assert_int_eq(optimizer_parse_rows(texts[i], &opt), 0);
		ck_assert_str_eq(optimizer_text(&opt, buf), texts[i]);
	}
}
END_TEST

/* Every rule but those that the demo has no use for, each with its rate. */
START_TEST(all_there_are)
{
	char buf[OPTIMIZER_TEXT];

	for (unsigned i = 0; kern_opt_at(i); i++) {
		const char *name = kern_opt_at(i);
		struct kern_opt opt, again;
		bool left_out = !strcmp(name, "add") || !strcmp(name, "rowwise_adagrad");

		ck_assert_int_eq(optimizer_parse(name, &opt), left_out ? -EINVAL : 0);
		if (left_out)
			continue;
		ck_assert_int_eq(optimizer_parse(optimizer_text(&opt, buf), &again), 0);
		ck_assert_msg(kern_opt_same(&opt, &again), "%s", buf);
	}
	for (unsigned i = 0; optimizer_at(i); i++) {
		struct kern_opt opt;

		ck_assert_int_eq(optimizer_parse(optimizer_at(i), &opt), 0);
	}
}
END_TEST

START_TEST(refuses)
{
	static const char *const bad[][2] = {
	    {"", "unknown"},
	    {"foo", "\"foo\""},
	    {"adam:", "\"\""},
	    {"adam:lr", "\"lr\""},
	    {"adam:lr=", "\"lr=\""},
	    {"adam:=1", "\"=1\""},
	    {"adam:lr=1x", "\"lr=1x\""},
	    {"adam:lr=nan", "lr=nan"},
	    {"adam:lr=1,", "\"\""},
	    {"adam:lr=-1", "-1"},
	    {"adam:lr=1,lr=2", "twice"},
	    {"sgd:beta1=1", "beta1"},
	    {"add", "changes"},
	    {"rowwise_adagrad", "tables"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct kern_opt opt = {.rule = 77};

		ck_assert_msg(optimizer_parse(bad[i][0], &opt) == -EINVAL, "'%s'", bad[i][0]);
		ck_assert_msg(strstr(err_text(), bad[i][1]) != NULL, "'%s': %s", bad[i][0],
			      err_text());
		ck_assert_uint_eq(opt.rule, 77);
	}
}
END_TEST

/* The mean over the seeds. */
static double accuracy(const char *optimizer, enum kern_dtype dtype)
{
	double sum = 0;

	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		struct digits_config c = digits_default();
		struct single_result r;

		c.seed = seed;
		c.trainers = 2;
		c.grad_dtype = dtype;
		ck_assert_int_eq(optimizer_parse(optimizer, &c.opt), 0);
		ck_assert_int_eq(single_train(&c, &r), 0);
		ck_assert_msg(r.accuracy >= 0.95, "%s, %s, seed %u: %g", optimizer, dtypes[dtype],
			      seed, r.accuracy);
		sum += r.accuracy / SEEDS;
	}
	return sum;
}

/* A run's accuracy depends on chance, by more than on the gradients' format: the mean over all
 * optimizers does not. */
START_TEST(learns_with_each)
{
	double mean[3] = {0};
	unsigned n = 0;

	for (; optimizer_at(n); n++)
		for (int dtype = KERN_F32; dtype <= KERN_F16; dtype++)
			mean[dtype] += accuracy(optimizer_at(n), (enum kern_dtype)dtype);
	for (int dtype = KERN_F32; dtype <= KERN_F16; dtype++) {
		mean[dtype] /= n;
		ck_assert_msg(mean[dtype] >= 0.965 && mean[dtype] >= mean[KERN_F32] - 0.005,
			      "%s: %g, f32: %g", dtypes[dtype], mean[dtype], mean[KERN_F32]);
	}
}
END_TEST

Suite *optimizer_suite(void)
{
	Suite *suite = suite_create("optimizer");
	TCase *tc = tcase_create("optimizer");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, there_and_back);
	tcase_add_test(tc, there_and_back_of_rows);
	tcase_add_test(tc, all_there_are);
	tcase_add_test(tc, refuses);
	tcase_add_test(tc, learns_with_each);
	suite_add_tcase(suite, tc);
	return suite;
}

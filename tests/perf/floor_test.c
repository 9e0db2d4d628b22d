/* SPDX-License-Identifier: Apache-2.0
 *
 * The floor, the bare exchange and the wake-up: that they do their work, whatever the size; not how
 * fast.
 */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "perf/exchange.h"
#include "perf/floor.h"
#include "perf/wake.h"
#include "run.h"

static const struct floor_job small = {
    .bytes = 4096, .optimizer = "adam", .trainers = 3, .threads = 2, .budget_ms = 1};

/* Sizes that no line and no share goes into. */
START_TEST(floor_of_any_size)
{
	static const size_t sizes[] = {4, 60, 68, 4100, (1 << 20) + 4};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned trainers = 1; trainers <= FLOOR_TRAINERS_MAX; trainers += 5) {
			struct floor_job job = small;
			struct floor_parts p = {0};

			job.bytes = sizes[i];
			job.trainers = trainers;
			job.threads = 1 + i % 3;
			ck_assert_int_eq(floor_measure(&job, &p), 0);
			ck_assert(p.in > 0 && p.update > 0 && p.out > 0 && p.read > 0);
		}
	}
}
END_TEST

START_TEST(floor_refuses)
{
	struct floor_parts p = {.in = 7};
	struct floor_job job = small;

	job.bytes = 6;
	ck_assert_int_eq(floor_measure(&job, &p), -EINVAL);
	job = small;
	job.trainers = FLOOR_TRAINERS_MAX + 1;
	ck_assert_int_eq(floor_measure(&job, &p), -EINVAL);
	job = small;
	job.threads = 0;
	ck_assert_int_eq(floor_measure(&job, &p), -EINVAL);
	job = small;
	job.optimizer = "none";
	ck_assert_int_eq(floor_measure(&job, &p), -EINVAL);
	ck_assert(p.in == 7);
}
END_TEST

START_TEST(floor_adds_up)
{
	const struct floor_parts p = {.in = 1, .update = 10, .out = 100, .read = 1000};

	ck_assert(floor_total(&p, FLOOR_VIEW) == 1010);
	ck_assert(floor_total(&p, FLOOR_PULL) == 110);
	ck_assert(floor_total(&p, FLOOR_COPY) == 111);
}
END_TEST

/* It fails by itself when no weight has moved. */
START_TEST(exchange_gives_its_times)
{
	uint64_t ns[8] = {0};

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return;
	ck_assert_int_eq(exchange_steps(4100, ns, 8), 0);
	for (unsigned i = 0; i < 8; i++)
		ck_assert_uint_gt(ns[i], 0);
	ck_assert_int_eq(exchange_steps(5, ns, 8), -EINVAL);
	ck_assert_int_eq(exchange_steps(4096, ns, 0), -EINVAL);
}
END_TEST

START_TEST(wake_gives_a_time)
{
	ck_assert(wake_round_trip_us(10) > 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("floor");
	TCase *tc = tcase_create("what a step is compared with");

	tcase_add_test(tc, floor_of_any_size);
	tcase_add_test(tc, floor_refuses);
	tcase_add_test(tc, floor_adds_up);
	tcase_add_test(tc, exchange_gives_its_times);
	tcase_add_test(tc, wake_gives_a_time);
	tcase_set_timeout(tc, 100);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	return run_all(runner);
}

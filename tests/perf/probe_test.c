/* SPDX-License-Identifier: Apache-2.0
 *
 * The hand-over of a cache line: what can be said of it on any machine.
 */
#include <check.h>
#include <math.h>
#include <sched.h>

#include "perf/probe.h"
#include "run.h"

static unsigned cores(void)
{
	cpu_set_t set;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	return (unsigned)CPU_COUNT(&set);
}

START_TEST(is_a_time)
{
	double ns = probe_core_to_core_ns();

	/* On busy cores the players may never meet. */
	if (isnan(ns))
		return;
	ck_assert_uint_ge(cores(), 2);
	ck_assert_double_gt(ns, 0);
	ck_assert(isfinite(ns));
}
END_TEST

START_TEST(leaves_the_callers_cores_alone)
{
	unsigned before = cores();

	probe_core_to_core_ns();
	ck_assert_uint_eq(cores(), before);
}
END_TEST

START_TEST(wants_two_cores)
{
	cpu_set_t all, one;
	int core = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(core, &all))
		core++;
	ck_assert_double_nan(probe_pair_ns(core, core));
	ck_assert_double_nan(probe_pair_ns(core, -1));
	ck_assert_double_nan(probe_pair_ns(CPU_SETSIZE, core));
	CPU_ZERO(&one);
	CPU_SET(core, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_double_nan(probe_core_to_core_ns());
	ck_assert_int_eq(sched_setaffinity(0, sizeof(all), &all), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("probe");
	TCase *tc = tcase_create("core to core");

	tcase_add_test(tc, is_a_time);
	tcase_add_test(tc, leaves_the_callers_cores_alone);
	tcase_add_test(tc, wants_two_cores);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	return run_all(runner);
}

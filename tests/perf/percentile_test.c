/* SPDX-License-Identifier: Apache-2.0
 *
 * Percentiles by nearest rank.
 */
#include <check.h>
#include <stdlib.h>

#include "perf/percentile.h"
#include "run.h"

START_TEST(sorts)
{
	uint64_t v[] = {5, UINT64_MAX, 0, 3, 3};
	const uint64_t sorted[] = {0, 3, 3, 5, UINT64_MAX};

	perf_sort(v, 5);
	for (unsigned i = 0; i < 5; i++)
		ck_assert_uint_eq(v[i], sorted[i]);
	perf_sort(v, 0);
}
END_TEST

START_TEST(one_value_is_every_percentile)
{
	const uint64_t v[] = {7};

	for (unsigned p = 0; p <= 10000; p++)
		ck_assert_uint_eq(perf_percentile(v, 1, p), 7);
}
END_TEST

START_TEST(known_ranks)
{
	/* The example of the definition: 15, 20, 35, 40, 50. */
	const uint64_t v[] = {15, 20, 35, 40, 50};

	ck_assert_uint_eq(perf_percentile(v, 5, 0), 15);
	ck_assert_uint_eq(perf_percentile(v, 5, 500), 15);
	ck_assert_uint_eq(perf_percentile(v, 5, 3000), 20);
	ck_assert_uint_eq(perf_percentile(v, 5, 4000), 20);
	ck_assert_uint_eq(perf_percentile(v, 5, 5000), 35);
	ck_assert_uint_eq(perf_percentile(v, 5, 8001), 50);
	ck_assert_uint_eq(perf_percentile(v, 5, 10000), 50);
}
END_TEST

/* The definition itself, by counting, for sizes around the thresholds of each percentile. */
START_TEST(matches_the_definition)
{
	static const unsigned ps[] = {1, 100, 5000, 9000, 9900, 9990, 9999};

	for (size_t n = 1; n < 2300; n++) {
		uint64_t *v = malloc(n * sizeof(*v));

		for (size_t i = 0; i < n; i++)
			v[i] = i / 3;
		for (unsigned k = 0; k < sizeof(ps) / sizeof(ps[0]); k++) {
			size_t i = 0;

			while ((i + 1) * 10000 < ps[k] * n)
				i++;
			ck_assert_uint_eq(perf_percentile(v, n, ps[k]), v[i]);
		}
		free(v);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("percentile");
	TCase *tc = tcase_create("nearest rank");

	tcase_add_test(tc, sorts);
	tcase_add_test(tc, one_value_is_every_percentile);
	tcase_add_test(tc, known_ranks);
	tcase_add_test(tc, matches_the_definition);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	return run_all(runner);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums that do not depend on the order.
 */
#include "suites.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/exact.h"
#include "kernels/kern.h"

static double sum_of(const double *x, int n)
{
	struct exact sum = {{0}, 0};

	for (int i = 0; i < n; i++)
		exact_add(&sum, x[i]);
	return exact_value(&sum);
}

START_TEST(single_numbers)
{
	static const double x[] = {0,       1,       0.1,           3,       0x1.fffffffffffffp52,
				   DBL_MAX, DBL_MIN, DBL_TRUE_MIN, 0x1p-1060, 1e300};

	for (unsigned i = 0; i < sizeof(x) / sizeof(x[0]); i++)
		ck_assert_msg(sum_of(&x[i], 1) == x[i], "%a", x[i]);
}
END_TEST

START_TEST(carries_and_small_ones)
{
	/* In double, 1 is lost beside 2^60, as often as it is added. */
	double x[1025];

	x[0] = 0x1p60;
	for (int i = 1; i < 1025; i++)
		x[i] = 1;
	ck_assert(sum_of(x, 1025) == 0x1p60 + 1024);
	for (int i = 0; i < 1024; i++)
		x[i] = 0x1.fffffffffffffp0;
	ck_assert(sum_of(x, 1024) == 0x1.fffffffffffffp10);
}
END_TEST

START_TEST(not_numbers)
{
	const double inf[] = {1, INFINITY, 2}, nan[] = {1, NAN, INFINITY};

	ck_assert(sum_of(inf, 3) == INFINITY);
	ck_assert(isnan(sum_of(nan, 3)));
}
END_TEST

enum { ROWS = 97, DIM = 37 };

START_TEST(rows_in_any_order)
{
	static float rows[ROWS][DIM], moved[ROWS][DIM];
	double wanted;

	srand48(5);
	for (int i = 0; i < ROWS; i++)
		for (int k = 0; k < DIM; k++)
			rows[i][k] = (float)(exp(20 * drand48() - 10));
	wanted = kern_norm2_rows(rows[0], ROWS, DIM);
	/* 97 is prime: each stride visits every row. */
	for (int stride = 1; stride < ROWS; stride++) {
		for (int i = 0; i < ROWS; i++)
			memcpy(moved[i], rows[i * stride % ROWS], sizeof(moved[i]));
		ck_assert(kern_norm2_rows(moved[0], ROWS, DIM) == wanted);
	}
}
END_TEST

Suite *exact_suite(void)
{
	Suite *suite = suite_create("exact sums");
	TCase *tc = tcase_create("exact sums");

	tcase_add_test(tc, single_numbers);
	tcase_add_test(tc, carries_and_small_ones);
	tcase_add_test(tc, not_numbers);
	tcase_add_test(tc, rows_in_any_order);
	suite_add_tcase(suite, tc);
	return suite;
}

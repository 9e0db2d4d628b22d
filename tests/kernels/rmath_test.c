/* SPDX-License-Identifier: Apache-2.0
 *
 * exp, log, powers, the cosine and the normal quantile against the C library's.
 */
#include "suites.h"

#include <float.h>
#include <math.h>

#include "kernels/rmath.h"

static void check_relative(const char *what, double x, double got, double want, double units)
{
	ck_assert_msg(fabs(got - want) <= units * DBL_EPSILON * fabs(want),
		      "%s(%.17g) is %.17g, not %.17g", what, x, got, want);
}

START_TEST(exponentials)
{
	for (double x = -708; x <= 709; x += 0.0137)
		check_relative("exp", x, rm_exp(x), exp(x), 2);
	ck_assert(rm_exp(0) == 1);
	ck_assert(rm_exp(-1e9) == 0);
	ck_assert(rm_exp(-INFINITY) == 0);
	ck_assert(isnan(rm_exp(NAN)));
}
END_TEST

START_TEST(logarithms)
{
	for (double x = DBL_MIN; x < DBL_MAX / 2; x *= 1.37)
		check_relative("log", x, rm_log(x), log(x), 2);
	/* Near 1, where the result is small. */
	for (double x = 0.6; x < 1.7; x += 0.000137)
		check_relative("log", x, rm_log(x), log(x), 2);
	ck_assert(rm_log(1) == 0);
}
END_TEST

START_TEST(powers)
{
	/* Multiplied, and by way of the logarithm, which magnifies an error by |y ln x|. */
	for (double x = 0.013; x < 40; x *= 1.37)
		for (double y = 0; y < 150; y += 0.25)
			check_relative("pow", x, rm_pow(x, y), pow(x, y),
				       4 + (y <= 64 ? y : 0) + 2 * y * fabs(log(x)));
	for (int n = 0; n <= 64; n++)
		ck_assert(rm_pow(0.5, n) == ldexp(1, -n));
	ck_assert(rm_pow(0, 0) == 1);
	ck_assert(rm_pow(0, 1) == 0);
	ck_assert(rm_pow(0, 0.5) == 0);
	ck_assert(rm_pow(0, 1e300) == 0);
	ck_assert(rm_pow(0.3, 1) == 0.3);
	ck_assert(rm_pow(1, 0x1p63) == 1);
	ck_assert(rm_pow(0.999, 0x1p63) == 0);
	ck_assert(rm_pow(0.1, DBL_MAX) == 0);
	/* Too large for a double. */
	ck_assert(rm_pow(1e300, 2) == rm_exp(709));
	ck_assert(rm_pow(1e300, 2.5) == rm_exp(709));
	ck_assert(rm_pow(1.1, 0x1p63) == rm_exp(709));
}
END_TEST

START_TEST(cosines)
{
	const long double pi = 3.14159265358979323846264338327950288L;

	for (double x = 0; x < 0.5; x += 0x1p-14) {
		check_relative("cos_pi", x, rm_cos_pi(x), (double)cosl(pi * x), 2);
		ck_assert(rm_cos_pi(1 - x) == -rm_cos_pi(x));
	}
	/* Near the zero, where the result is small. */
	for (double d = 0.25; d > 1e-12; d *= 0.87)
		check_relative("cos_pi", 0.5 - d, rm_cos_pi(0.5 - d),
			       (double)sinl(pi * (0.5L - (long double)(0.5 - d))), 2);
	ck_assert(rm_cos_pi(0) == 1);
	ck_assert(rm_cos_pi(0.5) == 0);
	ck_assert(rm_cos_pi(1) == -1);
}
END_TEST

/* The distribution function of what it gives is what it was given. Its slope magnifies an error in
 * x by |x|. */
START_TEST(quantiles)
{
	for (double p = 0x1p-53; p < 0.5; p *= 1.01) {
		double x = rm_normal_quantile(p);

		check_relative("P", x, 0.5 * erfc(-x / sqrt(2)), p, 8 * (1 + x * x));
	}
	for (double p = 0x1p-20; p < 1; p += 0x1p-14)
		ck_assert_double_eq_tol(rm_normal_quantile(p), -rm_normal_quantile(1 - p), 1e-10);
	ck_assert(rm_normal_quantile(0.5) == 0);
	/* Tabulated. */
	ck_assert_double_eq_tol(rm_normal_quantile(0.975), 1.959963984540054, 1e-14);
	ck_assert_double_eq_tol(rm_normal_quantile(0.001), -3.090232306167813, 1e-14);
	ck_assert_double_eq_tol(rm_normal_quantile(1e-12), -7.034483825301132, 1e-13);
}
END_TEST

Suite *rmath_suite(void)
{
	Suite *suite = suite_create("reproducible functions");
	TCase *tc = tcase_create("values");

	tcase_add_test(tc, exponentials);
	tcase_add_test(tc, logarithms);
	tcase_add_test(tc, powers);
	tcase_add_test(tc, cosines);
	tcase_add_test(tc, quantiles);
	suite_add_tcase(suite, tc);
	return suite;
}

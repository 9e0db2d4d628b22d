/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products against sums in double precision.
 */
#include "suites.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kern.h"

enum { MAX = 65 };

static float *matrix(uint64_t seed, size_t len)
{
	float *a = malloc((len + 1) * sizeof(*a));

	kern_init_fill(KERN_INIT_NORMAL, seed, 0, 1, 0, a, len + 1);
	return a;
}

static void check(bool ta, bool tb, int m, int n, int k, float alpha, float beta)
{
	float *a = matrix(1, MAX * MAX), *b = matrix(2, MAX * MAX), *c = matrix(3, MAX * MAX),
	      *before = matrix(3, MAX * MAX);

	kern_gemm(ta, tb, m, n, k, alpha, a, b, beta, c);
	for (int i = 0; i < m; i++)
		for (int j = 0; j < n; j++) {
			double sum = 0, size = 0;

			for (int l = 0; l < k; l++) {
				double p = (double)(ta ? a[l * m + i] : a[i * k + l]) *
					   (tb ? b[j * k + l] : b[l * n + j]);

				sum += p;
				size += fabs(p);
			}
			ck_assert_double_eq_tol(c[i * n + j],
						alpha * sum + beta * before[i * n + j],
						FLT_EPSILON * (k + 2) * (size + 1));
		}
	ck_assert_mem_eq(c + m * n, before + m * n, sizeof(float));
	free(a);
	free(b);
	free(c);
	free(before);
}

START_TEST(all_transposes)
{
	static const int sizes[][3] = {{1, 1, 1},    {1, 5, 3},    {7, 1, 4},   {5, 6, 1},
				       {48, 10, 64}, {17, 33, 65}, {64, 64, 64}};

	for (unsigned s = 0; s < 7; s++)
		for (int t = 0; t < 4; t++) {
			check(t & 1, t & 2, sizes[s][0], sizes[s][1], sizes[s][2], 1, 0);
			check(t & 1, t & 2, sizes[s][0], sizes[s][1], sizes[s][2], -0.5f, 2);
		}
}
END_TEST

START_TEST(empty)
{
	const float a[] = {1, 2};
	float c[] = {3, 4};

	kern_gemm(false, false, 0, 2, 1, 1, a, a, 0, c);
	kern_gemm(false, false, 2, 0, 1, 1, a, a, 0, c);
	ck_assert_float_eq(c[0], 3);
	/* A sum of no terms. */
	kern_gemm(false, false, 1, 2, 0, 1, a, a, 2, c);
	ck_assert_float_eq(c[0], 6);
	ck_assert_float_eq(c[1], 8);
}
END_TEST

/* beta = 0 overwrites, whatever was there. */
START_TEST(overwrites)
{
	const float a[] = {1, 2}, b[] = {3, 4};
	float c = NAN;

	kern_gemm(false, false, 1, 1, 2, 1, a, b, 0, &c);
	ck_assert_float_eq(c, 11);
}
END_TEST

START_TEST(same_bits_wherever_the_memory_is)
{
	enum { N = 61 };
	float *a = matrix(1, N * N + 3), *b = matrix(2, N * N + 3), *c = matrix(3, N * N),
	      *d = matrix(4, N * N + 3);

	kern_gemm(false, true, N, N, N, 1, a, b, 0, c);
	for (unsigned shift = 1; shift < 4; shift++) {
		memmove(a + shift, a + shift - 1, N * N * sizeof(*a));
		memmove(b + shift, b + shift - 1, N * N * sizeof(*b));
		kern_gemm(false, true, N, N, N, 1, a + shift, b + shift, 0, d + shift);
		ck_assert_mem_eq(c, d + shift, N * N * sizeof(*c));
	}
	free(a);
	free(b);
	free(c);
	free(d);
}
END_TEST

START_TEST(core_has_a_name)
{
	ck_assert_str_ne(kern_gemm_core(), "");
}
END_TEST

Suite *gemm_suite(void)
{
	Suite *suite = suite_create("matrix products");
	TCase *tc = tcase_create("gemm");

	tcase_add_test(tc, all_transposes);
	tcase_add_test(tc, empty);
	tcase_add_test(tc, overwrites);
	tcase_add_test(tc, same_bits_wherever_the_memory_is);
	tcase_add_test(tc, core_has_a_name);
	suite_add_tcase(suite, tc);
	return suite;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial values: distribution, independence of blocks, stability of the numbers themselves.
 */
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kern.h"
#include "kernels/philox.h"

enum { MANY = 200000 };

/* Known answers that the generator's authors publish with Random123 (kat_vectors). */
START_TEST(philox_known_answers)
{
	static const struct {
		uint32_t ctr[4];
		uint64_t key;
		uint32_t want[4];
	} known[] = {
	    {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
	     0xffffffffffffffff,
	     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
	    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
	     0x299f31d0a4093822,
	     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};

	for (unsigned i = 0; i < 3; i++) {
		uint32_t ctr[4];

		memcpy(ctr, known[i].ctr, sizeof(ctr));
		philox4x32_10(ctr, known[i].key);
		for (unsigned k = 0; k < 4; k++)
			ck_assert_uint_eq(ctr[k], known[i].want[k]);
	}
}
END_TEST

START_TEST(zero_and_constant)
{
	float x[5] = {1, 1, 1, 1, 9};

	kern_init_fill(KERN_INIT_ZERO, 7, 3, 4, 0, x, 4);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_float_eq(x[i], 0);
	kern_init_fill(KERN_INIT_CONSTANT, 7, -2.5, 4, 100, x, 4);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_float_eq(x[i], -2.5f);
	ck_assert_float_eq(x[4], 9);
}
END_TEST

static int ascending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* The Kolmogorov-Smirnov statistic times sqrt(n): above 1.95 with probability 0.001. */
static double ks(float *x, size_t n, double (*cdf)(double))
{
	double worst = 0;

	qsort(x, n, sizeof(*x), ascending);
	for (size_t i = 0; i < n; i++) {
		double p = cdf(x[i]);

		worst = fmax(worst, fmax(fabs(p - (double)i / n), fabs(p - (double)(i + 1) / n)));
	}
	return worst * sqrt((double)n);
}

static double uniform_cdf(double x)
{
	return (x + 3) / 5;
}

static double normal_cdf(double x)
{
	return 0.5 * erfc(-(x - 1.5) / (0.25 * sqrt(2)));
}

static void moments(const float *x, size_t n, double *mean, double *std)
{
	double sum = 0, squares = 0;

	for (size_t i = 0; i < n; i++)
		sum += x[i];
	*mean = sum / n;
	for (size_t i = 0; i < n; i++)
		squares += (x[i] - *mean) * (x[i] - *mean);
	*std = sqrt(squares / n);
}

START_TEST(uniform)
{
	float *x = malloc(MANY * sizeof(*x));
	double mean, std;

	kern_init_fill(KERN_INIT_UNIFORM, 11, -3, 2, 0, x, MANY);
	moments(x, MANY, &mean, &std);
	/* Five standard errors. */
	ck_assert_double_eq_tol(mean, -0.5, 5 * (5 / sqrt(12)) / sqrt(MANY));
	ck_assert_double_eq_tol(std, 5 / sqrt(12), 0.01);
	ck_assert_double_lt(ks(x, MANY, uniform_cdf), 1.95);
	ck_assert_float_ge(x[0], -3);
	ck_assert_float_le(x[MANY - 1], 2);
	free(x);
}
END_TEST

START_TEST(normal)
{
	float *x = malloc(MANY * sizeof(*x));
	double mean, std;

	kern_init_fill(KERN_INIT_NORMAL, 11, 1.5, 0.25, 0, x, MANY);
	moments(x, MANY, &mean, &std);
	ck_assert_double_eq_tol(mean, 1.5, 5 * 0.25 / sqrt(MANY));
	ck_assert_double_eq_tol(std, 0.25, 5 * 0.25 / sqrt(2 * MANY));
	ck_assert_double_lt(ks(x, MANY, normal_cdf), 1.95);
	/* Both tails are there: one in 15,787 lies beyond four standard deviations to a side... */
	ck_assert_float_lt(x[0], 1.5f - 3.8f * 0.25f);
	ck_assert_float_gt(x[MANY - 1], 1.5f + 3.8f * 0.25f);
	free(x);
}
END_TEST

static double correlation(const float *x, const float *y, size_t n)
{
	double mx, my, sx, sy, sum = 0;

	moments(x, n, &mx, &sx);
	moments(y, n, &my, &sy);
	for (size_t i = 0; i < n; i++)
		sum += (x[i] - mx) * (y[i] - my);
	return sum / n / sx / sy;
}

START_TEST(uncorrelated)
{
	float *x = malloc(MANY * sizeof(*x)), *y = malloc(MANY * sizeof(*y));

	kern_init_fill(KERN_INIT_NORMAL, 1, 0, 1, 0, x, MANY);
	kern_init_fill(KERN_INIT_NORMAL, 2, 0, 1, 0, y, MANY);
	/* Seeds, then neighbours, then the two that share a counter's bits with the next two. */
	ck_assert_double_eq_tol(correlation(x, y, MANY), 0, 5 / sqrt(MANY));
	ck_assert_double_eq_tol(correlation(x, x + 1, MANY - 1), 0, 5 / sqrt(MANY));
	ck_assert_double_eq_tol(correlation(x, x + 2, MANY - 2), 0, 5 / sqrt(MANY));
	free(x);
	free(y);
}
END_TEST

/* Blocks of odd and even lengths, filled from the last to the first, far along in a parameter. */
START_TEST(blocks_in_any_order)
{
	static const uint64_t starts[] = {0, 1, (1ULL << 32) - 77, (1ULL << 33) - 50, 1ULL << 60};
	enum { LEN = 500 };
	float whole[LEN], blocks[LEN];

	for (unsigned s = 0; s < 5; s++)
		for (unsigned kind = KERN_INIT_UNIFORM; kind <= KERN_INIT_NORMAL; kind++)
			for (size_t step = 1; step < 70; step++) {
				kern_init_fill(kind, 5, 0, 1, starts[s], whole, LEN);
				memset(blocks, 0, sizeof(blocks));
				for (size_t at = LEN - LEN % step;; at -= step) {
					size_t len = LEN - at < step ? LEN - at : step;

					kern_init_fill(kind, 5, 0, 1, starts[s] + at, blocks + at,
						       len);
					if (at == 0)
						break;
				}
				ck_assert_mem_eq(whole, blocks, sizeof(whole));
			}
}
END_TEST

/* The whole index counts, not its low 32 bits. */
START_TEST(no_repeat_in_huge_parameters)
{
	enum { LEN = 64 };
	float near[LEN], far[LEN];

	kern_init_fill(KERN_INIT_UNIFORM, 5, 0, 1, 0, near, LEN);
	for (unsigned bit = 7; bit < 64; bit++) {
		kern_init_fill(KERN_INIT_UNIFORM, 5, 0, 1, 1ULL << bit, far, LEN);
		ck_assert_mem_ne(near, far, sizeof(near));
	}
}
END_TEST

/* A seed means these weights, in every version and on every machine. */
START_TEST(same_numbers_for_ever)
{
	float x[1001];

	kern_init_fill(KERN_INIT_UNIFORM, 42, -1, 1, 3, x, 1001);
	ck_assert_uint_eq(kern_checksum(x, sizeof(x), 0), 0x6fa31ef0ede53443);
	kern_init_fill(KERN_INIT_NORMAL, 42, 0, 1, 3, x, 1001);
	ck_assert_uint_eq(kern_checksum(x, sizeof(x), 0), 0x05557aa29fb2755c);
}
END_TEST

START_TEST(checksums)
{
	static const char text[] = "abcdefgh";

	/* XXH3's published value for no input. */
	ck_assert_uint_eq(kern_checksum("", 0, 0), 0x2d06800538d394c2);
	ck_assert_uint_ne(kern_checksum(text, 8, 0), kern_checksum(text, 8, 1));
	/* A chain depends on the order of its parts. */
	ck_assert_uint_ne(kern_checksum(text, 4, kern_checksum(text + 4, 4, 0)),
			  kern_checksum(text + 4, 4, kern_checksum(text, 4, 0)));
}
END_TEST

Suite *init_suite(void)
{
	Suite *suite = suite_create("initial values");
	TCase *tc = tcase_create("fill");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, philox_known_answers);
	tcase_add_test(tc, zero_and_constant);
	tcase_add_test(tc, uniform);
	tcase_add_test(tc, normal);
	tcase_add_test(tc, uncorrelated);
	tcase_add_test(tc, blocks_in_any_order);
	tcase_add_test(tc, no_repeat_in_huge_parameters);
	tcase_add_test(tc, same_numbers_for_ever);
	tcase_add_test(tc, checksums);
	suite_add_tcase(suite, tc);
	return suite;
}

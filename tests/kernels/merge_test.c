/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging gradients of all kinds, and their norm, against an element-by-element reference.
 */
#include "suites.h"

#include <math.h>
#include <string.h>

#include "kernels/kern.h"

enum { LEN = 9001, N = 5 };

/* By format; made once. */
static float wide[3][N][LEN];      /* the numbers, as floats */
static uint16_t narrow[3][N][LEN]; /* the same in 16 bits */
static const float factor[N] = {3, 0.37f, 1, 128.5f, 0.001f};

/* Gradients of this format. `data` is N pointers' room. */
static struct kern_grads make(enum kern_dtype dtype, const void **data)
{
	bool made = wide[dtype][N - 1][0] != 0;

	for (unsigned k = 0; k < N; k++) {
		float *x = wide[dtype][k];
		uint16_t *h = narrow[dtype][k];

		data[k] = dtype == KERN_F32 ? (const void *)x : h;
		if (made)
			continue;
		kern_init_fill(KERN_INIT_NORMAL, 7 + k, 0, 1, 0, x, LEN);
		kern_narrow(dtype, x, h, dtype == KERN_F32 ? 0 : LEN);
		kern_widen(dtype, h, x, dtype == KERN_F32 ? 0 : LEN);
	}
	return (struct kern_grads){.data = data, .dtype = dtype};
}

static float reference(const struct kern_grads *g, size_t i)
{
	const float(*x)[LEN] = (const float(*)[LEN])wide[g->dtype];
	float sum = g->factor ? g->factor[0] * x[0][i] : x[0][i];

	for (unsigned k = 1; k < g->n; k++)
		sum = sum + (g->factor ? g->factor[k] * x[k][i] : x[k][i]);
	return g->scale == 1 ? sum : sum * g->scale;
}

static void merge_kinds(void)
{
	static float out[LEN + 1];
	const void *data[N];

	for (unsigned kind = 0; kind < 3 * N * 4; kind++) {
		struct kern_grads g = make(kind % 3, data);

		g.n = kind / 3 % N + 1;
		g.factor = kind / 3 / N & 1 ? factor : NULL;
		g.scale = kind / 3 / N & 2 ? 0.3f : 1;
		out[LEN] = 77;
		ck_assert(!kern_merge(&g, out, LEN));
		ck_assert_float_eq(out[LEN], 77);
		for (size_t i = 0; i < LEN; i++) {
			float want = reference(&g, i);

			if (memcmp(&out[i], &want, sizeof(want)))
				ck_abort_msg("%s, kind %u: [%zu] is %a, not %a", kern_isa(), kind,
					     i, (double)out[i], (double)want);
		}
	}
}

START_TEST(merges)
{
	each_isa(merge_kinds);
}
END_TEST

/* Where gradients of both signs are infinite, and where only their sum is. */
static void merge_odd(void)
{
	static float a[LEN], b[LEN], out[LEN];
	const void *data[] = {a, b};
	struct kern_grads g = {.data = data, .scale = 0.5f, .n = 2, .dtype = KERN_F32};

	for (size_t at = 0; at < LEN; at += at < 40 || at > 4080 ? 1 : 37) {
		memset(a, 0, sizeof(a));
		memset(b, 0, sizeof(b));
		a[at] = at % 2 ? INFINITY : 3e38f;
		b[at] = at % 3 ? 3e38f : -INFINITY;
		ck_assert(kern_merge(&g, out, LEN));
		g.n = 1;
		ck_assert(kern_merge(&g, out, LEN) == (at % 2 != 0));
		g.n = 2;
		ck_assert(!isfinite(kern_norm2(&g, LEN)));
	}
}

START_TEST(infinities_are_told)
{
	each_isa(merge_odd);
}
END_TEST

/* The same bits in each instruction set and version: element i is in lane i % 16. */
static void norms_of_all(void)
{
	const void *data[N];

	for (unsigned dtype = 0; dtype < 3; dtype++)
		for (unsigned n = 1; n <= 3; n++) {
			struct kern_grads g = make(dtype, data);
			double norm, lane[16] = {0};

			g.n = n;
			g.scale = n == 1 ? 1 : 0.5f;
			norm = kern_norm2(&g, LEN);
			for (size_t i = 0; i < LEN; i++)
				lane[i % 16] += (double)reference(&g, i) * reference(&g, i);
			for (unsigned half = 8; half; half /= 2)
				for (unsigned k = 0; k < half; k++)
					lane[k] += lane[k + half];
			ck_assert(norm == lane[0]);
		}
}

START_TEST(norms_are_the_same_everywhere)
{
	each_isa(norms_of_all);
}
END_TEST

/* A merged gradient has the norm that it has unmerged, to the bit, at any length. */
static void norms_at_lengths(void)
{
	static float merged[LEN];
	const void *data[N], *one[] = {merged};
	const struct kern_grads m = {.data = one, .scale = 1, .n = 1, .dtype = KERN_F32};
	struct kern_grads g = make(KERN_BF16, data);

	g.n = 3;
	g.scale = 0.25f;
	for (size_t len = 0; len <= LEN; len += len < 100 ? 1 : 811) {
		kern_merge(&g, merged, len);
		ck_assert(kern_norm2(&g, len) == kern_norm2(&m, len));
	}
}

START_TEST(norms_do_not_depend_on_the_way)
{
	each_isa(norms_at_lengths);
}
END_TEST

START_TEST(clips)
{
	ck_assert_float_eq(kern_clip(25, 0), 1);
	ck_assert_float_eq(kern_clip(25, 6), 1);
	ck_assert_float_eq(kern_clip(25, 5), (float)(5 / (5 + 1e-6)));
	ck_assert_float_eq(kern_clip(100, 1), (float)(1 / (10 + 1e-6)));
	ck_assert_float_eq(kern_clip(0, 1), 1);
	ck_assert_float_eq(kern_clip(INFINITY, 1), 0);
	ck_assert_float_nan(kern_clip(NAN, 1));
}
END_TEST

Suite *merge_suite(void)
{
	Suite *suite = suite_create("merging");
	TCase *tc = tcase_create("gradients");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, merges);
	tcase_add_test(tc, infinities_are_told);
	tcase_add_test(tc, norms_are_the_same_everywhere);
	tcase_add_test(tc, norms_do_not_depend_on_the_way);
	tcase_add_test(tc, clips);
	suite_add_tcase(suite, tc);
	return suite;
}

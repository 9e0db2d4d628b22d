/* SPDX-License-Identifier: Apache-2.0
 *
 * kern_apply and kern_mean: against an element-by-element float reference bit for bit, against
 * double precision, and against what a hand can compute.
 */
#include "suites.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/kern.h"

enum { GRADS_MAX = 9, SMALL = 130, LARGE = 1000003, GUARD = 8, POOL_STRIDE = 1031 };

/* In the order of the rules' numbers. */
enum { SGD, MOMENTUM, NESTEROV };
static const unsigned rules[] = {SGD, MOMENTUM, NESTEROV};

/* Where the settings of momentum and nesterov are. */
enum { LR, MOM, DAMP };

static struct kern_opt opt_of(unsigned rule)
{
	struct kern_opt opt = {.rule = rule, .value = {0.0371f}};

	if (rule != SGD)
		opt.value[MOM] = 0.87f;
	if (rule == MOMENTUM)
		opt.value[DAMP] = 0.13f;
	return opt;
}

struct arrays {
	float *w, *buf, *grads[GRADS_MAX];
};

/* Normal variables, made once in a process; arrays are copies of different stretches of it. */
static const float *pool(void)
{
	static float values[LARGE + 40 * POOL_STRIDE];

	if (values[0] == 0)
		kern_init_fill(KERN_INIT_NORMAL, 1, 0, 1, 0, values,
			       sizeof(values) / sizeof(values[0]));
	return values;
}

static float *random_array(unsigned which, size_t len, unsigned offset)
{
	size_t bytes = (len + offset + GUARD) * sizeof(float);
	float *a = malloc(bytes);

	ck_assert_ptr_nonnull(a);
	memcpy(a, pool() + which * POOL_STRIDE, bytes);
	return a + offset;
}

/* Every array starts `offset` floats, and a bit of its own more, past malloc's alignment. */
static struct arrays make(size_t len, unsigned n, unsigned offset)
{
	struct arrays a;

	a.w = random_array(1, len, offset);
	a.buf = random_array(2, len, offset ? offset + 1 : 0);
	for (unsigned k = 0; k < n; k++)
		a.grads[k] = random_array(3 + k, len, offset ? (offset + k) % 4 : 0);
	return a;
}

static void drop(struct arrays *a, unsigned n, unsigned offset)
{
	free(a->w - offset);
	free(a->buf - (offset ? offset + 1 : 0));
	for (unsigned k = 0; k < n; k++)
		free(a->grads[k] - (offset ? (offset + k) % 4 : 0));
}

static float ref_mean(float *const *grads, unsigned n, size_t i)
{
	float sum = grads[0][i];

	for (unsigned k = 1; k < n; k++)
		sum = sum + grads[k][i];
	return n == 1 ? sum : sum * (1.0f / (float)n);
}

/* The rules as torch.optim.SGD's documentation states them. */
static void ref_apply(const struct kern_opt *o, float *w, float *buf, float *const *grads,
		      unsigned n, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		float g = ref_mean(grads, n, i), d = g;

		if (o->rule == MOMENTUM) {
			buf[i] = o->value[MOM] * buf[i] + (1.0f - o->value[DAMP]) * g;
			d = buf[i];
		} else if (o->rule == NESTEROV) {
			buf[i] = o->value[MOM] * buf[i] + g;
			d = g + o->value[MOM] * buf[i];
		}
		w[i] = w[i] - o->value[LR] * d;
	}
}

static void apply(const struct kern_opt *o, const struct arrays *a, unsigned n, size_t len)
{
	float *state[] = {a->buf};

	/* Not the first: that one is not dampened. */
	kern_apply_mean(o, 2, a->w, state, (const float *const *)a->grads, n, len);
}

/* Asserts only what is wrong: Check notes each assertion it meets, which is slow by the million. */
static void check_bits(const float *got, const float *want, size_t len, const char *what,
		       const struct kern_opt *o, unsigned n)
{
	for (size_t i = 0; i < len; i++)
		if (memcmp(&got[i], &want[i], sizeof(float)))
			ck_abort_msg("%s, %s, %u gradients, length %zu: %s[%zu] is %a, not %a",
				     kern_isa(), o ? kern_opt_name(o) : "mean", n, len, what, i,
				     (double)got[i], (double)want[i]);
}

/* One call against the reference; the elements past the end must stay as they are. */
static void check_apply(unsigned rule, unsigned n, size_t len, unsigned offset)
{
	struct kern_opt o = opt_of(rule);
	struct arrays a = make(len, n, offset), b = make(len, n, offset);

	apply(&o, &a, n, len);
	ref_apply(&o, b.w, b.buf, b.grads, n, len);
	check_bits(a.w, b.w, len + GUARD, "w", &o, n);
	check_bits(a.buf, b.buf, len + GUARD, "buf", &o, n);
	drop(&a, n, offset);
	drop(&b, n, offset);
}

static void check_mean(unsigned n, size_t len, unsigned offset)
{
	struct arrays a = make(len, n, offset), b = make(len, n, offset);

	kern_mean(a.w, (const float *const *)a.grads, n, len);
	for (size_t i = 0; i < len; i++)
		b.w[i] = ref_mean(b.grads, n, i);
	check_bits(a.w, b.w, len + GUARD, "mean", NULL, n);
	drop(&a, n, offset);
	drop(&b, n, offset);
}

static void small_lengths(void)
{
	for (unsigned n = 1; n <= GRADS_MAX; n++)
		for (size_t len = 0; len <= SMALL; len++) {
			unsigned offset = (unsigned)(len + n) % 4;

			for (unsigned r = 0; r < 3; r++) {
				check_apply(rules[r], n, len, 0);
				check_apply(rules[r], n, len, offset);
			}
			check_mean(n, len, offset);
		}
}

START_TEST(edge_lengths)
{
	each_isa(small_lengths);
}
END_TEST

/* Around one tile and several, and a size beyond the second-level cache. */
static void large_lengths(void)
{
	static const size_t lens[] = {1023, 1024, 1025, 4097, 12289};
	static const unsigned counts[] = {1, 2, 4, 7, 9};

	for (unsigned c = 0; c < 5; c++)
		for (unsigned l = 0; l < 5; l++) {
			for (unsigned r = 0; r < 3; r++)
				check_apply(rules[r], counts[c], lens[l], 1);
			check_mean(counts[c], lens[l], 1);
		}
	for (unsigned r = 0; r < 3; r++)
		check_apply(rules[r], r + 1, LARGE, 1);
}

START_TEST(long_arrays)
{
	each_isa(large_lengths);
}
END_TEST

/* The tests above see a fused multiply-add, or sums in another order, only if these numbers show
 * it: they do. */
START_TEST(numbers_that_tell)
{
	struct arrays a = make(1000, 4, 0);
	unsigned fused = 0, order = 0;

	for (size_t i = 0; i < 1000; i++) {
		float g = a.grads[0][i], lr = 0.0371f;
		float forward = ((g + a.grads[1][i]) + a.grads[2][i]) + a.grads[3][i];
		float pairs = (g + a.grads[1][i]) + (a.grads[2][i] + a.grads[3][i]);

		fused += fmaf(-lr, g, a.w[i]) != a.w[i] - lr * g;
		order += forward != pairs;
	}
	ck_assert_uint_ge(fused, 10);
	ck_assert_uint_ge(order, 100);
	drop(&a, 4, 0);
}
END_TEST

static void merged_first(void)
{
	enum { LEN = 9001 };

	for (unsigned n = 1; n <= GRADS_MAX; n++)
		for (unsigned r = 0; r < 3; r++) {
			struct kern_opt o = opt_of(rules[r]);
			struct arrays a = make(LEN, n, 0), b = make(LEN, n, 0);
			float *mean = random_array(30, LEN, 0), *state[] = {b.buf};
			const float *const one[] = {mean};

			apply(&o, &a, n, LEN);
			kern_mean(mean, (const float *const *)b.grads, n, LEN);
			kern_apply_mean(&o, 2, b.w, state, one, 1, LEN);
			check_bits(a.w, b.w, LEN, "w", &o, n);
			check_bits(a.buf, b.buf, LEN, "buf", &o, n);
			drop(&a, n, 0);
			drop(&b, n, 0);
			free(mean);
		}
}

/* kern.h, invariant 2. */
START_TEST(apply_is_mean_then_apply)
{
	each_isa(merged_first);
}
END_TEST

static void cut_up(void)
{
	enum { LEN = 10007 };

	for (unsigned n = 1; n <= 4; n++)
		for (unsigned r = 0; r < 3; r++) {
			struct kern_opt o = opt_of(rules[r]);
			struct arrays a = make(LEN, n, 0), b = make(LEN, n, 0);

			apply(&o, &a, n, LEN);
			for (size_t at = 0, m = 1; at < LEN; at += m, m = m * 3 + 1) {
				struct arrays part = {b.w + at, b.buf + at, {0}};

				for (unsigned k = 0; k < n; k++)
					part.grads[k] = b.grads[k] + at;
				m = m < LEN - at ? m : LEN - at;
				apply(&o, &part, n, m);
			}
			check_bits(a.w, b.w, LEN, "w", &o, n);
			check_bits(a.buf, b.buf, LEN, "buf", &o, n);
			drop(&a, n, 0);
			drop(&b, n, 0);
		}
}

/* kern.h, invariant 2. */
START_TEST(pieces_are_the_whole)
{
	each_isa(cut_up);
}
END_TEST

/* What float arithmetic may lose against double: each operation half a unit in the last place of
 * what it worked on. */
START_TEST(against_double)
{
	enum { LEN = 5000 };

	for (unsigned n = 1; n <= GRADS_MAX; n++)
		for (unsigned r = 0; r < 3; r++) {
			struct kern_opt o = opt_of(rules[r]);
			struct arrays a = make(LEN, n, 0), b = make(LEN, n, 0);

			apply(&o, &a, n, LEN);
			for (size_t i = 0; i < LEN; i++) {
				double g = 0, size = 0, buf = b.buf[i], d, w;

				for (unsigned k = 0; k < n; k++) {
					g += (double)b.grads[k][i] / n;
					size += fabs((double)b.grads[k][i]) / n;
				}
				size += fabs(buf) + fabs((double)b.w[i]);
				buf = o.value[MOM] * buf + (1.0 - (double)o.value[DAMP]) * g;
				d = o.rule == SGD        ? g
				    : o.rule == MOMENTUM ? buf
							 : g + o.value[MOM] * buf;
				w = b.w[i] - o.value[LR] * d;
				ck_assert_double_eq_tol(a.w[i], w, size * FLT_EPSILON * (n + 2));
				if (o.rule != SGD)
					ck_assert_double_eq_tol(a.buf[i], buf,
								size * FLT_EPSILON * (n + 2));
			}
			drop(&a, n, 0);
			drop(&b, n, 0);
		}
}
END_TEST

/* Three steps with a gradient of 2, by hand: all numbers are exact in float. */
struct by_hand {
	struct kern_opt opt;
	float w[3], buf[3];
};

static const struct by_hand by_hand[] = {
    {{.rule = SGD, .value = {0.5f}}, {9, 8, 7}, {0, 0, 0}},
    {{.rule = MOMENTUM, .value = {0.5f, 0.5f}}, {9, 7.5f, 5.75f}, {2, 3, 3.5f}},
    {{.rule = MOMENTUM, .value = {0.5f, 0.5f, 0.25f}}, {9, 7.75f, 6.375f}, {2, 2.5f, 2.75f}},
    {{.rule = NESTEROV, .value = {0.5f, 0.5f}}, {8.5f, 6.75f, 4.875f}, {2, 3, 3.5f}},
};

START_TEST(small_cases)
{
	const struct by_hand *c = &by_hand[_i];

	for (unsigned n = 1; n <= 4; n++) {
		/* 2 is their mean for each n. */
		static const float pushed[4][4] = {{2}, {1, 3}, {0, 2, 4}, {-1, 5, 3, 1}};
		float w = 10, buf = 0, *state[] = {&buf};
		const float *grads[4];

		for (unsigned k = 0; k < n; k++)
			grads[k] = &pushed[n - 1][k];
		for (unsigned step = 0; step < 3; step++) {
			kern_apply_mean(&c->opt, step + 1, &w, state, grads, n, 1);
			/* 1/3 isn't exact in float, so three gradients may be a little off. */
			ck_assert_float_eq_tol(w, c->w[step], n == 3 ? 2e-6f : 1e-30f);
			ck_assert_float_eq_tol(buf, c->buf[step], n == 3 ? 2e-6f : 1e-30f);
		}
	}
}
END_TEST

START_TEST(no_state_for_sgd)
{
	const struct kern_opt o = {.rule = SGD, .value = {1}};
	const float g[] = {1, 2, 3};
	const float *const grads[] = {g, g, g};
	float w[] = {3, 3, 3};

	for (unsigned n = 1; n <= 2; n++)
		kern_apply_mean(&o, 1, w, NULL, grads, n, 3);
	ck_assert_float_eq(w[0], 1);
	ck_assert_float_eq(w[1], -1);
	ck_assert_float_eq(w[2], -3);
	kern_apply_mean(&o, 1, w, NULL, grads, 3, 0);
	ck_assert_float_eq(w[0], 1);
}
END_TEST

static void odd_values(void)
{
	enum { LEN = 37 };
	const struct kern_opt o = {.rule = SGD, .value = {1}};
	float w[LEN] = {0}, g[LEN];
	const float *const grads[] = {g};

	for (unsigned i = 0; i < LEN; i++)
		g[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : 1e-40f;
	kern_apply_mean(&o, 1, w, NULL, grads, 1, LEN);
	for (unsigned i = 0; i < LEN; i++) {
		if (i % 3 == 0)
			ck_assert_float_nan(w[i]);
		else if (i % 3 == 1)
			ck_assert(w[i] == -INFINITY);
		else /* Denormals aren't flushed. */
			ck_assert(w[i] == -1e-40f);
	}
}

START_TEST(nan_infinity_denormal)
{
	each_isa(odd_values);
}
END_TEST

Suite *loops_suite(void)
{
	Suite *suite = suite_create("loops");
	TCase *tc = tcase_create("apply");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, edge_lengths);
	tcase_add_test(tc, long_arrays);
	tcase_add_test(tc, numbers_that_tell);
	tcase_add_test(tc, apply_is_mean_then_apply);
	tcase_add_test(tc, pieces_are_the_whole);
	tcase_add_test(tc, against_double);
	tcase_add_loop_test(tc, small_cases, 0, sizeof(by_hand) / sizeof(by_hand[0]));
	tcase_add_test(tc, no_state_for_sgd);
	tcase_add_test(tc, nan_infinity_denormal);
	suite_add_tcase(suite, tc);
	return suite;
}

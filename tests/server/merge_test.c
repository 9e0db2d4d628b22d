/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging (server/merge.h): what each trainer's gradient is multiplied by.
 */
#include "server/merge.h"

#include "suite.h"

static const float grad[3][2] = {{1, -3}, {2, 5}, {0.5f, 7}};

/* Merges n gradients with these weights and scales; gives the first element. */
static float merged(struct merge *m, enum wire_reduce reduce, unsigned n, const float *weight,
		    const float *scale)
{
	float out[2];

	merge_begin(m, reduce, KERN_F32);
	for (unsigned i = 0; i < n; i++) {
		struct slot slot = {.data = grad[i], .weight = weight[i], .scale = scale[i]};

		merge_slot(m, &slot);
	}
	merge_end(m);
	ck_assert_uint_eq(m->grads.n, n);
	kern_merge(&m->grads, out, 2);
	return out[0];
}

static const float ones[3] = {1, 1, 1}, weights[3] = {3, 1, 4}, scales[3] = {1, 0.25f, 8};

START_TEST(the_mean)
{
	struct merge m;

	ck_assert(merged(&m, WIRE_MEAN, 1, ones, ones) == 1);
	ck_assert(merged(&m, WIRE_MEAN, 3, ones, ones) == 3.5f * (1.0f / 3));
	/* Nothing is multiplied by one. */
	ck_assert_ptr_null(m.grads.factor);
	/* Samples are of no account. */
	ck_assert(merged(&m, WIRE_MEAN, 3, weights, ones) == 3.5f * (1.0f / 3));
	ck_assert_ptr_null(m.grads.factor);
}
END_TEST

START_TEST(the_sum)
{
	struct merge m;

	ck_assert(merged(&m, WIRE_SUM, 3, weights, ones) == 3.5f);
	ck_assert(m.grads.scale == 1);
	ck_assert_ptr_null(m.grads.factor);
}
END_TEST

START_TEST(weighted)
{
	struct merge m;

	ck_assert(merged(&m, WIRE_WEIGHTED, 3, ones, ones) == 3.5f * (1.0f / 3));
	ck_assert(merged(&m, WIRE_WEIGHTED, 3, weights, ones) == (3 * 1 + 2 + 4 * 0.5f) / 8);
	ck_assert(merged(&m, WIRE_WEIGHTED, 2, weights, ones) == (3 * 1 + 2) / 4.0f);
}
END_TEST

START_TEST(scaled)
{
	struct merge m;

	ck_assert(merged(&m, WIRE_SUM, 3, ones, scales) == 1 + 2 * 4 + 0.5f / 8);
	ck_assert(merged(&m, WIRE_MEAN, 2, ones, scales) == (1 + 2 * 4) / 2.0f);
	ck_assert(merged(&m, WIRE_WEIGHTED, 3, weights, scales) == (3 + 8 + 4 * 0.5f / 8) / 8);
}
END_TEST

/* At the limits of what a head may say (proto/layout.h) all stays finite. */
START_TEST(the_limits)
{
	static const float ends[] = {0x1p-60f, 0x1p60f};

	for (int i = 0; i < 4; i++) {
		const float weight[3] = {ends[i & 1], ends[i & 1], ends[i & 1]};
		const float scale[3] = {ends[i >> 1], ends[i >> 1], ends[i >> 1]};
		struct merge m;

		ck_assert(layout_factor_ok(weight[0]) && layout_factor_ok(scale[0]));
		ck_assert(merged(&m, WIRE_WEIGHTED, 3, weight, scale) ==
			  (1 / scale[0] + 2 / scale[0] + 0.5f / scale[0]) * (1.0f / 3));
	}
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("merge");

	tcase_add_test(t, the_mean);
	tcase_add_test(t, the_sum);
	tcase_add_test(t, weighted);
	tcase_add_test(t, scaled);
	tcase_add_test(t, the_limits);
	return run_suite("merge", t);
}

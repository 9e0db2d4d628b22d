/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulation (trainer/sum.h), and the number formats that it goes through (trainer/half.h).
 */
#include <math.h>

#include "kernels/kern.h"
#include "run.h"
#include "trainer/half.h"
#include "trainer/sum.h"

#include <check.h>

/* ---- formats --------------------------------------------------------------------------------- */

static const enum wire_dtype types[] = {WIRE_BF16, WIRE_F16, WIRE_F32};

static bool same(float a, float b)
{
	return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

/* Room for an element of any type: the compiler looks at all of them. */
union element {
	uint16_t half;
	float f;
};

static void check_narrow(enum wire_dtype type, float f)
{
	union element mine = {0}, theirs = {0};
	float a, b;

	half_narrow(type, f, &mine);
	kern_narrow((enum kern_dtype)type, &f, &theirs, 1);
	kern_widen((enum kern_dtype)type, &mine, &a, 1);
	kern_widen((enum kern_dtype)type, &theirs, &b, 1);
	ck_assert_msg(mine.half == theirs.half || (isnan(f) && isnan(a) && isnan(b)),
		      "type %d: %.9g is %04x, not %04x", (int)type, (double)f, mine.half,
		      theirs.half);
}

START_TEST(every_half)
{
	enum wire_dtype type = types[_i];

	for (uint32_t h = 0; h < 65536; h++) {
		union element half = {.half = (uint16_t)h}, back = {0};
		float f, mine = half_widen(type, &half);
		float next;

		kern_widen((enum kern_dtype)type, &half, &f, 1);
		ck_assert_msg(same(mine, f), "%04x is %.9g, not %.9g", h, (double)mine, (double)f);
		half_narrow(type, mine, &back);
		ck_assert_msg(back.half == half.half || isnan(f), "%04x comes back as %04x", h,
			      back.half);
		/* What lies between it and the next one: the middle, and beside the middle. */
		half.half++;
		next = half_widen(type, &half);
		if (!isfinite(f) || !isfinite(next))
			continue;
		float middle = (float)(((double)f + (double)next) / 2);
		check_narrow(type, middle);
		check_narrow(type, nextafterf(middle, INFINITY));
		check_narrow(type, nextafterf(middle, -INFINITY));
	}
}
END_TEST

START_TEST(any_float)
{
	uint64_t x = 88172645463325252ULL;

	for (int i = 0; i < 300000; i++) {
		uint32_t bits;
		float f;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		bits = (uint32_t)(x >> 32);
		memcpy(&f, &bits, sizeof(f));
		check_narrow(WIRE_BF16, f);
		check_narrow(WIRE_F16, f);
	}
	check_narrow(WIRE_F16, 65519.996f);
	check_narrow(WIRE_F16, 65520); /* the first that is too large */
	check_narrow(WIRE_BF16, 3.4028235e38f);
}
END_TEST

/* ---- sums ------------------------------------------------------------------------------------ */

enum { ELEMS = 7 };

struct rig {
	gs_param p;
	float sum[ELEMS], slot[ELEMS];
};

static void up(struct rig *r, enum wire_dtype type, bool sum)
{
	*r = (struct rig){.p = {.elems = ELEMS, .accumulate = 3, .accumulate_sum = sum}};
	r->p.wire.grad_type = type;
	r->p.grad_size = type == WIRE_F32 ? 4 : 2;
	r->p.sum = r->sum;
}

/* All elements are f. */
static void add(struct rig *r, float f, float scale)
{
	uint8_t grad[ELEMS * sizeof(float)];

	for (int i = 0; i < ELEMS; i++)
		half_narrow(r->p.wire.grad_type, f, grad + i * r->p.grad_size);
	sum_add(&r->p, grad, scale);
}

static void takes(struct rig *r, float f)
{
	sum_write(&r->p, NULL, 1, r->slot);
	r->p.accumulated = 0;
	for (int i = 0; i < ELEMS; i++) {
		float is = half_widen(r->p.wire.grad_type, (uint8_t *)r->slot + i * r->p.grad_size);

		ck_assert_msg(is == f, "element %d is %.9g, not %.9g", i, (double)is, (double)f);
	}
}

START_TEST(sums_and_means)
{
	struct rig r;

	up(&r, types[_i], true);
	add(&r, 1, 1);
	add(&r, -4, 1);
	ck_assert_uint_eq(r.p.accumulated, 2);
	add(&r, 0.5f, 1);
	takes(&r, -2.5f);
	add(&r, 3, 1); /* anew */
	takes(&r, 3);
	up(&r, types[_i], false);
	for (int k = 0; k < 3; k++)
		add(&r, 1, 1);
	takes(&r, 3 * (1.0f / 3));
	add(&r, 1, 1);
	add(&r, 2, 1);
	takes(&r, 1.5f);
}
END_TEST

/* The sum is of float: 256 ones more are lost in each 16-bit type, but not here. */
START_TEST(the_sum_is_of_float)
{
	struct rig r;

	up(&r, types[_i], true);
	add(&r, 2048, 1);
	for (int k = 0; k < 256; k++)
		add(&r, 1, 1);
	takes(&r, 2304);
}
END_TEST

START_TEST(it_is_as_large_as_its_first)
{
	struct rig r;

	up(&r, types[_i], true);
	add(&r, 8, 4);
	add(&r, 3, 1);
	add(&r, 64, 16);
	ck_assert(r.p.sum_scale == 4);
	takes(&r, 8 + 12 + 16);
	add(&r, 3, 0.5f);
	ck_assert(r.p.sum_scale == 0.5f);
	takes(&r, 3);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sum");
	TCase *t = tcase_create("sum");
	SRunner *runner;

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, every_half, 0, 2);
	tcase_add_test(t, any_float);
	tcase_add_loop_test(t, sums_and_means, 0, 3);
	tcase_add_loop_test(t, the_sum_is_of_float, 0, 3);
	tcase_add_loop_test(t, it_is_as_large_as_its_first, 0, 3);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	return run_all(runner);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulation: several pushes are one gradient for the server. The weights begin at 0, lr is 1.
 */
#include "cases.h"
#include "harness.h"
#include "kernels/kern.h"

enum { ELEMS = 3 * 257 };

static float part[4][ELEMS];

static void make_parts(enum gs_dtype type)
{
	uint64_t rng = 5;

	for (int k = 0; k < 4; k++)
		for (int i = 0; i < ELEMS; i++) {
			uint16_t half;
			float x = (float)(int32_t)mix64(rng++) * 0x1p-31f;

			if (type != GS_F32) {
				kern_narrow((enum kern_dtype)type, &x, &half, 1);
				kern_widen((enum kern_dtype)type, &half, &x, 1);
			}
			part[k][i] = x;
		}
}

/* Of parts from .. from + n - 1, as it travels. */
static void one_gradient(enum gs_dtype type, bool sum, int from, int n, float *out)
{
	uint16_t half[ELEMS];

	for (int i = 0; i < ELEMS; i++) {
		out[i] = part[from][i];
		for (int k = 1; k < n; k++)
			out[i] += part[from + k][i];
		if (!sum)
			out[i] *= 1.0f / (float)n;
	}
	if (type != GS_F32) {
		kern_narrow((enum kern_dtype)type, out, half, ELEMS);
		kern_widen((enum kern_dtype)type, half, out, ELEMS);
	}
}

struct rig {
	struct bed bed;
	gs_trainer *t;
	gs_param *p;
	enum gs_dtype type;
	bool sum;
	float expect[ELEMS];
	uint64_t gradients;
};

static gs_param *declare(gs_trainer *t, const struct rig *r)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;

	d.name = "w";
	d.ndim = 2;
	d.shape[0] = 3;
	d.shape[1] = 257;
	gs_setting(&d, "lr", 1);
	d.grad_dtype = r->type;
	d.accumulate = 3;
	d.accumulate_sum = r->sum;
	ok(gs_declare(t, &d, &p));
	return p;
}

static void up(struct rig *r, enum srv_mode mode, int i)
{
	struct srv_options opt = bed_options(mode == SRV_SYNC ? 1 : 2, mode);

	*r = (struct rig){.type = (enum gs_dtype)(i % 3), .sum = i / 3};
	make_parts(r->type);
	opt.block_kib = 1;
	bed_start(&r->bed, &opt);
	r->t = connect_as(r->bed.uri, 0);
	r->p = declare(r->t, r);
	ok(gs_start(r->t));
}

/* Part k, from memory of its own or from the library's. */
static void push(struct rig *r, int k)
{
	float own[ELEMS];
	void *buf = own;

	if (k % 2)
		ok(gs_grad_buffer(r->t, r->p, &buf));
	kern_narrow((enum kern_dtype)r->type, part[k], buf, ELEMS);
	ok(gs_push(r->t, r->p, buf));
}

static void expect(struct rig *r, int from, int n)
{
	float g[ELEMS];

	one_gradient(r->type, r->sum, from, n, g);
	for (int i = 0; i < ELEMS; i++)
		r->expect[i] -= g[i];
	r->gradients += 3; /* blocks */
}

static void check_by(struct rig *r, gs_trainer *t, gs_param *p)
{
	float w[ELEMS];

	ok(gs_pull(t, p, GS_CONSISTENT, w));
	for (int i = 0; i < ELEMS; i++)
		must(w[i] == r->expect[i], "element %d is %.9g, not %.9g", i, (double)w[i],
		     (double)r->expect[i]);
	must(bed_stats(&r->bed).gradients == r->gradients, "%llu gradients came, not %llu",
	     (unsigned long long)bed_stats(&r->bed).gradients, (unsigned long long)r->gradients);
}

static void check(struct rig *r)
{
	check_by(r, r->t, r->p);
}

START_TEST(in_steps)
{
	struct rig r;
	void *buf;

	if (left_out(_i, 2))
		return;
	up(&r, SRV_SYNC, _i);
	/* Three are one, and a fourth is too many. */
	for (int k = 0; k < 3; k++)
		push(&r, k);
	fails(gs_push(r.t, r.p, part[3]), EALREADY, "\"w\"", "step 1");
	fails(gs_grad_buffer(r.t, r.p, &buf), EALREADY, "\"w\"");
	ok(gs_step_end(r.t));
	expect(&r, 0, 3);
	check(&r);
	/* A step that ends early sends what there is. */
	push(&r, 1);
	push(&r, 2);
	fails(gs_wait_applied(r.t, r.p), EDEADLK, "step 2");
	ok(gs_step_post(r.t));
	fails(gs_push(r.t, r.p, part[3]), EALREADY, "step 2");
	ok(gs_wait_applied(r.t, r.p));
	ok(gs_step_wait(r.t));
	expect(&r, 1, 2);
	check(&r);
	/* Nothing is left for the next. */
	ok(gs_step_end(r.t));
	check(&r);
	push(&r, 3);
	ok(gs_step_end(r.t));
	expect(&r, 3, 1);
	check(&r);
	leave(r.t);
	bed_stop(&r.bed);
}
END_TEST

START_TEST(without_steps)
{
	gs_trainer *other;
	gs_param *p;
	struct rig r;

	if (left_out(_i, 2))
		return;
	up(&r, SRV_ASYNC, _i);
	push(&r, 0);
	push(&r, 1);
	check(&r); /* nothing was sent */
	push(&r, 2);
	ok(gs_wait_applied(r.t, r.p));
	expect(&r, 0, 3);
	check(&r);
	push(&r, 3);
	ok(gs_wait_applied(r.t, r.p));
	expect(&r, 3, 1);
	check(&r);
	ok(gs_wait_applied(r.t, r.p));
	check(&r);
	push(&r, 1);
	push(&r, 2);
	other = connect_as(r.bed.uri, 1);
	p = declare(other, &r);
	ok(gs_start(other));
	leave(r.t);
	expect(&r, 1, 2);
	check_by(&r, other, p);
	leave(other);
	bed_stop(&r.bed);
}
END_TEST

/* In sync mode too, what was pushed counts though its trainer leaves. */
START_TEST(who_leaves_sends_it)
{
	struct rig r;
	gs_param *p;
	gs_trainer *t;

	up(&r, SRV_SYNC, _i);
	push(&r, 1);
	push(&r, 2);
	leave(r.t);
	expect(&r, 1, 2);
	t = connect_as(r.bed.uri, 0);
	p = declare(t, &r);
	ok(gs_start(t));
	check_by(&r, t, p);
	leave(t);
	bed_stop(&r.bed);
}
END_TEST

/* Each push is divided by the scale that held when it was pushed. */
START_TEST(a_scale_that_changes)
{
	static const float scale[] = {4, 64, 0.5f, 8};
	struct rig r;
	float g[ELEMS];

	up(&r, _i ? SRV_ASYNC : SRV_SYNC, 0);
	for (int k = 0; k < 3; k++) {
		ok(gs_set_grad_scale(r.t, (double)scale[k]));
		for (int i = 0; i < ELEMS; i++)
			g[i] = part[k][i] * scale[k];
		ok(gs_push(r.t, r.p, g));
		ok(gs_set_grad_scale(r.t, 32)); /* of what comes, not of what was pushed */
	}
	if (_i)
		ok(gs_wait_applied(r.t, r.p));
	else
		ok(gs_step_end(r.t));
	expect(&r, 0, 3);
	check(&r);
	leave(r.t);
	bed_stop(&r.bed);
}
END_TEST

static void *end_step(void *arg)
{
	gs_trainer *t = arg;

	return (void *)(intptr_t)gs_step_post(t);
}

/* One of two threads ends the step, and what was accumulated is sent once, before the barrier. */
START_TEST(two_end_the_step)
{
	struct rig r;

	up(&r, SRV_SYNC, 0);
	for (uint32_t n = 0; n < scaled(200, 10); n++) {
		pthread_t thread;
		void *theirs;
		int mine;

		push(&r, 0);
		must(pthread_create(&thread, NULL, end_step, r.t) == 0, "thread");
		mine = gs_step_post(r.t);
		pthread_join(thread, &theirs);
		must((mine == 0) != ((intptr_t)theirs == 0), "both, or none");
		ok(gs_step_wait(r.t));
		expect(&r, 0, 1);
	}
	check(&r);
	leave(r.t);
	must(bed_stats(&r.bed).violations == 0, "violations");
	bed_stop(&r.bed);
}
END_TEST

TCase *accumulate_case(void)
{
	TCase *t = e2e_case("accumulate");

	tcase_add_loop_test(t, in_steps, 0, 6);
	tcase_add_loop_test(t, without_steps, 0, 6);
	tcase_add_loop_test(t, who_leaves_sends_it, 0, 3);
	tcase_add_loop_test(t, a_scale_that_changes, 0, 2);
	tcase_add_test(t, two_end_the_step);
	return t;
}

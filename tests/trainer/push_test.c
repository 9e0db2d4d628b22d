/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients, credits, steps and leaving.
 */
#include "fake.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

static void ramp(float *x, int n, float from)
{
	for (int i = 0; i < n; i++)
		x[i] = from + (float)i;
}

static void serve(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

/* ---- sync ------------------------------------------------------------------------------------ */

static void check_one_step(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	for (uint32_t b = 0; b < BLOCKS; b++) {
		struct imm imm = fake_expect_imm(f, IMM_GRAD);

		ck_assert_uint_eq(imm.block, b);
		ck_assert_uint_eq(imm.slot, 0);
		ck_assert(!imm.notify);
		float *g = fake_slot(f, b, 0);
		for (uint64_t i = 0; i < fake_block_elems(f, b); i++)
			ck_assert_float_eq(g[i],
					   b == B_BLOCK ? 100 + (float)i : (float)(b * 28 + i));
	}
	struct imm imm = fake_expect_imm(f, IMM_BARRIER);
	ck_assert_uint_eq(imm.step, 1);
	fake_take_barrier(f);
	fake_gate(f, 1);
	fake_release(f, 1);
	imm = fake_expect_imm(f, IMM_GRAD);
	ck_assert_uint_eq(imm.block, 0);
	ck_assert_uint_eq(imm.slot, 1); /* the ring goes on */
	fake_expect_closed(f);
}

START_TEST(a_sync_step)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS], b[B_ELEMS], *buf;
	struct gs_info info;

	ramp(w, W_ELEMS, 0);
	ramp(b, B_ELEMS, 100);
	rig_up(&r, WIRE_SYNC, check_one_step);
	ck_fails(gs_step_wait(r.t), EDEADLK, "step 1 has no barrier");
	ck_ok(gs_wait_applied(r.t, r.w)); /* nothing was pushed */
	ck_ok(gs_push(r.t, r.w, w));
	ck_fails(gs_push(r.t, r.w, w), EALREADY, "parameter \"w\" was pushed in step 1 already");
	ck_fails(gs_grad_buffer(r.t, r.w, (void **)&buf), EALREADY, "pushed in step 1 already");
	ck_fails(gs_wait_applied(r.t, r.w), EDEADLK, "call gs_step_post first");
	ck_ok(gs_push(r.t, r.b, b));
	ck_ok(gs_step_post(r.t));
	ck_fails(gs_step_post(r.t), EALREADY, "barrier of step 1 was posted already");
	ck_fails(gs_step_end(r.t), EALREADY, "barrier of step 1 was posted already");
	ck_fails(gs_push(r.t, r.b, b), EALREADY, "call gs_step_wait first");
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.step, 1);
	atomic_store(&r.f.allow, 1);
	ck_ok(gs_wait_applied(r.t, r.w));
	ck_ok(gs_step_wait(r.t));
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.step, 2);
	ck_ok(gs_wait_applied(r.t, r.w));
	ck_fails(gs_step_wait(r.t), EDEADLK, "step 2 has no barrier");
	ck_ok(gs_push(r.t, r.w, w));
	ck_fails(gs_wait_applied(r.t, r.w), EDEADLK, "step 2 has no barrier");
	ck_ok(gs_wait_applied(r.t, r.b)); /* that one was not */
	usleep(20000);
	rig_down(&r);
}
END_TEST

START_TEST(many_sync_steps)
{
	struct rig r = {.f = {.slots = 1}};
	float w[W_ELEMS], b[B_ELEMS] = {1, 1, 1}, *buf;

	rig_up(&r, WIRE_SYNC, serve);
	for (int step = 1; step <= 100; step++) {
		ck_ok(gs_grad_buffer(r.t, r.w, (void **)&buf));
		for (int i = 0; i < W_ELEMS; i++)
			buf[i] = -2;
		ck_ok(gs_push(r.t, r.w, buf));
		if (step % 2)
			ck_ok(gs_push(r.t, r.b, b));
		ck_ok(gs_step_end(r.t));
		ck_ok(gs_pull(r.t, r.w, GS_RELAXED, w));
		ck_ok(gs_pull(r.t, r.b, GS_RELAXED, b));
		ck_assert_float_eq(w[W_ELEMS - 1], (float)(2 * step));
		ck_assert_float_eq(b[2], -(float)((step + 1) / 2));
		b[0] = b[1] = b[2] = 1;
	}
	ck_ok(gs_leave(r.t));
	rig_down(&r);
}
END_TEST

/* The release may be seen in memory before its immediate is polled. */
static void release_late(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_BARRIER);
	fake_word(f, 0, 1);
	fake_imm(f, imm_block(IMM_APPLIED, 0, 0, false), layout_credit_off(0), 0); /* wakes */
	fake_expect_imm(f, IMM_BARRIER);
	fake_release(f, 1); /* of the step before; the word goes back and forth, both are fine */
	fake_release(f, 2);
	fake_expect_closed(f);
}

START_TEST(a_late_release)
{
	struct rig r = {.f = {.mode = 0}};

	rig_up(&r, WIRE_SYNC, release_late);
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_step_end(r.t));
	rig_down(&r);
}
END_TEST

/* ---- async ----------------------------------------------------------------------------------- */

START_TEST(no_steps_in_async_mode)
{
	struct rig r = {.f = {.mode = 0}};

	rig_up(&r, WIRE_ASYNC, serve);
	ck_fails(gs_step_post(r.t), EPERM, "no steps in async mode");
	ck_fails(gs_step_wait(r.t), EPERM, "no steps in async mode");
	ck_fails(gs_step_end(r.t), EPERM, "no steps in async mode");
	rig_down(&r);
}
END_TEST

static void check_async(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	for (uint32_t push = 0; push < 3; push++) {
		for (uint32_t b = 0; b < W_BLOCKS; b++) {
			struct imm imm = fake_expect_imm(f, IMM_GRAD);

			ck_assert_uint_eq(imm.block, b);
			ck_assert_uint_eq(imm.slot, push % 2);
			ck_assert_int_eq(imm.notify, b == W_BLOCKS - 1);
			atomic_store(&f->seen, (int)push + 1);
			fake_credit(f, b, push + 1, imm.notify);
		}
	}
	fake_serve(f);
}

START_TEST(async_pushes)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS] = {0};

	rig_up(&r, WIRE_ASYNC, check_async);
	for (int i = 0; i < 3; i++)
		ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_wait_applied(r.t, r.w));
	ck_assert_int_eq(atomic_load(&r.f.seen), 3);
	rig_down(&r);
}
END_TEST

/* Nothing but words of the mailbox: b's when somebody may wait for w's, and w's behind it. */
static void bare_credits(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	for (uint32_t b = 0; b < BLOCKS; b++)
		ck_assert(!fake_expect_imm(f, IMM_GRAD).notify);
	fake_gate(f, 1);
	usleep(20000);
	fake_credit(f, B_BLOCK, 1, false);
	fake_gate(f, 2);
	for (uint32_t b = W_BLOCKS; b > 0; b--)
		fake_credit(f, b - 1, 1, false);
	fake_serve(f);
}

struct waiter {
	struct rig *r;
	gs_param *p;
};

static void *wait_for_it(void *arg)
{
	struct waiter *w = arg;

	ck_assert_int_eq(gs_wait_applied(w->r->t, w->p), 0);
	return NULL;
}

/* Of two threads that wait one polls, and it may be either. */
START_TEST(who_never_sleeps_sees_credits_without_an_event)
{
	struct rig r = {.f = {.mode = WIRE_ASYNC}};
	struct waiter other = {.r = &r};
	float w[W_ELEMS] = {0};
	pthread_t thread;

	fake_start(&r.f, bare_credits);
	struct gs_options opt = rig_options(&r);
	opt.spin_us = GS_SPIN_FOREVER;
	opt.keepalive_ms = 0; /* nor does anything else come */
	ck_ok(gs_connect(&opt, &r.t));
	rig_declare(&r, NULL);
	ck_ok(gs_start(r.t));
	ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_push(r.t, r.b, w));
	other.p = r.w;
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_it, &other), 0);
	if (_i)
		usleep(10000);
	atomic_store(&r.f.allow, 1);
	ck_ok(gs_wait_applied(r.t, r.b));
	atomic_store(&r.f.allow, 2);
	pthread_join(thread, NULL);
	ck_ok(gs_wait_applied(r.t, r.w));
	rig_down(&r);
}
END_TEST

/* Credits come one by one, as the test allows them. */
static void credits_on_demand(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	for (int i = 0; i < 2 * W_BLOCKS; i++)
		fake_expect_imm(f, IMM_GRAD);
	for (int b = 0; b < W_BLOCKS; b++) {
		fake_gate(f, b + 1);
		fake_credit(f, (uint32_t)(W_BLOCKS - 1 - b), 1, true);
	}
	for (int i = 0; i < W_BLOCKS; i++)
		fake_expect_imm(f, IMM_GRAD);
	fake_expect_closed(f);
}

struct pusher {
	struct rig *r;
	atomic_int done;
};

static void *push_third(void *arg)
{
	struct pusher *p = arg;
	float w[W_ELEMS] = {0};

	ck_assert_int_eq(gs_push(p->r->t, p->r->w, w), 0);
	atomic_store(&p->done, 1);
	return NULL;
}

START_TEST(a_push_waits_for_every_block)
{
	struct rig r = {.f = {.mode = 0}};
	struct pusher p = {.r = &r};
	float w[W_ELEMS] = {0}, *buf;
	pthread_t thread;

	rig_up(&r, WIRE_ASYNC, credits_on_demand);
	ck_ok(gs_grad_buffer(r.t, r.w, (void **)&buf)); /* there is a slot: no wait */
	ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_push(r.t, r.w, w));
	pthread_create(&thread, NULL, push_third, &p);
	for (int b = 0; b < W_BLOCKS; b++) {
		usleep(30000);
		ck_assert_int_eq(atomic_load(&p.done), 0);
		/* Others are not held up. */
		ck_ok(gs_pull(r.t, r.b, GS_RELAXED, w));
		atomic_store(&r.f.allow, b + 1);
	}
	pthread_join(thread, NULL);
	ck_assert_int_eq(atomic_load(&p.done), 1);
	rig_down(&r);
}
END_TEST

START_TEST(the_buffer_is_the_slot)
{
	struct rig r = {.f = {.mode = 0}};
	float *first, *second, *again, w[W_ELEMS];

	rig_up(&r, WIRE_ASYNC, serve);
	ck_ok(gs_grad_buffer(r.t, r.w, (void **)&first));
	ck_assert_uint_eq((uintptr_t)first % 64, 0);
	ck_ok(gs_grad_buffer(r.t, r.w, (void **)&again));
	ck_assert_ptr_eq(first, again);
	ramp(first, W_ELEMS, 1);
	ck_ok(gs_push(r.t, r.w, first));
	ck_ok(gs_grad_buffer(r.t, r.w, (void **)&second));
	ck_assert_ptr_ne(first, second);
	ck_ok(gs_wait_applied(r.t, r.w));
	ck_ok(gs_pull(r.t, r.w, GS_RELAXED, w));
	for (int i = 0; i < W_ELEMS; i++)
		ck_assert_float_eq(w[i], -(float)(1 + i));
	/* A buffer that is not the next one is memory like any other. */
	ramp(first, W_ELEMS, 1);
	ck_ok(gs_push(r.t, r.w, first));
	ck_ok(gs_wait_applied(r.t, r.w));
	ck_ok(gs_pull(r.t, r.w, GS_RELAXED, w));
	for (int i = 0; i < W_ELEMS; i++)
		ck_assert_float_eq(w[i], -(float)(2 + 2 * i));
	rig_down(&r);
}
END_TEST

enum { MANY = 28 * 400 + 5 }; /* 401 blocks: six times what may be under way */

static gs_param *declare_many(struct rig *r)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;

	d.name = "many";
	d.ndim = 1;
	d.shape[0] = MANY;
	ck_ok(gs_declare(r->t, &d, &p));
	return p;
}

START_TEST(more_blocks_than_room)
{
	static float g[MANY], w[MANY];
	struct rig r = {.f = {.mode = WIRE_ASYNC}};

	fake_start(&r.f, serve);
	ck_ok(rig_connect(&r));
	gs_param *p = declare_many(&r);
	ck_ok(gs_start(r.t));
	for (int i = 0; i < MANY; i++)
		g[i] = (float)-i;
	for (int round = 1; round <= 20; round++) {
		ck_ok(gs_push(r.t, p, g));
		if (round % 5)
			continue;
		ck_ok(gs_pull(r.t, p, GS_ORDERED, w));
		for (int i = 0; i < MANY; i++)
			ck_assert_float_eq(w[i], (float)(round * i));
	}
	ck_ok(gs_leave(r.t));
	rig_down(&r);
}
END_TEST

/* ---- wrong arguments ------------------------------------------------------------------------- */

START_TEST(wrong_arguments)
{
	struct rig r = {.f = {.mode = 0}}, other = {.f = {.mode = 0}};
	float x[W_ELEMS] = {0}, *dst = x;
	const float *view;
	uint64_t version;

	rig_up(&r, WIRE_ASYNC, serve);
	rig_up(&other, WIRE_ASYNC, serve);
	ck_fails(gs_push(r.t, r.w, NULL), EINVAL, "no gradient");
	ck_fails(gs_push(r.t, NULL, x), EINVAL, "not one of this trainer's");
	ck_fails(gs_push(r.t, other.w, x), EINVAL, "not one of this trainer's");
	ck_fails(gs_grad_buffer(r.t, r.w, NULL), EINVAL, "NULL");
	ck_fails(gs_grad_buffer(r.t, NULL, (void **)&dst), EINVAL, "not one of this trainer's");
	ck_fails(gs_wait_applied(r.t, NULL), EINVAL, "not one of this trainer's");
	ck_fails(gs_pull(r.t, NULL, GS_RELAXED, x), EINVAL, "not one of this trainer's");
	ck_fails(gs_pull(r.t, other.w, GS_ORDERED, x), EINVAL, "not one of this trainer's");
	ck_fails(gs_pull(r.t, r.w, GS_RELAXED, NULL), EINVAL, "destination 0 is NULL");
	ck_fails(gs_pull(r.t, r.w, (enum gs_consistency)9, x), EINVAL, "consistency 9");
	ck_fails(gs_pull_many(r.t, NULL, (void **)&dst, 1, GS_RELAXED), EINVAL, "NULL");
	ck_ok(gs_pull_many(r.t, NULL, NULL, 0, GS_RELAXED));
	ck_fails(gs_weights_view(r.t, r.w, NULL), EINVAL, "NULL");
	ck_fails(gs_weights_view(r.t, NULL, (const void **)&view), EINVAL, "not one of");
	ck_fails(gs_block_version(r.t, r.w, W_ELEMS, &version), EINVAL, "element 70; \"w\" has 70");
	ck_fails(gs_block_version(r.t, r.w, 0, NULL), EINVAL, "NULL");
	/* None of it did any harm. */
	ck_ok(gs_push(r.t, r.w, x));
	ck_ok(gs_wait_applied(r.t, r.w));
	rig_down(&r);
	rig_down(&other);
}
END_TEST

/* ---- leaving --------------------------------------------------------------------------------- */

static void slow_credit_then_bye(struct fake *f)
{
	struct wire_msg bye = {.kind = WIRE_BYE};
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	ck_assert(!fake_next(f, &ev, 50)); /* no bye before the credit */
	fake_credit(f, B_BLOCK, 1, true);
	fake_expect(f, WIRE_BYE);
	fake_send(f, &bye);
	fake_expect_closed(f);
}

START_TEST(leaving_waits_for_credits)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};

	rig_up(&r, WIRE_ASYNC, slow_credit_then_bye);
	ck_ok(gs_push(r.t, r.b, b));
	ck_ok(gs_leave(r.t));
	ck_fails(gs_leave(r.t), ENOTCONN, "gs_leave was called");
	ck_fails(gs_push(r.t, r.b, b), ENOTCONN, "gs_leave was called");
	ck_fails(gs_pull(r.t, r.b, GS_RELAXED, b), ENOTCONN, "gs_leave was called");
	rig_down(&r);
}
END_TEST

static void slow_release_then_bye(struct fake *f)
{
	struct wire_msg bye = {.kind = WIRE_BYE};
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_BARRIER);
	ck_assert(!fake_next(f, &ev, 50)); /* no bye before the release */
	fake_release(f, 1);
	fake_expect(f, WIRE_BYE);
	fake_send(f, &bye);
	fake_expect_closed(f);
}

START_TEST(leaving_waits_for_the_release)
{
	struct rig r = {.f = {.mode = 0}};

	rig_up(&r, WIRE_SYNC, slow_release_then_bye);
	ck_ok(gs_step_post(r.t));
	ck_ok(gs_leave(r.t));
	rig_down(&r);
}
END_TEST

static void take_bye_and_close(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect(f, WIRE_BYE);
	fake_close(f);
}

START_TEST(leaving_a_server_that_just_closes)
{
	struct rig r = {.f = {.mode = 0}};

	rig_up(&r, WIRE_SYNC, take_bye_and_close);
	ck_ok(gs_leave(r.t));
	rig_down(&r);
}
END_TEST

static void ignore_bye(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect(f, WIRE_BYE);
	fake_expect_closed(f);
}

START_TEST(leaving_a_server_that_does_not_answer)
{
	struct rig r = {.f = {.mode = WIRE_ASYNC}};

	fake_start(&r.f, ignore_bye);
	struct gs_options opt = rig_options(&r);
	opt.timeout_ms = 1000;
	ck_ok(gs_connect(&opt, &r.t));
	rig_declare(&r, NULL);
	ck_ok(gs_start(r.t));
	ck_fails(gs_leave(r.t), ETIMEDOUT, "1000 ms for the server to let go");
	rig_down(&r);
}
END_TEST

static void refuse_bye(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect(f, WIRE_BYE);
	fake_send_error(f, WIRE_E_INTERNAL, "no");
	fake_close(f);
}

START_TEST(leaving_a_server_that_fails)
{
	struct rig r = {.f = {.mode = 0}};

	rig_up(&r, WIRE_SYNC, refuse_bye);
	ck_fails(gs_leave(r.t), EIO, "the server says: no");
	rig_down(&r);
}
END_TEST

static void bye_without_start(struct fake *f)
{
	struct wire_msg bye = {.kind = WIRE_BYE};

	fake_up_to(f, STAGE_WELCOMED);
	fake_expect(f, WIRE_BYE);
	fake_send(f, &bye);
	fake_expect_closed(f);
}

START_TEST(leaving_before_the_start)
{
	struct rig r = {.f = {.mode = 0}};

	fake_start(&r.f, bye_without_start);
	ck_ok(rig_connect(&r));
	ck_ok(gs_leave(r.t));
	rig_down(&r);
}
END_TEST

Suite *push_suite(void)
{
	Suite *s = suite_create("trainer: push");
	TCase *c = tcase_create("push"), *l = tcase_create("leave");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, a_sync_step);
	tcase_add_test(c, many_sync_steps);
	tcase_add_test(c, a_late_release);
	tcase_add_test(c, no_steps_in_async_mode);
	tcase_add_test(c, async_pushes);
	tcase_add_loop_test(c, who_never_sleeps_sees_credits_without_an_event, 0, 2);
	tcase_add_test(c, a_push_waits_for_every_block);
	tcase_add_test(c, the_buffer_is_the_slot);
	tcase_add_test(c, more_blocks_than_room);
	tcase_add_test(c, wrong_arguments);
	suite_add_tcase(s, c);
	tcase_set_timeout(l, 60);
	tcase_add_test(l, leaving_waits_for_credits);
	tcase_add_test(l, leaving_waits_for_the_release);
	tcase_add_test(l, leaving_a_server_that_just_closes);
	tcase_add_test(l, leaving_a_server_that_does_not_answer);
	tcase_add_test(l, leaving_a_server_that_fails);
	tcase_add_test(l, leaving_before_the_start);
	suite_add_tcase(s, l);
	return s;
}

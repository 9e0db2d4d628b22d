/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's machine that is silent while a call waits.
 */
#include "fake.h"

#include <unistd.h>

#include "base/clock.h"

/* Takes what comes, and says nothing until it may. */
static void take_and_wait(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	while (fake_next(f, &ev, FAKE_WAIT_MS) && ev.kind != TP_EV_CLOSED) {
		if (ev.kind == TP_EV_IMM && imm_unpack(ev.imm).kind == IMM_BARRIER && f->arg) {
			usleep(*(useconds_t *)f->arg);
			fake_release(f, 1);
		}
	}
}

static void up(struct rig *r, uint32_t keepalive_ms)
{
	r->f.mode = WIRE_SYNC;
	fake_start(&r->f, take_and_wait);
	struct gs_options opt = rig_options(r);
	opt.keepalive_ms = keepalive_ms;
	ck_ok(gs_connect(&opt, &r->t));
	rig_declare(r, NULL);
	ck_ok(gs_start(r->t));
}

START_TEST(silent)
{
	struct rig r = {.f = {.mode = 0}};
	uint64_t begin;

	up(&r, 300);
	wrap_silence(true);
	begin = clock_ns();
	ck_fails(gs_step_end(r.t), ECONNRESET, "silent for 300 ms");
	ck_assert_uint_ge(clock_ns() - begin, 300 * NS_PER_MS);
	ck_assert_uint_lt(clock_ns() - begin, 5 * NS_PER_S);
	ck_fails(gs_step_wait(r.t), ECONNRESET, "silent for 300 ms");
	wrap_silence(false);
	rig_down(&r);
}
END_TEST

/* Slow is not silent: its machine answers. */
START_TEST(slow)
{
	useconds_t us = 1000000;
	struct rig r = {.f = {.arg = &us}};

	up(&r, 300);
	ck_ok(gs_step_end(r.t));
	ck_assert_uint_ge(wrap_beats(), 3);
	ck_assert_uint_le(wrap_beats(), 40); /* every 100 ms, and no storm */
	rig_down(&r);
}
END_TEST

START_TEST(no_beats)
{
	useconds_t us = 300000;
	struct rig r = {.f = {.arg = &us}};

	up(&r, 0);
	wrap_silence(true);
	ck_ok(gs_step_end(r.t));
	ck_assert_uint_eq(wrap_beats(), 0);
	wrap_silence(false);
	rig_down(&r);
}
END_TEST

/* Nobody listens while nobody waits: an old beat's answer is there when somebody does. */
START_TEST(computing_long)
{
	useconds_t us = 200000;
	struct rig r = {.f = {.arg = &us}};

	up(&r, 150);
	ck_ok(gs_step_post(r.t));
	usleep(50000);
	ck_fails(gs_push(r.t, r.w, (float[W_ELEMS]){0}), EALREADY, "posted");
	usleep(400000);
	ck_ok(gs_step_wait(r.t));
	rig_down(&r);
}
END_TEST

/* READs that write where the program wants the weights may go on after all is given up: until the connection
 * is over, the call does not return. */
START_TEST(silent_reads)
{
	enum { LONG = 20000 };
	static float w[LONG];
	struct rig r = {.f = {.mode = WIRE_SYNC, .block_elems = LONG}};
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;

	fake_start(&r.f, take_and_wait);
	struct gs_options opt = rig_options(&r);
	opt.keepalive_ms = 300;
	ck_ok(gs_connect(&opt, &r.t));
	d.name = "long";
	d.ndim = 1;
	d.shape[0] = LONG;
	ck_ok(gs_declare(r.t, &d, &p));
	ck_ok(gs_start(r.t));
	ck_ok(gs_pull(r.t, p, GS_RELAXED, w));
	ck_ok(gs_pull(r.t, p, GS_RELAXED, w));
	wrap_silence(true);
	if (fake_unmapped) {
		enum gs_consistency how = _i ? GS_CONSISTENT : GS_RELAXED;

		ck_fails(gs_pull(r.t, p, how, w), ECONNRESET, "silent for 300 ms");
		ck_assert(wrap_saw_end());
	}
	wrap_silence(false);
	rig_down(&r);
}
END_TEST

Suite *silence_suite(void)
{
	Suite *s = suite_create("trainer: silence");
	TCase *c = tcase_create("silence");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, silent);
	tcase_add_test(c, slow);
	tcase_add_test(c, no_beats);
	tcase_add_test(c, computing_long);
	tcase_add_loop_test(c, silent_reads, 0, 2);
	suite_add_tcase(s, c);
	return s;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking for a checkpoint.
 */
#include "fake.h"

static const struct wire_saved answers[] = {
    {.step = 7},
    {.failed = true, .code = WIRE_E_STORE, .text = "the disk is full"},
    {.failed = true, .code = WIRE_E_MISMATCH, .text = "it keeps none"},
};

static void answer(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_SAVED};

	fake_up_to(f, STAGE_STARTED);
	fake_expect(f, WIRE_SAVE);
	msg.saved = answers[*(int *)f->arg];
	fake_gate(f, 1);
	fake_send(f, &msg);
	fake_expect(f, WIRE_SAVE); /* the next one may come */
	fake_expect_closed(f);
}

START_TEST(asked_for)
{
	int which = _i;
	struct rig r = {.f = {.arg = &which}};
	uint64_t step = 99;

	rig_up(&r, WIRE_ASYNC, answer);
	ck_fails(gs_checkpoint_wait(r.t, &step), EDEADLK, "call gs_checkpoint first");
	ck_ok(gs_checkpoint(r.t));
	ck_fails(gs_checkpoint(r.t), EALREADY, "gs_checkpoint_wait");
	atomic_store(&r.f.allow, 1);
	if (_i == 0)
		ck_ok(gs_checkpoint_wait(r.t, &step));
	else
		ck_fails(gs_checkpoint_wait(r.t, &step), _i == 1 ? EIO : ENOENT, answers[_i].text);
	ck_assert_uint_eq(step, _i == 0 ? 7 : 99);
	ck_fails(gs_checkpoint_wait(r.t, NULL), EDEADLK, "call gs_checkpoint first");
	ck_ok(gs_checkpoint(r.t));
	rig_down(&r);
}
END_TEST

/* Of the end of a step that this trainer itself keeps from ending. */
static void take_a_save(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect(f, WIRE_SAVE);
	fake_expect_closed(f);
}

START_TEST(before_the_barrier)
{
	struct rig r = {.f = {.mode = 0}};

	rig_up(&r, WIRE_SYNC, take_a_save);
	ck_ok(gs_checkpoint(r.t));
	ck_fails(gs_checkpoint_wait(r.t, NULL), EDEADLK, "call gs_step_post first");
	rig_down(&r);
}
END_TEST

static void take_a_barrier(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_BARRIER);
	fake_expect_closed(f);
}

START_TEST(behind_the_barrier)
{
	struct rig r = {.f = {.mode = 0}};

	rig_up(&r, WIRE_SYNC, take_a_barrier);
	ck_ok(gs_step_post(r.t));
	ck_fails(gs_checkpoint(r.t), EALREADY, "call gs_step_wait first");
	rig_down(&r);
}
END_TEST

/* An answer that was on its way goes with the connection; another one may be asked for. */
static void lose_the_question(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_SAVED, .saved = {.step = 9}};

	fake_up_to(f, STAGE_STARTED);
	fake_expect(f, WIRE_SAVE);
	fake_drop(f);
	f->resumes = true;
	fake_up_to(f, STAGE_STARTED);
	fake_expect(f, WIRE_SAVE);
	fake_send(f, &msg);
	fake_expect_closed(f);
}

START_TEST(lost)
{
	struct rig r = {.f = {.mode = 0}};
	uint64_t step;
	int rewound;

	rig_up(&r, WIRE_ASYNC, lose_the_question);
	ck_ok(gs_checkpoint(r.t));
	ck_fails(gs_checkpoint_wait(r.t, &step), ECONNRESET, "the server is gone");
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	ck_fails(gs_checkpoint_wait(r.t, &step), EDEADLK, "lost with the connection");
	ck_ok(gs_checkpoint(r.t));
	ck_ok(gs_checkpoint_wait(r.t, &step));
	ck_assert_uint_eq(step, 9);
	rig_down(&r);
}
END_TEST

static void answer_nobody(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_SAVED, .saved = {.step = 9}};

	fake_up_to(f, STAGE_STARTED);
	fake_send(f, &msg);
	fake_expect_closed(f);
}

START_TEST(nobody_asked)
{
	struct rig r = {.f = {.mode = 0}};

	rig_up(&r, WIRE_SYNC, answer_nobody);
	ck_fails(gs_step_end(r.t), EPROTO, "it sent saved where no message was due");
	rig_down(&r);
}
END_TEST

Suite *checkpoint_suite(void)
{
	Suite *s = suite_create("trainer: checkpoints");
	TCase *c = tcase_create("checkpoints");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, asked_for, 0, 3);
	tcase_add_test(c, lost);
	tcase_add_test(c, before_the_barrier);
	tcase_add_test(c, behind_the_barrier);
	tcase_add_test(c, nobody_asked);
	suite_add_tcase(s, c);
	return s;
}

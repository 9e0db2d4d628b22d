/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_reconnect to a server that has not kept this trainer's place, or lies about what it has.
 */
#include "keeper.h"

#include <unistd.h>

#include "trainer/trainer.h"

enum { ANOTHER_RUN, PLACE_LOST, REWINDS };

static void rewind_it(struct fake *f)
{
	static const uint64_t sync[] = {4, 4, 3, 0}, async[] = {6, 7, 6, 2};

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD); /* b's */
	fake_drop(f);
	if (*(int *)f->arg == ANOTHER_RUN)
		fake_restart(f);
	else
		f->resumes = false;
	f->start_step = 4;
	memcpy(f->kept, f->mode == WIRE_SYNC ? sync : async, sizeof(sync));
	fake_up_to(f, STAGE_STARTED);
	/* Nothing is sent again: what comes is pushed anew. */
	struct imm imm = fake_expect_imm(f, IMM_GRAD);
	ck_assert_uint_eq(imm.block, f->mode == WIRE_SYNC ? 2 : 0);
	ck_assert_uint_eq(imm.slot, 0);
	ck_assert_float_eq(fake_slot(f, imm.block, 0)[0], 2);
	if (f->mode != WIRE_SYNC)
		ck_assert_uint_eq(fake_expect_imm(f, IMM_GRAD).block, 2);
	else
		ck_assert_uint_eq(fake_expect_imm(f, IMM_BARRIER).step, 4);
	fake_expect_closed(f);
}

static void rewinds(enum wire_mode mode, int how)
{
	struct rig r = {.f = {.arg = &how}};
	float w[W_ELEMS], b[B_ELEMS] = {0};
	struct gs_info info;
	uint64_t n;
	int rewound = 7;

	for (int i = 0; i < W_ELEMS; i++)
		w[i] = 2;
	rig_up_for(&r, mode, rewind_it, 5000);
	ck_ok(gs_push(r.t, r.b, b));
	rig_be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.step, mode == WIRE_SYNC ? 4 : 0);
	ck_ok(gs_pushes(r.t, r.w, &n));
	ck_assert_uint_eq(n, mode == WIRE_SYNC ? 3 : 6);
	ck_ok(gs_pushes(r.t, r.b, &n));
	ck_assert_uint_eq(n, mode == WIRE_SYNC ? 0 : 2);
	ck_ok(gs_push(r.t, r.w, w));
	if (mode == WIRE_SYNC)
		ck_ok(gs_step_post(r.t));
	rig_down(&r);
}

START_TEST(rewound_sync)
{
	rewinds(WIRE_SYNC, _i);
}
END_TEST

START_TEST(rewound_async)
{
	rewinds(WIRE_ASYNC, _i);
}
END_TEST

/* What was accumulated was of weights that are no more. */
static void rewind_sum(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_gate(f, 1);
	fake_drop(f);
	fake_restart(f);
	fake_up_to(f, STAGE_STARTED);
	struct imm imm = fake_expect_imm(f, IMM_GRAD);
	ck_assert_float_eq(fake_slot(f, imm.block, imm.slot)[1], 20);
	fake_expect_closed(f);
}

START_TEST(accumulated_and_rewound)
{
	struct rig r = {.f = {.mode = WIRE_ASYNC}};
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	float g[3] = {1, 1, 1};
	int rewound = 7;

	fake_start(&r.f, rewind_sum);
	ck_ok(rig_connect(&r));
	d.name = "a";
	d.ndim = 1;
	d.shape[0] = 3;
	d.accumulate = 2;
	d.accumulate_sum = 1;
	gs_setting(&d, "lr", 1);
	ck_ok(gs_declare(r.t, &d, &r.w));
	ck_ok(gs_start(r.t));
	ck_ok(gs_push(r.t, r.w, g));
	atomic_store(&r.f.allow, 1);
	rig_be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	g[1] = 10;
	ck_ok(gs_push(r.t, r.w, g));
	ck_ok(gs_push(r.t, r.w, g));
	rig_down(&r);
}
END_TEST

/* What a server said before it went again holds: it has not kept this rank's place, though it goes
 * on with the session that it gave then. */
static void rewind_and_go(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_drop(f);
	f->resumes = false;
	fake_up_to(f, STAGE_GRANTED);
	fake_drop(f);
	f->resumes = true;
	fake_up_to(f, STAGE_STARTED);
	fake_expect_closed(f);
}

START_TEST(rewound_for_good)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};
	int rewound = 7;

	rig_up_for(&r, WIRE_ASYNC, rewind_and_go, 5000);
	ck_ok(gs_push(r.t, r.b, b));
	rig_be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	rig_down(&r);
}
END_TEST

/* The same over two calls: the first gave up in the talk. */
static void rewind_and_be_silent(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_drop(f);
	f->resumes = false;
	fake_up_to(f, STAGE_DECLARED);
	fake_expect_closed(f);
	fake_drop(f);
	f->resumes = true;
	fake_up_to(f, STAGE_STARTED);
	fake_expect_closed(f);
}

START_TEST(rewound_over_two_calls)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};
	int rewound = 7;

	rig_up_for(&r, (enum wire_mode)_i, rewind_and_be_silent, 5000);
	ck_ok(gs_push(r.t, r.b, b));
	rig_be_lost(&r);
	r.t->timeout_ms = 600; /* of the talk, and longer than all tries together */
	r.t->reconnect_ms = 500;
	ck_fails(gs_reconnect(r.t, &rewound), ETIMEDOUT, "");
	ck_assert_int_eq(rewound, 7);
	r.t->timeout_ms = r.t->reconnect_ms = 5000;
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	rig_down(&r);
}
END_TEST

/* A fresh server has no weights, and those that it asks for are gone. */
static void ask_for_weights(struct fake *f)
{
	struct wire_msg ready = {.kind = WIRE_READY, .ready = {.init = true}};

	fake_up_to(f, STAGE_STARTED);
	fake_drop(f);
	fake_restart(f);
	fake_up_to(f, STAGE_ATTACHED);
	fake_send(f, &ready);
	fake_expect_closed(f);
}

START_TEST(a_fresh_server)
{
	struct rig r = {.f = {.mode = WIRE_ASYNC}};
	float init_data[W_ELEMS] = {0};
	int rewound;

	fake_start(&r.f, ask_for_weights);
	ck_ok(rig_connect(&r));
	rig_declare(&r, init_data);
	ck_ok(gs_start(r.t));
	rig_be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "start it from a checkpoint");
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "has lost no server");
	rig_down(&r);
}
END_TEST

/* ---- lies ------------------------------------------------------------------------------------ */

enum lie { TOO_MANY, TOO_FEW, WRONG_STEP, STEP_PASSED, OTHER_SLOTS, LIES };

static const char *const lie_texts[LIES] = {
    [TOO_MANY] = "block 3: it has 3 pushes of 2",
    [TOO_FEW] = "the server lacks",
    [WRONG_STEP] = "it goes on with step 3; this trainer is in 1",
    [STEP_PASSED] = "it goes on with step 2; this trainer is in 1",
    [OTHER_SLOTS] = "with another layout",
};

static void lie(struct fake *f)
{
	int which = *(int *)f->arg;
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	for (uint64_t i = 1; i <= 2 && f->mode == WIRE_ASYNC; i++) {
		fake_expect_imm(f, IMM_GRAD);
		if (which == TOO_FEW)
			fake_credit(f, B_BLOCK, i, true);
	}
	fake_gate(f, 1);
	fake_drop(f);
	f->resumes = true;
	f->kept[B_BLOCK] = which == TOO_MANY ? 3 : 0;
	f->start_step = which == WRONG_STEP ? 3 : which == STEP_PASSED ? 2 : 1;
	f->slots += which == OTHER_SLOTS;
	fake_up_to(f, STAGE_STARTED);
	do
		ck_assert(fake_next(f, &ev, FAKE_WAIT_MS));
	while (ev.kind == TP_EV_IMM);
	ck_assert_int_eq(ev.kind, TP_EV_MSG);
	ck_assert_int_eq(f->msg.kind, WIRE_ERROR);
	ck_assert_int_eq(f->msg.error.code, WIRE_E_PROTOCOL);
	fake_expect_closed(f);
}

START_TEST(hostile_returns)
{
	int which = _i, rewound = 7;
	bool sync = which == WRONG_STEP || which == STEP_PASSED;
	struct rig r = {.f = {.arg = &which}};
	float b[B_ELEMS] = {0};

	rig_up_for(&r, sync ? WIRE_SYNC : WIRE_ASYNC, lie, 5000);
	for (int i = 0; i < 2 && !sync; i++)
		ck_ok(gs_push(r.t, r.b, b));
	if (which == TOO_FEW) { /* a third one uses the first one's slot */
		ck_ok(gs_wait_applied(r.t, r.b));
		ck_ok(gs_push(r.t, r.b, b));
	}
	atomic_store(&r.f.allow, 1);
	rig_be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EPROTO, lie_texts[which]);
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "failed for another reason");
	ck_fails(gs_push(r.t, r.b, b), EPROTO, lie_texts[which]);
	ck_assert_int_eq(rewound, 7);
	rig_down(&r);
}
END_TEST

/* It had them when this trainer came back, and what it had is in no slot any more. */
static void forget(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_drop(f);
	f->resumes = true;
	f->kept[B_BLOCK] = 1;
	fake_up_to(f, STAGE_STARTED);
	fake_gate(f, 1);
	fake_drop(f);
	f->kept[B_BLOCK] = 0;
	fake_up_to(f, STAGE_STARTED);
	do
		ck_assert(fake_next(f, &ev, FAKE_WAIT_MS));
	while (ev.kind == TP_EV_IMM);
	ck_assert_int_eq(ev.kind, TP_EV_MSG);
	ck_assert_int_eq(f->msg.kind, WIRE_ERROR);
	fake_expect_closed(f);
}

START_TEST(a_server_that_forgets)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};
	int rewound = 7;

	rig_up_for(&r, WIRE_ASYNC, forget, 5000);
	ck_ok(gs_push(r.t, r.b, b));
	rig_be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	atomic_store(&r.f.allow, 1);
	rig_be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EPROTO, "the server lacks 1 pushes that it had");
	rig_down(&r);
}
END_TEST

/* It said that a push was applied, and the program heard it: its memory may be anything by now. */
static void take_back(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_credit(f, B_BLOCK, 1, true);
	fake_gate(f, 1);
	fake_drop(f);
	f->resumes = true;
	f->kept[B_BLOCK] = 0;
	fake_up_to(f, STAGE_STARTED);
	do
		ck_assert(fake_next(f, &ev, FAKE_WAIT_MS));
	while (ev.kind == TP_EV_IMM);
	ck_assert_int_eq(f->msg.kind, WIRE_ERROR);
	fake_expect_closed(f);
}

START_TEST(a_server_that_takes_back)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};
	int rewound = 7;

	rig_up_for(&r, WIRE_ASYNC, take_back, 5000);
	ck_ok(gs_push_zcopy(r.t, r.b, b));
	ck_ok(gs_wait_applied(r.t, r.b));
	atomic_store(&r.f.allow, 1);
	rig_be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EPROTO, "a push that it said was applied");
	ck_assert_int_eq(rewound, 7);
	rig_down(&r);
}
END_TEST

/* It sees nothing of what is pushed, and says so when the trainer is back. */
static void see_nothing(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_gate(f, 1);
	fake_drop(f);
	f->resumes = true;
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

/* A push that was lent is in the program's memory alone: it is sent again from there. Over shm
 * nothing is lent, so the trainer is told that this is no neighbour. The slots hold other bytes. */
START_TEST(what_was_lent_is_sent_again)
{
	enum { ELEMS = LEND_MIN / 4 + 10, SLOTS = 2 };
	struct rig r = {.f = {.mode = WIRE_ASYNC, .slots = SLOTS, .block_elems = 512}};
	static float lent[SLOTS][ELEMS], got[ELEMS], *slot;
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	bool unmapped = fake_unmapped;
	gs_param *big;
	int rewound = 7;

	fake_unmapped = true;
	fake_start(&r.f, see_nothing);
	struct gs_options opt = rig_options(&r);
	opt.reconnect_ms = 5000;
	ck_ok(gs_connect(&opt, &r.t));
	rig_declare(&r, NULL);
	d.name = "big";
	d.ndim = 1;
	d.shape[0] = ELEMS;
	gs_setting(&d, "lr", 1);
	ck_ok(gs_declare(r.t, &d, &big));
	ck_ok(gs_start(r.t));
	r.t->load_store = false;
	for (int i = 0; i < SLOTS; i++) {
		for (int k = 0; k < ELEMS; k++)
			lent[i][k] = (float)(k + 1000 * i);
		ck_ok(gs_grad_buffer(r.t, big, (void **)&slot));
		for (int k = 0; k < ELEMS; k++)
			slot[k] = 5;
		ck_ok(gs_push_zcopy(r.t, big, lent[i]));
		ck_assert_ptr_eq(big->out.lent[i].at, lent[i]);
		ck_assert(slot[0] == 5 && slot[ELEMS - 1] == 5); /* nor copied */
	}
	atomic_store(&r.f.allow, 1);
	rig_be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	ck_ok(gs_wait_applied(r.t, big));
	memset(lent, 0, sizeof(lent));
	ck_ok(gs_pull(r.t, big, GS_RELAXED, got));
	for (int k = 0; k < ELEMS; k++)
		ck_assert_msg(got[k] == -(float)(2 * k + 1000), "element %d: %g", k,
			      (double)got[k]);
	rig_down(&r);
	fake_unmapped = unmapped;
}
END_TEST

static void other_mode(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_drop(f);
	fake_restart(f);
	f->mode = WIRE_ASYNC;
	fake_up_to(f, STAGE_WELCOMED);
	fake_expect_closed(f);
}

START_TEST(a_server_in_another_mode)
{
	struct rig r = {.f = {.mode = 0}};
	int rewound;

	rig_up_for(&r, WIRE_SYNC, other_mode, 5000);
	rig_be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "in another mode");
	rig_down(&r);
}
END_TEST

TCase *reconnect_rewound_case(void)
{
	TCase *t = tcase_create("rewound");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, rewound_sync, 0, REWINDS);
	tcase_add_loop_test(t, rewound_async, 0, REWINDS);
	tcase_add_test(t, accumulated_and_rewound);
	tcase_add_test(t, rewound_for_good);
	tcase_add_loop_test(t, rewound_over_two_calls, WIRE_SYNC, WIRE_SSP + 1);
	tcase_add_test(t, a_fresh_server);
	tcase_add_loop_test(t, hostile_returns, 0, LIES);
	tcase_add_test(t, a_server_that_forgets);
	tcase_add_test(t, a_server_that_takes_back);
	tcase_add_test(t, what_was_lent_is_sent_again);
	tcase_add_test(t, a_server_in_another_mode);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A server that breaks the protocol, stops or dies while the trainer works and waits.
 */
#include "fake.h"

#include <unistd.h>

#include "base/clock.h"

/* ---- breaches: what a working server never does ------------------------------------------------
 */

static void imm_kind_0(struct fake *f)
{
	fake_imm(f, 0, 0, 0);
}

static void imm_kind_3(struct fake *f)
{
	fake_imm(f, 3u << 29, 0, 0);
}

static void imm_kind_init(struct fake *f)
{
	fake_imm(f, imm_block(IMM_INIT, 0, 0, false), 0, 0);
}

static void credit_for_no_block(struct fake *f)
{
	fake_imm(f, imm_block(IMM_APPLIED, BLOCKS, 0, false), 64, 0);
}

static void credit_for_the_last_block_there_can_be(struct fake *f)
{
	fake_imm(f, imm_block(IMM_APPLIED, IMM_MAX_BLOCKS - 1, 7, true), 64, 0);
}

static void pulled_unasked(struct fake *f)
{
	fake_pulled(f, 1);
}

static void pulled_no_block(struct fake *f)
{
	fake_imm(f, imm_block(IMM_PULLED, BLOCKS, 0, false), 64, 0);
}

static void release_ahead(struct fake *f)
{
	fake_imm(f, imm_step(IMM_RELEASE, 7), 0, 0);
}

static void message_garbage(struct fake *f)
{
	ck_assert_int_eq(tp_send(f->conn, "\xff\xff\xff", 3), 0);
}

static void message_unexpected(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_START, .start = {1}};

	fake_send(f, &msg);
}

static void message_grant(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_GRANT, .grant = {.last = true}};

	fake_send(f, &msg);
}

static void message_hello(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_HELLO, .hello = {.version = WIRE_VERSION, .rank = 0}};

	fake_send(f, &msg);
}

static void message_bye(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_BYE};

	fake_send(f, &msg);
}

static const struct breach {
	void (*commit)(struct fake *f);
	const char *text;
} breaches[] = {
    {imm_kind_0, "is of kind 0, which is not known"},
    {imm_kind_3, "0x60000000 is of kind 3, which is not known"},
    {imm_kind_init, "is of kind 5, which is not known"},
    {credit_for_no_block, "credit for block 4; there are 4"},
    {credit_for_the_last_block_there_can_be, "credit for block 33554431; there are 4"},
    {pulled_unasked, "weights of block 1; nobody asked"},
    {pulled_no_block, "weights of block 4; nobody asked"},
    {release_ahead, "release of step 7; released are 0"},
    {message_garbage, "3 bytes that are not one"},
    {message_unexpected, "it sent start where no message was due"},
    {message_grant, "it sent grant where no message was due"},
    {message_hello, "it sent hello where no message was due"},
    {message_bye, "it sent bye where no message was due"},
};

static void expect_complaint(struct fake *f)
{
	struct tp_event ev;

	/* What else was under way comes first. */
	do {
		ck_assert(fake_next(f, &ev, FAKE_WAIT_MS));
		ck_assert_int_ne(ev.kind, TP_EV_CLOSED);
	} while (ev.kind != TP_EV_MSG);
	ck_assert_int_eq(f->msg.kind, WIRE_ERROR);
	ck_assert_int_eq(f->msg.error.code, WIRE_E_PROTOCOL);
	fake_expect_closed(f);
}

static void commit_breach(struct fake *f)
{
	const struct breach *b = f->arg;

	fake_up_to(f, STAGE_STARTED);
	b->commit(f);
	expect_complaint(f);
	ck_assert_msg(strstr(f->msg.error.text, b->text), "\"%s\" is not in \"%s\"", b->text,
		      f->msg.error.text);
}

START_TEST(a_breach)
{
	for (int mode = WIRE_SYNC; mode <= WIRE_ASYNC; mode++) {
		struct rig r = {.f = {.arg = (void *)(uintptr_t)&breaches[_i]}};
		float w[W_ELEMS] = {0};

		rig_up(&r, (enum wire_mode)mode, commit_breach);
		/* A wait that would not end. */
		int rc = mode == WIRE_ASYNC ? gs_push(r.t, r.w, w) : 0;
		if (rc == 0)
			rc = mode == WIRE_ASYNC ? gs_wait_applied(r.t, r.w) : gs_step_end(r.t);
		ck_fails(rc, EPROTO, breaches[_i].text);
		/* Final. */
		ck_fails(gs_pull(r.t, r.w, GS_RELAXED, w), EPROTO, breaches[_i].text);
		ck_fails(gs_push(r.t, r.w, w), EPROTO, breaches[_i].text);
		ck_fails(gs_leave(r.t), EPROTO, breaches[_i].text);
		rig_down(&r);
	}
}
END_TEST

/* ---- breaches that need something to go before -------------------------------------------------
 */

static void too_much_credit(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_credit(f, B_BLOCK, 2, true);
	expect_complaint(f);
}

START_TEST(credit_for_more_than_was_pushed)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};

	rig_up(&r, WIRE_ASYNC, too_much_credit);
	ck_ok(gs_push(r.t, r.b, b));
	ck_fails(gs_wait_applied(r.t, r.b), EPROTO, "block 3: credit for 2 pushes of 1");
	rig_down(&r);
}
END_TEST

static void release_in_async(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_release(f, 1);
	expect_complaint(f);
}

START_TEST(a_release_in_async_mode)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};

	rig_up(&r, WIRE_ASYNC, release_in_async);
	ck_ok(gs_push(r.t, r.b, b));
	ck_fails(gs_wait_applied(r.t, r.b), EPROTO, "release of step 1");
	rig_down(&r);
}
END_TEST

static void release_two(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_BARRIER);
	fake_release(f, 2);
	expect_complaint(f);
}

START_TEST(a_release_of_what_was_not_passed)
{
	struct rig r = {.f = {.mode = 0}};

	rig_up(&r, WIRE_SYNC, release_two);
	ck_fails(gs_step_end(r.t), EPROTO, "step 2 is released; this trainer has passed 1");
	rig_down(&r);
}
END_TEST

static void pulled_twice(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_PULL);
	fake_pulled(f, 0);
	fake_pulled(f, 0);
	expect_complaint(f);
}

static void pulled_short(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_PULL);
	fake_imm(f, imm_block(IMM_PULLED, 0, 0, false), 4096, 0);
	expect_complaint(f);
}

START_TEST(answers_that_do_not_fit)
{
	struct rig r = {.f = {.mode = 0}}, s = {.f = {.mode = 0}};
	float w[W_ELEMS];

	rig_up(&r, WIRE_ASYNC, pulled_twice);
	ck_fails(gs_pull(r.t, r.w, GS_ORDERED, w), EPROTO, "weights of block 0; nobody asked");
	rig_down(&r);
	rig_up(&s, WIRE_ASYNC, pulled_short);
	ck_fails(gs_pull(s.t, s.w, GS_ORDERED, w), EPROTO,
		 "8 bytes in the last piece instead of 112");
	rig_down(&s);
}
END_TEST

static void imm_while_declaring(struct fake *f)
{
	/* Over shm an immediate needs memory to go to; so the earliest is after attach. */
	fake_up_to(f, STAGE_ATTACHED);
	fake_imm(f, imm_block(IMM_PULLED, 0, 0, false), 64, 0);
	expect_complaint(f);
}

START_TEST(data_before_the_start)
{
	struct rig r = {.f = {.mode = 0}};

	fake_start(&r.f, imm_while_declaring);
	ck_ok(rig_connect(&r));
	rig_declare(&r, NULL);
	ck_fails(gs_start(r.t), EPROTO, "nobody asked for them");
	rig_down(&r);
}
END_TEST

/* ---- the end, during each wait ----------------------------------------------------------------
 */

enum wait { WAIT_SLOT, WAIT_APPLIED, WAIT_PULL, WAIT_STEP, WAIT_RELEASE_OF_PUSH, WAITS };

static int wait_somewhere(struct rig *r, enum wait wait)
{
	float w[W_ELEMS] = {0};
	int rc = 0;

	switch (wait) {
	case WAIT_SLOT:
		for (int i = 0; i < 3 && rc == 0; i++)
			rc = gs_push(r->t, r->w, w);
		return rc;
	case WAIT_APPLIED:
		rc = gs_push(r->t, r->w, w);
		return rc < 0 ? rc : gs_wait_applied(r->t, r->w);
	case WAIT_PULL:
		return gs_pull(r->t, r->w, GS_ORDERED, w);
	case WAIT_STEP:
		return gs_step_end(r->t);
	default:
		rc = gs_push(r->t, r->w, w);
		if (rc == 0)
			rc = gs_step_post(r->t);
		return rc < 0 ? rc : gs_wait_applied(r->t, r->w);
	}
}

static enum wire_mode mode_of(enum wait wait)
{
	return wait >= WAIT_STEP ? WIRE_SYNC : WIRE_ASYNC;
}

/* Comes when the trainer surely waits; takes no notice of what it sends. */
static void stop_later(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	while (fake_next(f, &ev, 60))
		;
	if (f->arg)
		fake_send_error(f, WIRE_E_SHUTDOWN, "the server was told to stop");
	fake_close(f);
}

START_TEST(death_during_a_wait)
{
	struct rig r = {.f = {.arg = NULL}};

	rig_up(&r, mode_of((enum wait)_i), stop_later);
	uint64_t begin = clock_ns();
	ck_fails(wait_somewhere(&r, (enum wait)_i), ECONNRESET, "the server is gone");
	ck_assert_uint_lt(clock_ns() - begin, 3 * NS_PER_S);
	rig_down(&r);
}
END_TEST

START_TEST(shutdown_during_a_wait)
{
	struct rig r = {.f = {.arg = &r}};

	rig_up(&r, mode_of((enum wait)_i), stop_later);
	ck_fails(wait_somewhere(&r, (enum wait)_i), ESHUTDOWN,
		 "the server says: the server was told to stop");
	ck_fails(wait_somewhere(&r, (enum wait)_i), ESHUTDOWN, "was told to stop");
	rig_down(&r);
}
END_TEST

/* While nobody waits, the next call tells; with the server's reason. */
static void stop_at_once(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_send_error(f, WIRE_E_SHUTDOWN, "maintenance");
	fake_close(f);
	atomic_store(&f->seen, 1);
}

START_TEST(shutdown_while_computing)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS] = {0};

	rig_up(&r, WIRE_ASYNC, stop_at_once);
	rig_seen(&r, 1);
	usleep(10000);
	ck_fails(gs_push(r.t, r.w, w), ESHUTDOWN, "maintenance");
	rig_down(&r);
}
END_TEST

Suite *hostile_suite(void)
{
	Suite *s = suite_create("trainer: hostile");
	TCase *c = tcase_create("breaches"), *e = tcase_create("ends");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, a_breach, 0, sizeof(breaches) / sizeof(breaches[0]));
	tcase_add_test(c, credit_for_more_than_was_pushed);
	tcase_add_test(c, a_release_in_async_mode);
	tcase_add_test(c, a_release_of_what_was_not_passed);
	tcase_add_test(c, answers_that_do_not_fit);
	tcase_add_test(c, data_before_the_start);
	suite_add_tcase(s, c);
	tcase_set_timeout(e, 60);
	tcase_add_loop_test(e, death_during_a_wait, 0, WAITS);
	tcase_add_loop_test(e, shutdown_during_a_wait, 0, WAITS);
	tcase_add_test(e, shutdown_while_computing);
	suite_add_tcase(s, e);
	return s;
}

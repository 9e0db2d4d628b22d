/* SPDX-License-Identifier: Apache-2.0
 *
 * The layer itself: each fault does what its name says, between two sides over shared memory.
 */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "faults.h"
#include "run.h"
#include "transport/harness.h"

#define RW (TP_PEER_READ | TP_PEER_WRITE)

static void script(const char *text)
{
	ck_ok(faults_set(text));
}

static void open_pair(struct pair *p)
{
	pair_open(p, NULL);
	pair_memory(p, 4096, RW);
}

static void post_imm(struct pair *p, uint32_t imm)
{
	struct tp_op op = with_imm(op_write(&p->a, 0, 0, 100), imm);

	side_post(&p->a, &p->b, &op);
}

static void post_signalled(struct pair *p, uint64_t cookie)
{
	struct tp_op op = with_signal(op_write(&p->a, 0, 0, 100), cookie);

	side_post(&p->a, &p->b, &op);
}

START_TEST(drops)
{
	struct pair p;

	open_pair(&p);
	script("drop imm n=2; drop msg n=1");
	for (uint32_t i = 1; i <= 3; i++)
		post_imm(&p, i);
	ck_ok(tp_send(p.a.conn, "x", 1));
	ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, 1);
	ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, 3);
	expect_none(&p, &p.b);
	ck_assert_uint_eq(faults_done(FAULT_DROP), 2);
	script("drop send n=1; drop post n=1");
	ck_ok(tp_send(p.a.conn, "x", 1));
	post_imm(&p, 4);
	post_imm(&p, 5);
	ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, 5);
	expect_none(&p, &p.b);
	pair_close(&p);
}
END_TEST

/* A completion that is kept back comes before the end, and fails. */
START_TEST(drops_completions)
{
	struct pair p;

	open_pair(&p);
	script("drop done n=1");
	post_signalled(&p, 7);
	expect_none(&p, &p.a);
	tp_conn_close(p.a.conn);
	struct tp_event ev = expect(&p, &p.a, TP_EV_DONE);

	ck_assert_uint_eq(ev.cookie, 7);
	ck_assert_int_eq(ev.status, -ECONNABORTED);
	expect(&p, &p.a, TP_EV_CLOSED);
	pair_free(&p);
}
END_TEST

START_TEST(repeats_and_cuts)
{
	struct pair p;
	struct tp_event ev;

	open_pair(&p);
	script("dup imm n=1; truncate imm n=2; truncate msg n=1");
	post_imm(&p, 1);
	post_imm(&p, 2);
	ck_ok(tp_send(p.a.conn, "hello", 5));
	ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, 1);
	ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, 1);
	ev = expect(&p, &p.b, TP_EV_IMM);
	ck_assert_uint_eq(ev.imm, 2);
	ck_assert_uint_lt(ev.len, 100);
	ev = expect(&p, &p.b, TP_EV_MSG);
	ck_assert_uint_lt(ev.len, 5);
	free((void *)ev.msg);
	pair_close(&p);
}
END_TEST

/* What was sent later arrives, and is answered, before the older completion is seen. */
START_TEST(receives_before_older_completions)
{
	struct pair p;

	open_pair(&p);
	script("delay done us=200000");
	uint64_t start = clock_ns();

	post_signalled(&p, 1);
	ck_ok(tp_send(p.b.conn, "x", 1));
	free((void *)expect(&p, &p.a, TP_EV_MSG).msg);
	ck_assert_uint_eq(expect(&p, &p.a, TP_EV_DONE).cookie, 1);
	ck_assert_uint_ge(clock_ns() - start, 200 * NS_PER_MS);
	/* A sleeper is woken for it. */
	start = clock_ns();
	post_signalled(&p, 2);
	ck_assert_int_eq(tp_cq_wait(p.a.cq, 10000), 1);
	while (side_pump(&p.a) == 0)
		ck_assert_int_eq(tp_cq_wait(p.a.cq, 10000), 1);
	ck_assert_uint_ge(clock_ns() - start, 200 * NS_PER_MS);
	ck_assert_uint_lt(clock_ns() - start, 5 * NS_PER_S);
	expect(&p, &p.a, TP_EV_DONE);
	pair_close(&p);
}
END_TEST

/* Within its lane the order stays; among lanes it does not. */
START_TEST(reorders_lanes_only)
{
	struct pair p;
	uint64_t done = 0, overtaken = 0;
	uint32_t imm = 0, sent = 0;

	open_pair(&p);
	script("seed=5; reorder done p=0.5");
	for (uint64_t start = clock_ns(); done < 2000 || imm < 2000; ck_in_time(start)) {
		struct tp_event ev;

		if (sent < 2000) {
			struct tp_op back = with_imm(op_write(&p.b, 0, 0, 8), sent);

			post_signalled(&p, sent++);
			side_post(&p.b, &p.a, &back);
		}
		side_pump(&p.a);
		while (side_next(&p.a, &ev)) {
			if (ev.kind == TP_EV_DONE)
				ck_assert_uint_eq(ev.cookie, done++);
			else
				ck_assert_uint_eq(ev.imm, imm++);
			overtaken += imm > done;
		}
	}
	ck_assert_uint_gt(overtaken, 0);
	pair_close(&p);
}
END_TEST

START_TEST(reorders_receives)
{
	struct pair p;
	bool disorder = false;
	uint32_t seen = 0;

	open_pair(&p);
	script("reorder imm p=0.3");
	for (uint32_t i = 0; i < 100; i++)
		post_imm(&p, i);
	for (uint32_t i = 0; i < 100; i++) {
		uint32_t imm = expect(&p, &p.b, TP_EV_IMM).imm;

		disorder |= imm < seen;
		seen = imm;
	}
	ck_assert(disorder);
	pair_close(&p);
}
END_TEST

START_TEST(fails_calls)
{
	struct pair p;
	struct tp_arena *arena;
	struct tp_region *region = NULL;
	struct tp_listener *l = NULL;
	struct tp_op op;

	open_pair(&p);
	ck_ok(tp_arena_create("x", 4096, 0, &arena));
	script("fail expose n=2 err=ENOMEM; fail post n=2 err=EAGAIN; fail send n=1 err=EIO;"
	       "fail listen err=ENODEV");
	ck_ok(tp_expose(p.a.conn, arena, TP_LOCAL, &region));
	tp_region_destroy(region);
	region = NULL;
	ck_fails(tp_expose(p.a.conn, arena, TP_LOCAL, &region), ENOMEM);
	ck_assert_ptr_null(region);
	ck_fails(tp_listen("shm:never", NULL, &l), ENODEV);
	ck_fails(tp_send(p.a.conn, "x", 1), EIO);
	op = op_write(&p.a, 0, 0, 8);
	ck_assert_int_eq(tp_post(p.a.conn, &op, 1), 1);
	ck_fails(tp_post(p.a.conn, &op, 1), EAGAIN);
	expect(&p, &p.a, TP_EV_ROOM);
	ck_assert_int_eq(tp_post(p.a.conn, &op, 1), 1);
	pair_close(&p);
	tp_arena_destroy(arena);
}
END_TEST

/* Of a chain what is before the failing op is taken; the next post hears of it. */
START_TEST(fails_within_a_chain)
{
	struct pair p;
	struct tp_op ops[4];

	open_pair(&p);
	for (uint32_t i = 0; i < 4; i++)
		ops[i] = with_imm(op_write(&p.a, 0, 0, 8), i);
	script("fail post n=3 err=EAGAIN");
	ck_assert_int_eq(tp_post(p.a.conn, ops, 4), 2);
	ck_fails(tp_post(p.a.conn, ops + 2, 2), EAGAIN);
	expect(&p, &p.a, TP_EV_ROOM);
	ck_assert_int_eq(tp_post(p.a.conn, ops + 2, 2), 2);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, i);
	pair_close(&p);
}
END_TEST

START_TEST(caps_and_stands_in)
{
	struct pair p;

	script("cap chunk=64; noimm");
	open_pair(&p);
	ck_assert_uint_eq(tp_conn_limits(p.a.conn).max_chunk, 64);
	ck_assert(!tp_conn_limits(p.a.conn).native_imm);
	ck_assert(!tp_conn_limits(p.b.conn).native_imm);
	post_imm(&p, 0xffffffff);
	struct tp_event ev = expect(&p, &p.b, TP_EV_IMM);

	ck_assert_uint_eq(ev.imm, 0xffffffff);
	ck_assert_uint_eq(ev.len, 36);
	pair_close(&p);
}
END_TEST

/* Nothing comes, nothing lands, nothing is said; closing ends what was under way. */
START_TEST(freezes)
{
	struct pair p;
	struct tp_op op;
	uint64_t taken = 0;
	int rc;

	open_pair(&p);
	script("freeze peer at=post n=2");
	post_signalled(&p, 0);
	ck_assert_uint_eq(expect(&p, &p.a, TP_EV_DONE).cookie, 0);
	memset(side_local(&p.a), 0x77, 100);
	do {
		op = with_signal(op_write(&p.a, 0, 0, 100), ++taken);
		rc = tp_post(p.a.conn, &op, 1);
		ck_assert_uint_lt(taken, 100000);
	} while (rc == 1);
	ck_fails(rc, EAGAIN);
	ck_ok(tp_send(p.b.conn, "x", 1));
	expect_none(&p, &p.a);
	expect_none(&p, &p.b);
	ck_assert_int_ne(side_window(&p.b)[0], 0x77);
	ck_assert_int_eq(tp_cq_wait(p.a.cq, 20), 0);
	tp_conn_close(p.a.conn);
	for (uint64_t i = 1; i < taken; i++) {
		struct tp_event ev = expect(&p, &p.a, TP_EV_DONE);

		ck_assert_uint_eq(ev.cookie, i);
		ck_assert_int_eq(ev.status, -ECONNABORTED);
	}
	expect(&p, &p.a, TP_EV_CLOSED);
	pair_free(&p);
}
END_TEST

/* The peer of a frozen one ends: this side does not hear of it before it closes. */
START_TEST(frozen_is_silent_at_the_end)
{
	struct pair p;

	open_pair(&p);
	script("freeze peer at=send n=1");
	ck_ok(tp_send(p.a.conn, "x", 1));
	tp_conn_close(p.b.conn);
	expect(&p, &p.b, TP_EV_CLOSED);
	usleep(20000);
	expect_none(&p, &p.a);
	faults_cut();
	expect(&p, &p.a, TP_EV_CLOSED);
	pair_free(&p);
}
END_TEST

START_TEST(refuses_to_accept)
{
	struct tp_listener *l;
	struct side b = {0};
	struct tp_conn *conn = NULL;
	struct tp_cq *cq;

	script("fail accept n=1 err=EMFILE");
	ck_ok(tp_listen(test_uri, NULL, &l));
	ck_ok(tp_cq_create(0, &cq));
	ck_ok(tp_cq_create(0, &b.cq));
	pid_t pid = fork();

	if (pid == 0) {
		/* It is taken, and closed at once. */
		if (tp_connect(test_uri, NULL, b.cq, &b, &b.conn) == 0)
			expect_past_room(NULL, &b, TP_EV_CLOSED);
		_exit(0);
	}
	int rc = 0;

	for (uint64_t start = clock_ns(); rc == 0; ck_in_time(start))
		rc = tp_accept(l, cq, NULL, &conn);
	ck_assert_int_eq(rc, -EMFILE);
	ck_assert_ptr_null(conn);
	for (int i = 0; i < 100; i++) {
		struct tp_event ev;

		tp_cq_wait(cq, 1);
		ck_assert_int_eq(tp_cq_poll(cq, &ev, 1), 0);
	}
	tp_listener_destroy(l);
	tp_cq_destroy(cq);
	tp_cq_destroy(b.cq);
}
END_TEST

START_TEST(zero_bytes_are_refused)
{
	struct pair p;
	struct tp_op op;

	open_pair(&p);
	op = op_write(&p.a, 0, 0, 8);
	op.len = 0;
	if (_i == 0)
		tp_post(p.a.conn, &op, 1);
	else
		tp_send(p.a.conn, "", 0);
}
END_TEST

START_TEST(kills)
{
	struct pair p;

	open_pair(&p);
	script(_i ? "kill at=poll-imm n=2" : "kill at=post-imm n=2");
	post_imm(&p, 1);
	expect(&p, &p.b, TP_EV_IMM);
	post_imm(&p, 2);
	expect(&p, &p.b, TP_EV_IMM);
}
END_TEST

/* The same seed, the same faults. */
START_TEST(repeats_itself)
{
	uint32_t first[200], n = 0;

	for (int round = 0; round < 2; round++) {
		struct pair p;

		open_pair(&p);
		script("seed=42; drop imm p=0.3");
		for (uint32_t i = 0; i < 200; i++)
			post_imm(&p, i);
		for (uint32_t k = 0; k < 200 - faults_done(FAULT_DROP); k++) {
			uint32_t imm = expect(&p, &p.b, TP_EV_IMM).imm;

			if (round == 0)
				first[n++] = imm;
			else
				ck_assert_uint_eq(imm, first[k]);
		}
		ck_assert_uint_gt(faults_done(FAULT_DROP), 20);
		pair_close(&p);
	}
}
END_TEST

int main(void)
{
	static char uri[64];
	Suite *suite = suite_create("fault layer");
	TCase *t = tcase_create("faults");

	snprintf(uri, sizeof(uri), "shm:layer-%d", (int)getpid());
	test_uri = uri;
	tcase_set_timeout(t, 60);
	tcase_add_test(t, drops);
	tcase_add_test(t, drops_completions);
	tcase_add_test(t, repeats_and_cuts);
	tcase_add_test(t, receives_before_older_completions);
	tcase_add_test(t, reorders_lanes_only);
	tcase_add_test(t, reorders_receives);
	tcase_add_test(t, fails_calls);
	tcase_add_test(t, fails_within_a_chain);
	tcase_add_test(t, caps_and_stands_in);
	tcase_add_test(t, freezes);
	tcase_add_test(t, frozen_is_silent_at_the_end);
	tcase_add_test(t, refuses_to_accept);
	tcase_add_loop_test_raise_signal(t, zero_bytes_are_refused, SIGABRT, 0, 2);
	tcase_add_loop_test_raise_signal(t, kills, SIGKILL, 0, 2);
	tcase_add_test(t, repeats_itself);
	suite_add_tcase(suite, t);
	return run_all(srunner_create(suite));
}

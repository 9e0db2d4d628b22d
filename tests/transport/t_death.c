/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers that die: every signalled op completes exactly once, then the connection closes, once.
 */
#include "contract.h"
#include "harness.h"

#include <errno.h>
#include <sched.h>

#define RW     (TP_PEER_READ | TP_PEER_WRITE)
#define WINDOW 65536

struct scene {
	struct tp_listener *l;
	struct child child;
	struct side s;
};

/* A child in `role` that is where it wants to be. */
static void scene_open(struct scene *sc, const char *role, bool memory, int32_t spin_us)
{
	memset(sc, 0, sizeof(*sc));
	ck_ok(tp_listen(test_uri, NULL, &sc->l));
	ck_ok(tp_cq_create(spin_us, &sc->s.cq));
	child_start(&sc->child, role, tp_listener_uri(sc->l));
	sc->s.conn = accept_one(sc->l, sc->s.cq);
	if (memory)
		side_memory(&sc->s, WINDOW, RW);
	child_expect(&sc->child, '!');
}

/* After a death the same listener still takes connections. */
static void scene_close(struct scene *sc)
{
	struct side a = {0}, b = {0};

	side_free(&sc->s);
	ck_ok(tp_cq_create(0, &a.cq));
	ck_ok(tp_cq_create(0, &b.cq));
	connect_to(sc->l, NULL, &a, &b);
	ck_ok(tp_send(a.conn, "x", 1));
	struct tp_event ev = expect_alone(&b, TP_EV_MSG);

	free((void *)ev.msg);
	side_free(&a);
	side_free(&b);
	tp_listener_destroy(sc->l);
}

static void expect_death(struct side *s)
{
	struct tp_event ev = expect_past_room(NULL, s, TP_EV_CLOSED);

	ck_assert_int_lt(ev.status, 0);
	ck_assert_str_ne(tp_conn_reason(s->conn), "");
	ck_fails(tp_send(s->conn, "x", 1), ENOTCONN);
	for (int i = 0; i < 1000; i++)
		side_pump(s);
	ck_assert(!side_next(s, &ev));
}

START_TEST(after_connect)
{
	struct scene sc;

	scene_open(&sc, "idle", false, 0);
	child_kill(&sc.child);
	expect_death(&sc.s);
	scene_close(&sc);
}
END_TEST

/* It had filled its queue: what arrived is given first, in order. */
START_TEST(peer_mid_writes)
{
	struct scene sc;
	struct tp_event ev;
	uint32_t got = 0;

	scene_open(&sc, "writer", true, 0);
	child_kill(&sc.child);
	for (uint64_t start = clock_ns();;) {
		side_pump(&sc.s);
		if (side_next(&sc.s, &ev)) {
			if (ev.kind == TP_EV_CLOSED)
				break;
			ck_assert_int_eq(ev.kind, TP_EV_IMM);
			ck_assert_uint_eq(ev.imm, got);
			got++;
		}
		ck_in_time(start);
	}
	ck_assert_int_lt(ev.status, 0);
	/* A network may lose the tail with the sender; memory does not. */
	if (test_is_shm())
		ck_assert_uint_ge(got, 255);
	scene_close(&sc);
}
END_TEST

/* Signalled writes with immediates to a peer that does not poll, until full; then it dies. */
START_TEST(own_queue_full)
{
	struct scene sc;
	struct tp_event ev;
	uint64_t sent = 0, done = 0;
	int rc;

	scene_open(&sc, "deaf", true, 0);
	do {
		struct tp_op op = with_signal(with_imm(op_write(&sc.s, 0, 0, 4096), 1), sent);

		rc = tp_post(sc.s.conn, &op, 1);
		sent += rc == 1;
		ck_assert_uint_lt(sent, 100000);
	} while (rc == 1);
	ck_assert_int_eq(rc, -EAGAIN);
	child_kill(&sc.child);
	for (uint64_t start = clock_ns();;) {
		side_pump(&sc.s);
		if (side_next(&sc.s, &ev)) {
			if (ev.kind == TP_EV_CLOSED)
				break;
			if (ev.kind == TP_EV_DONE)
				ck_assert_uint_eq(ev.cookie, done++);
		}
		ck_in_time(start);
	}
	ck_assert_uint_eq(done, sent);
	ck_assert_int_lt(ev.status, 0);
	scene_close(&sc);
}
END_TEST

/* Posts of every kind go on while it dies. */
START_TEST(own_ops_while_it_dies)
{
	for (int i = 0; i < scaled(10, 3); i++) {
		struct scene sc;
		struct tp_event ev;
		uint64_t sent = 0, done = 0, killed = 0;

		scene_open(&sc, "sleeper", true, 0);
		for (uint64_t start = clock_ns();;) {
			struct tp_op op =
			    sent % 3 ? op_write(&sc.s, 0, 0, 4096) : op_read(&sc.s, 8192, 0, 4096);

			op = with_signal(sent % 3 == 1 ? with_imm(op, 1) : op, sent);
			sent += tp_post(sc.s.conn, &op, 1) == 1;
			if (!killed && sent > 100 + 37 * (uint64_t)i) {
				child_kill(&sc.child);
				killed = 1;
			}
			side_pump(&sc.s);
			while (side_next(&sc.s, &ev)) {
				if (ev.kind == TP_EV_CLOSED)
					goto closed;
				if (ev.kind == TP_EV_DONE)
					ck_assert_uint_eq(ev.cookie, done++);
			}
			ck_in_time(start);
		}
	closed:
		ck_assert_uint_eq(done, sent);
		ck_assert_int_lt(ev.status, 0);
		scene_close(&sc);
	}
}
END_TEST

START_TEST(peer_while_reading)
{
	struct scene sc;

	scene_open(&sc, "reader", true, 0);
	child_kill(&sc.child);
	expect_death(&sc.s);
	scene_close(&sc);
}
END_TEST

START_TEST(peer_asleep)
{
	struct scene sc;

	scene_open(&sc, "sleeper", true, 0);
	child_kill(&sc.child);
	expect_death(&sc.s);
	scene_close(&sc);
}
END_TEST

/* This side sleeps, or spins for ever, and learns of it. */
static void learns_while_waiting(int32_t spin_us)
{
	struct scene sc;

	scene_open(&sc, "idle", false, spin_us);
	ck_assert_int_eq(tp_cq_wait(sc.s.cq, 20), 0);
	child_kill(&sc.child);
	for (uint64_t start = clock_ns(); !sc.s.closed; ck_in_time(start)) {
		tp_cq_wait(sc.s.cq, 10000);
		side_pump(&sc.s);
	}
	expect_death(&sc.s);
	scene_close(&sc);
}

START_TEST(learns_asleep)
{
	learns_while_waiting(0);
}
END_TEST

START_TEST(learns_spinning)
{
	learns_while_waiting(TP_SPIN_FOREVER);
}
END_TEST

START_TEST(connector_mid_handshake)
{
	struct tp_listener *l;
	struct child child;
	struct scene sc = {0};

	ck_ok(tp_listen(test_uri, NULL, &l));
	ck_ok(tp_cq_create(0, &sc.s.cq));
	child_start(&child, "knocker", tp_listener_uri(l));
	child_expect(&child, '!');
	/* Some time in its connect; any moment will do. */
	for (int i = 0; i < 200; i++)
		sched_yield();
	child_kill(&child);
	for (int i = 0; i < 50; i++) {
		int rc = tp_accept(l, sc.s.cq, NULL, &sc.s.conn);

		if (rc == 1) {
			expect_death(&sc.s);
			tp_conn_destroy(sc.s.conn);
			sc.s.conn = NULL;
			sc.s.closed = false;
		}
	}
	sc.l = l;
	scene_close(&sc);
}
END_TEST

START_TEST(listener_dies)
{
	struct child child;
	struct side s = {0};
	char uri[400];

	ck_ok(tp_cq_create(0, &s.cq));
	child_start(&child, "listener", test_uri);
	child_line(&child, uri, sizeof(uri));
	ck_ok(tp_connect(uri, NULL, s.cq, NULL, &s.conn));
	child_expect(&child, '!');
	child_kill(&child);
	expect_death(&s);
	struct tp_conn *conn = NULL;

	ck_fails(tp_connect(uri, NULL, s.cq, NULL, &conn), ECONNREFUSED);
	side_free(&s);
}
END_TEST

TCase *death_tests(void)
{
	TCase *t = tcase_create("death");

	tcase_set_timeout(t, 240);
	tcase_add_test(t, after_connect);
	tcase_add_test(t, peer_mid_writes);
	tcase_add_test(t, own_queue_full);
	tcase_add_test(t, own_ops_while_it_dies);
	tcase_add_test(t, peer_while_reading);
	tcase_add_test(t, peer_asleep);
	tcase_add_test(t, learns_asleep);
	tcase_add_test(t, learns_spinning);
	tcase_add_test(t, connector_mid_handshake);
	tcase_add_test(t, listener_dies);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Full queues: both budgets, room again, several threads.
 */
#include "contract.h"
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define RW (TP_PEER_READ | TP_PEER_WRITE)

/* Posts numbered immediates while they are taken; returns the next number. */
static uint32_t post_until_full(struct side *s, uint32_t from, uint32_t end)
{
	while (from < end) {
		struct tp_op op = with_imm(op_write(s, 0, 0, 16), from);
		int rc = tp_post(s->conn, &op, 1);

		if (rc == -EAGAIN)
			return from;
		ck_ok(rc);
		from++;
	}
	return from;
}

/* The receiver does not poll: the credits run out, and nothing is lost. */
START_TEST(receiver_not_polling)
{
	struct pair_options opt = {.a = {.depth = 32}, .b = {.depth = 32}};
	struct pair p;
	struct tp_event ev;

	pair_open(&p, &opt);
	pair_memory(&p, 4096, RW);
	uint32_t end = (uint32_t)scaled(5000, 500), sent = 0, got = 0;
	/* Until it is full, however often this side polls. */
	for (int i = 0; i < 200; i++) {
		sent = post_until_full(&p.a, sent, end);
		side_pump(&p.a);
		sched_yield();
	}
	ck_assert_uint_ge(sent, 16);
	ck_assert_uint_le(sent, 256);
	/* The other budget is not touched: a WRITE that wakes nobody passes. */
	struct tp_op op = with_signal(op_write(&p.a, 0, 64, 16), 5);

	ck_assert_int_eq(tp_post(p.a.conn, &op, 1), 1);
	while (side_next(&p.a, &ev))
		ck_assert(ev.kind == TP_EV_ROOM || ev.kind == TP_EV_DONE);

	bool full = post_until_full(&p.a, sent, sent + 1) == sent;

	ck_assert(full);
	for (uint64_t start = clock_ns(); got < end;) {
		side_pump(&p.b);
		while (side_next(&p.b, &ev)) {
			ck_assert_int_eq(ev.kind, TP_EV_IMM);
			ck_assert_uint_eq(ev.imm, got);
			got++;
		}
		side_pump(&p.a);
		bool room = false;

		while (side_next(&p.a, &ev))
			room |= ev.kind == TP_EV_ROOM;
		/* Only an event says that it may be tried again. */
		if (room || !full) {
			uint32_t now = post_until_full(&p.a, sent, end);

			full = now < end;
			sent = now;
		}
		ck_in_time(start);
	}
	pair_close(&p);
}
END_TEST

/* This side does not poll: its completions fill the queue, whatever the receiver does. */
START_TEST(sender_not_polling)
{
	struct pair_options opt = {.a = {.depth = 32}, .b = {.depth = 32}};
	struct pair p;
	uint64_t done = 0, sent = 0;
	int rc;

	pair_open(&p, &opt);
	pair_memory(&p, 4096, RW);
	do {
		struct tp_op op = with_signal(op_write(&p.a, 0, 0, 16), sent);

		rc = tp_post(p.a.conn, &op, 1);
		sent += rc == 1;
		ck_assert_uint_lt(sent, 100000);
	} while (rc == 1);
	ck_assert_int_eq(rc, -EAGAIN);
	bool room = false;

	for (uint64_t start = clock_ns(); done < sent || !room;) {
		struct tp_event ev;

		side_pump(&p.a);
		while (side_next(&p.a, &ev)) {
			room |= ev.kind == TP_EV_ROOM;
			if (ev.kind != TP_EV_DONE)
				continue;
			ck_assert_uint_eq(ev.cookie, done);
			ck_assert_int_eq(ev.status, 0);
			done++;
		}
		ck_in_time(start);
	}
	struct tp_op op = with_imm(op_write(&p.a, 0, 0, 16), 1);

	ck_assert_int_eq(tp_post(p.a.conn, &op, 1), 1);
	expect(&p, &p.b, TP_EV_IMM);
	pair_close(&p);
}
END_TEST

/* A chain is taken as far as there is room, in order. */
START_TEST(chain_prefix)
{
	struct pair_options opt = {.a = {.depth = 16}, .b = {.depth = 16}};
	struct pair p;
	struct tp_op ops[64];
	uint32_t sent = 0, got = 0;

	pair_open(&p, &opt);
	pair_memory(&p, 4096, RW);
	for (uint64_t start = clock_ns(); got < 640;) {
		int n = 0;

		while (n < 64 && sent + (uint32_t)n < 640) {
			ops[n] = with_imm(op_write(&p.a, 0, 0, 8), sent + (uint32_t)n);
			n++;
		}
		int rc = n ? tp_post(p.a.conn, ops, n) : 0;

		if (rc != -EAGAIN)
			ck_ok(rc);
		sent += rc > 0 ? (uint32_t)rc : 0;
		side_pump(&p.a);
		side_pump(&p.b);
		for (struct tp_event ev; side_next(&p.b, &ev); got++)
			ck_assert_uint_eq(ev.imm, got);
		ck_in_time(start);
	}
	pair_close(&p);
}
END_TEST

struct poster {
	struct side *side;
	uint32_t id, n;
	pthread_t thread;
};

static void *post_numbered(void *arg)
{
	struct poster *po = arg;
	uint64_t start = clock_ns();

	for (uint32_t i = 0; i < po->n;) {
		size_t at = po->id * 1024;
		struct tp_op ops[2] = {
		    op_write(po->side, at, at, 512),
		    with_signal(
			with_imm(op_write(po->side, at + 512, at + 512, 512), po->id << 24 | i),
			po->id << 24 | i),
		};
		int rc = tp_post(po->side->conn, ops, 2);

		if (rc == 1)
			while ((rc = tp_post(po->side->conn, &ops[1], 1)) == -EAGAIN)
				sched_yield();
		if (rc == -EAGAIN) {
			sched_yield();
			ck_in_time(start);
			continue;
		}
		ck_ok(rc);
		i++;
	}
	return NULL;
}

START_TEST(threads_posting)
{
	enum { N = 4 };
	struct poster po[N];
	uint32_t imm[N] = {0}, done[N] = {0}, total = 0, each = (uint32_t)scaled(5000, 300);
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 8192, RW);
	for (uint32_t i = 0; i < N; i++) {
		po[i] = (struct poster){.side = &p.a, .id = i, .n = each};
		pthread_create(&po[i].thread, NULL, post_numbered, &po[i]);
	}
	for (uint64_t start = clock_ns(); total < 2 * N * each;) {
		struct tp_event ev;

		if (side_pump(&p.a) + side_pump(&p.b) == 0)
			sched_yield();
		while (side_next(&p.b, &ev)) {
			uint32_t id = ev.imm >> 24;

			ck_assert_int_eq(ev.kind, TP_EV_IMM);
			ck_assert_uint_lt(id, N);
			ck_assert_uint_eq(ev.imm & 0xffffff, imm[id]);
			imm[id]++;
			total++;
		}
		while (side_next(&p.a, &ev)) {
			if (ev.kind == TP_EV_ROOM)
				continue;
			uint32_t id = (uint32_t)ev.cookie >> 24;

			ck_assert_int_eq(ev.kind, TP_EV_DONE);
			ck_assert_int_eq(ev.status, 0);
			ck_assert_uint_eq(ev.cookie & 0xffffff, done[id]);
			done[id]++;
			total++;
		}
		ck_in_time(start);
	}
	for (int i = 0; i < N; i++)
		pthread_join(po[i].thread, NULL);
	pair_close(&p);
}
END_TEST

struct counter {
	struct side *side;
	size_t offset;
	uint64_t n;
	pthread_t thread;
};

static void *count_up(void *arg)
{
	struct counter *c = arg;
	uint64_t start = clock_ns();

	for (uint64_t i = 1; i <= c->n; i++) {
		struct tp_op op = op_write(c->side, 0, c->offset, 8);
		int rc;

		op.local = &i;
		op.region = NULL;
		while ((rc = tp_post(c->side->conn, &op, 1)) == -EAGAIN) {
			sched_yield();
			ck_in_time(start);
		}
		ck_ok(rc);
	}
	return NULL;
}

/* 8-byte counters by several threads: whole, never going back. */
START_TEST(threads_counting)
{
	enum { N = 3 };
	struct counter c[N];
	uint64_t seen[N] = {0}, each = (uint64_t)scaled(100000, 2000);
	bool all;
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 4096, RW);
	for (size_t i = 0; i < N; i++) {
		c[i] = (struct counter){.side = &p.a, .offset = i * 64, .n = each};
		pthread_create(&c[i].thread, NULL, count_up, &c[i]);
	}
	uint64_t start = clock_ns();

	do {
		all = true;
		for (size_t i = 0; i < N; i++) {
			uint64_t now =
			    atomic_load((_Atomic uint64_t *)(side_window(&p.b) + i * 64));

			ck_assert_uint_ge(now, seen[i]);
			ck_assert_uint_le(now, each);
			seen[i] = now;
			all &= now == each;
		}
		side_pump(&p.a);
		sched_yield();
		ck_in_time(start);
	} while (!all);
	for (int i = 0; i < N; i++)
		pthread_join(c[i].thread, NULL);
	pair_close(&p);
}
END_TEST

TCase *queue_tests(void)
{
	TCase *t = tcase_create("queues");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, receiver_not_polling);
	tcase_add_test(t, sender_not_polling);
	tcase_add_test(t, chain_prefix);
	tcase_add_test(t, threads_posting);
	tcase_add_test(t, threads_counting);
	return t;
}

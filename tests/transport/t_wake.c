/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting and waking.
 */
#include "contract.h"
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define RW (TP_PEER_READ | TP_PEER_WRITE)

START_TEST(timeouts)
{
	struct pair p;

	pair_open(&p, NULL);
	uint64_t start = clock_ns();

	ck_assert_int_eq(tp_cq_wait(p.a.cq, 0), 0);
	ck_assert_uint_lt(clock_ns() - start, 1 * NS_PER_S);
	start = clock_ns();
	ck_assert_int_eq(tp_cq_wait(p.a.cq, 50), 0);
	ck_assert_uint_ge(clock_ns() - start, 50 * NS_PER_MS);
	ck_ok(tp_send(p.b.conn, "x", 1));
	ck_assert_int_eq(tp_cq_wait(p.a.cq, 10000), 1);
	/* It stays true until it is polled. */
	ck_assert_int_eq(tp_cq_wait(p.a.cq, 0), 1);
	ck_assert_int_eq(tp_cq_wait(p.a.cq, -1), 1);
	free((void *)expect(&p, &p.a, TP_EV_MSG).msg);
	pair_close(&p);
}
END_TEST

START_TEST(wake_before)
{
	struct tp_cq *cq;

	ck_ok(tp_cq_create(0, &cq));
	tp_cq_wake(cq);
	tp_cq_wake(cq);
	ck_assert_int_eq(tp_cq_wait(cq, -1), 1);
	/* Both went into one. */
	ck_assert_int_eq(tp_cq_wait(cq, 10), 0);
	tp_cq_destroy(cq);
}
END_TEST

/* A word that moves ends a wait that polls, now and then, and nothing else does. */
START_TEST(a_word_that_is_looked_at)
{
	struct tp_cq *cq;
	uint64_t word = 7;

	ck_ok(tp_cq_create(TP_SPIN_FOREVER, &cq));
	tp_cq_look_at(cq, &word, 7);
	ck_assert_int_eq(tp_cq_wait(cq, 10), 0);
	word = 8;
	ck_assert_int_eq(tp_cq_wait(cq, -1), 1);
	tp_cq_look_at(cq, NULL, 0);
	ck_assert_int_eq(tp_cq_wait(cq, 10), 0);
	tp_cq_destroy(cq);
}
END_TEST

struct waker {
	struct tp_cq *cq;
	_Atomic uint32_t woken;
	uint32_t rounds;
};

static void *wake_each_round(void *arg)
{
	struct waker *w = arg;

	for (uint32_t i = 0; i < w->rounds; i++) {
		tp_cq_wake(w->cq);
		for (uint64_t start = clock_ns(); atomic_load(&w->woken) <= i;)
			ck_in_time(start);
	}
	return NULL;
}

/* No wake is lost, however close to going to sleep it comes. */
static void wake_often(int32_t spin_us, uint32_t rounds)
{
	struct waker w = {.rounds = rounds};
	pthread_t thread;

	ck_ok(tp_cq_create(spin_us, &w.cq));
	pthread_create(&thread, NULL, wake_each_round, &w);
	for (uint32_t i = 0; i < rounds; i++) {
		ck_assert_int_eq(tp_cq_wait(w.cq, 20000), 1);
		atomic_store(&w.woken, i + 1);
	}
	pthread_join(thread, NULL);
	tp_cq_destroy(w.cq);
}

START_TEST(wake_asleep)
{
	wake_often(0, (uint32_t)scaled(20000, 1000));
}
END_TEST

START_TEST(wake_spinning)
{
	wake_often(20, (uint32_t)scaled(2000, 200));
	wake_often(TP_SPIN_FOREVER, (uint32_t)scaled(1000, 100));
}
END_TEST

struct player {
	struct side *side;
	uint32_t rounds;
	bool first;
};

/* Immediates there and back, each side waiting for the other's. */
static void *play(void *arg)
{
	struct player *pl = arg;
	struct side *s = pl->side;
	uint32_t got = 0, sent = 0;
	struct tp_event ev;

	while (got < pl->rounds) {
		while (sent < got + (pl->first ? 1 : 0) && sent < pl->rounds) {
			struct tp_op op = with_imm(op_write(s, 0, 0, 8), sent);

			side_post(s, NULL, &op);
			sent++;
		}
		if (!side_next(s, &ev)) {
			ck_assert_msg(tp_cq_wait(s->cq, 20000) == 1, "asleep after %u of %u", got,
				      pl->rounds);
			side_pump(s);
			continue;
		}
		if (ev.kind == TP_EV_ROOM)
			continue;
		ck_assert_int_eq(ev.kind, TP_EV_IMM);
		ck_assert_uint_eq(ev.imm, got);
		got++;
	}
	if (!pl->first) {
		struct tp_op op = with_imm(op_write(s, 0, 0, 8), sent);

		side_post(s, NULL, &op);
	}
	return NULL;
}

static void ping_pong(int32_t spin_us, uint32_t rounds)
{
	struct pair_options opt = {.spin_us = spin_us};
	struct pair p;
	pthread_t thread;

	pair_open(&p, &opt);
	pair_memory(&p, 4096, RW);
	struct player a = {.side = &p.a, .rounds = rounds, .first = true};
	struct player b = {.side = &p.b, .rounds = rounds};

	pthread_create(&thread, NULL, play, &b);
	play(&a);
	pthread_join(thread, NULL);
	pair_close(&p);
}

START_TEST(imm_wakes_sleeper)
{
	ping_pong(0, (uint32_t)scaled(20000, 500));
}
END_TEST

START_TEST(imm_wakes_spinner)
{
	ping_pong(10, (uint32_t)scaled(5000, 500));
	ping_pong(TP_SPIN_FOREVER, (uint32_t)scaled(1000, 100));
}
END_TEST

struct flood {
	struct side *side;
	uint32_t n;
	_Atomic bool over; /* all has come */
};

/* Sends, and sleeps when there is no room. */
static void *flood_asleep(void *arg)
{
	struct flood *f = arg;
	struct side *s = f->side;

	for (uint32_t i = 0; i < f->n;) {
		struct tp_op op = with_imm(op_write(s, 0, 0, 8), i);
		int rc = tp_post(s->conn, &op, 1);
		bool room = rc != -EAGAIN;

		if (room) {
			ck_ok(rc);
			i++;
		}
		while (!room) {
			struct tp_event ev;

			ck_assert_msg(tp_cq_wait(s->cq, 20000) == 1, "no room after %u of %u", i,
				      f->n);
			side_pump(s);
			while (side_next(s, &ev))
				room |= ev.kind == TP_EV_ROOM;
		}
	}
	/* Where something stands in for immediate data, the last may still wait for room. */
	while (!atomic_load(&f->over)) {
		tp_cq_wait(s->cq, 10);
		side_pump(s);
	}
	return NULL;
}

START_TEST(room_wakes_sleeper)
{
	struct pair_options opt = {.a = {.depth = 16}, .b = {.depth = 16}};
	uint32_t n = (uint32_t)scaled(50000, 1000);
	struct pair p;
	pthread_t thread;

	pair_open(&p, &opt);
	pair_memory(&p, 4096, RW);
	struct flood f = {.side = &p.b, .n = n};

	pthread_create(&thread, NULL, flood_asleep, &f);
	for (uint32_t got = 0; got < n;) {
		struct tp_event ev;

		if (!side_next(&p.a, &ev)) {
			ck_assert_msg(tp_cq_wait(p.a.cq, 20000) == 1, "asleep after %u of %u", got,
				      n);
			side_pump(&p.a);
			continue;
		}
		ck_assert_uint_eq(ev.imm, got);
		got++;
	}
	atomic_store(&f.over, true);
	pthread_join(thread, NULL);
	pair_close(&p);
}
END_TEST

static void *wait_for_room(void *arg)
{
	struct side *s = arg;
	struct tp_event ev = {.kind = TP_EV_DONE};

	do {
		ck_assert_msg(tp_cq_wait(s->cq, 20000) == 1, "no room");
		side_pump(s);
		while (side_next(s, &ev) && ev.kind != TP_EV_ROOM)
			;
	} while (ev.kind != TP_EV_ROOM);
	return NULL;
}

/* The poller sleeps already when another thread finds no room: it must wait for room as well now.
 */
START_TEST(room_wakes_other_sleeper)
{
	struct pair_options opt = {.a = {.depth = 16}, .b = {.depth = 16}};

	for (int i = 0; i < scaled(20, 5); i++) {
		struct timespec ms = {.tv_nsec = 2000000};
		struct tp_event ev = {.kind = TP_EV_DONE};
		struct pair p;
		pthread_t thread;
		int rc;

		pair_open(&p, &opt);
		pair_memory(&p, 4096, RW);
		side_pump(&p.b);
		pthread_create(&thread, NULL, wait_for_room, &p.b);
		nanosleep(&ms, NULL); /* so that it sleeps; right either way */
		do {
			struct tp_op op = with_imm(op_write(&p.b, 0, 0, 8), 1);

			rc = tp_post(p.b.conn, &op, 1);
		} while (rc == 1);
		ck_assert_int_eq(rc, -EAGAIN);
		while (!side_next(&p.a, &ev))
			side_pump(&p.a);
		/* Over a network its own poller takes part in what makes room. */
		for (uint64_t start = clock_ns(); pthread_tryjoin_np(thread, NULL) != 0;) {
			side_pump(&p.a);
			sched_yield();
			ck_in_time(start);
		}
		pair_free(&p);
	}
}
END_TEST

static void *wait_for_event(void *arg)
{
	struct side *s = arg;
	struct tp_event ev;

	while (!side_next(s, &ev)) {
		tp_cq_wait(s->cq, -1);
		side_pump(s);
	}
	ck_assert_int_eq(ev.kind, TP_EV_CLOSED);
	return NULL;
}

/* A thread that sleeps learns that another closed its connection. */
START_TEST(close_wakes_sleeper)
{
	struct pair p;
	pthread_t thread;

	pair_open(&p, NULL);
	pthread_create(&thread, NULL, wait_for_event, &p.a);
	struct timespec ms = {.tv_nsec = 5000000};

	nanosleep(&ms, NULL); /* so that it sleeps; right either way */
	tp_conn_close(p.a.conn);
	pthread_join(thread, NULL);
	expect_alone(&p.b, TP_EV_CLOSED);
	pair_free(&p);
}
END_TEST

TCase *wake_tests(void)
{
	TCase *t = tcase_create("wake");

	tcase_set_timeout(t, 240);
	tcase_add_test(t, timeouts);
	tcase_add_test(t, wake_before);
	tcase_add_test(t, a_word_that_is_looked_at);
	tcase_add_test(t, wake_asleep);
	tcase_add_test(t, wake_spinning);
	tcase_add_test(t, imm_wakes_sleeper);
	tcase_add_test(t, imm_wakes_spinner);
	tcase_add_test(t, room_wakes_sleeper);
	tcase_add_test(t, room_wakes_other_sleeper);
	tcase_add_test(t, close_wakes_sleeper);
	return t;
}

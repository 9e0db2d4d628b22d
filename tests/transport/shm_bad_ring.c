/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers that lie in the ring: entries, counts, farewells, and whatever they write over.
 */
#include "shm_stage.h"

/* The hand-made peer is right about the protocol: an honest entry is taken. */
START_TEST(honest_entries)
{
	struct stage st;

	stage_open(&st);
	put_entry(&st, 0, 1, RING_IMM, 0xffffffff, 1u << 30);
	memcpy(st.msgs + TP_MSG_MAX, "hello", 5);
	put_entry(&st, 1, 2, RING_MSG, 0, 5);
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_IMM);
	ck_assert_uint_eq(ev.imm, 0xffffffff);
	ck_assert_uint_eq(ev.len, 1u << 30);
	ev = next_event(&st);
	ck_assert_int_eq(ev.kind, TP_EV_MSG);
	ck_assert(!memcmp(ev.msg, "hello", 5));
	/* What was handed out is no longer the peer's to change. */
	memset(st.msgs, 'X', 16 * TP_MSG_MAX);
	ck_assert(!memcmp(ev.msg, "hello", 5));
	stage_close(&st);
}
END_TEST

static const struct {
	uint32_t seq, kind, len;
} bad_entries[] = {
    {2, RING_IMM, 8},
    {17, RING_IMM, 8},
    {UINT32_MAX, RING_IMM, 8},
    {1, 0, 8},
    {1, 3, 8},
    {1, UINT32_MAX, 8},
    {1, RING_IMM, 0},
    {1, RING_IMM, (1u << 30) + 1},
    {1, RING_IMM, UINT32_MAX},
    {1, RING_MSG, 0},
    {1, RING_MSG, TP_MSG_MAX + 1},
    {1, RING_MSG, UINT32_MAX},
};

START_TEST(bad_entry)
{
	struct stage st;

	stage_open(&st);
	put_entry(&st, 0, bad_entries[_i].seq, bad_entries[_i].kind, 7, bad_entries[_i].len);
	expect_refusal(&st);
	/* And it is told why. */
	ck_assert_uint_eq(atomic_load(&st.shared->side[0].bye), SHM_BYE_BROKEN);
	ck_assert_str_eq(st.shared->side[0].why, tp_conn_reason(st.victim));
	stage_close(&st);
}
END_TEST

/* The first is good, and is given; the slot after it lies. */
START_TEST(bad_after_good)
{
	struct stage st;

	stage_open(&st);
	put_entry(&st, 1, 99, RING_IMM, 1, 8);
	put_entry(&st, 0, 1, RING_IMM, 42, 8);
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_IMM);
	ck_assert_uint_eq(ev.imm, 42);
	expect_refusal(&st);
	stage_close(&st);
}
END_TEST

static const uint32_t bad_counts[] = {17, 1000, UINT32_MAX, 0x80000000u};

/* It says it took what was never sent. */
START_TEST(bad_count)
{
	struct stage st;
	int rc;

	stage_open(&st);
	atomic_store(&st.shared->side[1].taken, bad_counts[_i]);
	do {
		rc = tp_send(st.victim, "x", 1);
	} while (rc == 0);
	ck_assert_msg(rc == -ENOTCONN, "%d: %s", rc, err_text());
	expect_refusal(&st);
	stage_close(&st);
}
END_TEST

/* It keeps adding credits after the fact: found by the poller that waits for room. */
START_TEST(bad_count_while_starved)
{
	struct stage st;
	int rc;

	stage_open(&st);
	do {
		rc = tp_send(st.victim, "x", 1);
	} while (rc == 0);
	ck_assert_int_eq(rc, -EAGAIN);
	atomic_store(&st.shared->side[1].taken, 0xfffffff0u);
	expect_refusal(&st);
	stage_close(&st);
}
END_TEST

START_TEST(bad_farewell)
{
	struct stage st;

	stage_open(&st);
	memset(st.shared->side[1].why, '\x1b', SHM_WHY);
	atomic_store(&st.shared->side[1].bye, 4711);
	shutdown(st.sock, SHUT_RDWR);
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, -EPROTO);
	for (const char *c = tp_conn_reason(st.victim); *c; c++)
		ck_assert(*c >= ' ' && *c < 127);
	stage_close(&st);
}
END_TEST

/* After hanging up it goes on filling the ring: what is given is bounded. */
START_TEST(entries_after_hang_up)
{
	uint64_t until = clock_ns() + WAIT_NS;
	uint32_t pos = 0;
	struct stage st;
	struct tp_event ev;

	stage_open(&st);
	do {
		/* The ring is full at every poll. */
		while (pos - atomic_load(&st.shared->side[0].taken) < 16) {
			put_entry(&st, ring_slot(16, pos), ring_seq(pos), RING_IMM, 1, 8);
			pos++;
		}
		if (pos == 100)
			shutdown(st.sock, SHUT_RDWR);
		ev = next_event(&st);
		ck_assert_msg(clock_ns() < until, "%u entries, and no end", pos);
	} while (ev.kind != TP_EV_CLOSED);
	ck_assert_uint_ge(pos, 100);
	stage_close(&st);
}
END_TEST

/* Everything it was given is written over at random while the victim works. */
struct scribbler {
	struct stage *st;
	unsigned seed;
	_Atomic bool stop;
};

static void *scribble(void *arg)
{
	struct scribbler *sc = arg;
	struct stage *st = sc->st;
	unsigned n = sc->seed;
	size_t front = shm_msgs_at(16, 0);

	while (!atomic_load(&sc->stop)) {
		n = n * 1103515245 + 12345;
		size_t at = (n >> 4) % (front / 4);
		uint32_t value = n & 7 ? n >> 24 : n;

		atomic_store((_Atomic uint32_t *)st->segment + at, value);
		/* Mostly entries that are all but right. */
		uint32_t taken = atomic_load(&st->shared->side[0].taken);

		atomic_store(&st->ring[taken & 15].len, n >> 18);
		atomic_store(&st->ring[taken & 15].kind, 1 + (n >> 13 & 1));
		atomic_store(&st->ring[taken & 15].seq, taken + 1);
	}
	return NULL;
}

START_TEST(scribbled)
{
	for (unsigned round = 0; round < 60; round++) {
		struct stage st;
		pthread_t thread;
		struct tp_event ev;
		bool closed = false;

		stage_open(&st);
		struct scribbler sc = {.st = &st, .seed = round * 7919 + 1};

		pthread_create(&thread, NULL, scribble, &sc);
		for (uint64_t until = clock_ns() + NS_PER_S; !closed && clock_ns() < until;) {
			tp_send(st.victim, "some words", 10);
			closed = tp_cq_poll(st.cq, &ev, 1) == 1 && ev.kind == TP_EV_CLOSED;
		}
		atomic_store(&sc.stop, true);
		pthread_join(thread, NULL);
		ck_assert_msg(closed, "round %u: it believes everything", round);
		tp_conn_destroy(st.victim);
		st.victim = NULL;
		if (round % 20 == 0) {
			stage_close(&st);
			continue;
		}
		tp_listener_destroy(st.l);
		tp_cq_destroy(st.cq);
		munmap(st.segment, st.size);
		close(st.sock);
	}
}
END_TEST

TCase *ring_case(void)
{
	TCase *t = tcase_create("ring");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, honest_entries);
	tcase_add_loop_test(t, bad_entry, 0, (int)(sizeof(bad_entries) / sizeof(*bad_entries)));
	tcase_add_test(t, bad_after_good);
	tcase_add_loop_test(t, bad_count, 0, (int)(sizeof(bad_counts) / sizeof(*bad_counts)));
	tcase_add_test(t, bad_count_while_starved);
	tcase_add_test(t, bad_farewell);
	tcase_add_test(t, entries_after_hang_up);
	tcase_add_test(t, scribbled);
	return t;
}

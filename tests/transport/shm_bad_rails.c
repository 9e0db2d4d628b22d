/* SPDX-License-Identifier: Apache-2.0
 *
 * Rails that don't belong together, or lie.
 */
#include "shm_stage.h"

static int knock(uint64_t bundle, uint32_t rails, uint32_t rail)
{
	struct shm_hello h = good_hello();
	int sock = raw_connect();

	h.bundle = bundle;
	h.rails = rails;
	h.rail = rail;
	raw_send(sock, &h, sizeof(h), NULL, 0);
	return sock;
}

static void accept_none(struct stage *st)
{
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(tp_accept(st->l, st->cq, NULL, &st->victim), 0);
}

static void expect_status(int sock, int status)
{
	struct shm_welcome w;
	int fd;

	ck_assert_int_eq(raw_recv(sock, &w, sizeof(w), &fd), sizeof(w));
	ck_assert_int_eq(w.status, status);
	ck_assert_int_eq(fd, -1);
	close(sock);
}

/* Refused at once, and those that it would have joined are not disturbed. */
START_TEST(bad_rail)
{
	static const struct {
		uint32_t rails, rail;
	} bad[] = {{1, 0}, {9, 0}, {UINT32_MAX, 0}, {2, 2}, {2, UINT32_MAX}, {2, 0}, {3, 1}};
	struct stage st;

	stage_listen(&st);
	int first = knock(77, 2, 0);

	accept_none(&st);
	int wrong = knock(77, bad[_i].rails, bad[_i].rail);

	accept_none(&st);
	expect_status(wrong, EPROTO);
	int second = knock(77, 2, 1);
	struct shm_welcome w;
	int fd[2];

	ck_assert_int_eq(accept_within(&st, WAIT_NS), 1);
	ck_assert_int_eq(raw_recv(first, &w, sizeof(w), &fd[0]), sizeof(w));
	ck_assert_int_eq(w.status, 0);
	ck_assert_int_eq(raw_recv(second, &w, sizeof(w), &fd[1]), sizeof(w));
	ck_assert_int_eq(w.status, 0);
	ck_assert_uint_eq(tp_conn_limits(st.victim).rails, 2);
	close(fd[0]);
	close(fd[1]);
	close(first);
	close(second);
	stage_close(&st);
}
END_TEST

/* Bundles that are never completed: they have few places, and those who come later get theirs. */
START_TEST(half_bundles)
{
	enum { N = 60 };
	int socks[N], before, held;
	struct stage st;

	stage_listen(&st);
	before = count_entries("/proc/self/fd");
	for (int i = 0; i < N; i++) {
		socks[i] = knock(1000 + (uint64_t)i, 2, (uint32_t)i % 2);
		accept_none(&st);
	}
	/* The listener keeps 16 at most (and has told the rest). */
	held = count_entries("/proc/self/fd") - before - N;
	ck_assert_int_le(held, 16);
	expect_status(socks[N - 1], ECONNREFUSED);
	usleep(150000); /* they are no longer young: the next one takes a place */
	socks[N - 1] = knock(5000, 2, 0);
	accept_none(&st);
	ck_assert_int_le(count_entries("/proc/self/fd") - before - N, 16);
	int other = knock(5000, 2, 1);

	ck_assert_int_eq(accept_within(&st, WAIT_NS), 1);
	ck_assert_uint_eq(tp_conn_limits(st.victim).rails, 2);
	close(other);
	for (int i = 0; i < N; i++)
		close(socks[i]);
	stage_close(&st);
}
END_TEST

/* It is told when its time is over, though nobody else comes. */
START_TEST(half_bundle_expires)
{
	struct stage st;

	stage_listen(&st);
	int sock = knock(9, 8, 3);
	uint64_t until = clock_ns() + (TP_RAILS_WAIT_MS + 2000) * NS_PER_MS;
	struct pollfd told = {.fd = sock, .events = POLLIN};

	while (poll(&told, 1, 0) == 0 && clock_ns() < until)
		ck_assert_int_eq(accept_within(&st, 100 * NS_PER_MS), 0);
	expect_status(sock, ECONNREFUSED);
	stage_close(&st);
}
END_TEST

/* One rail of two, whose segment is at hand; the other's socket is in *other. */
static void open_rails(struct stage *st, int *other)
{
	struct shm_welcome w;
	int fd;

	stage_listen(st);
	*other = knock(4, 2, 0);
	st->sock = knock(4, 2, 1);
	ck_assert_int_eq(accept_within(st, WAIT_NS), 1);
	ck_assert_int_eq(raw_recv(*other, &w, sizeof(w), &fd), sizeof(w));
	close(fd);
	ck_assert_int_eq(raw_recv(st->sock, &w, sizeof(w), &fd), sizeof(w));
	ck_assert_int_eq(w.status, 0);
	st->size = w.segment_size;
	st->segment = mmap(NULL, st->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(st->segment, MAP_FAILED);
	st->shared = (struct shm_shared *)st->segment;
	st->ring = (struct ring_entry *)(st->segment + shm_ring_at(16, 1));
	st->msgs = st->segment + shm_msgs_at(16, 1);
	close(fd);
}

/* Messages go by rail 0: one that comes by another ends the connection, and is not handed out. */
START_TEST(message_by_another_rail)
{
	struct stage st;
	int other;

	open_rails(&st, &other);
	put_entry(&st, 0, 1, RING_IMM, 5, 8);
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_IMM);
	ck_assert_int_eq(ev.rail, 1);
	ck_assert_ptr_eq(ev.conn, st.victim);
	memcpy(st.msgs + TP_MSG_MAX, "hello", 5);
	put_entry(&st, 1, 2, RING_MSG, 0, 5);
	ev = next_event(&st);
	ck_assert_int_eq(ev.kind, TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, -EPROTO);
	ck_assert_ptr_nonnull(strstr(tp_conn_reason(st.victim), "rail 1"));
	close(other);
	stage_close(&st);
}
END_TEST

/* A rail that hangs up, or lies, takes the others along, also when the peer keeps those open. */
START_TEST(one_rail_ends)
{
	struct stage st;
	int other;

	open_rails(&st, &other);
	if (_i == 0) {
		shutdown(other, SHUT_RDWR);
	} else {
		put_entry(&st, 0, 1, 99, 0, 8);
	}
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, _i == 0 ? -ECONNRESET : -EPROTO);
	ck_assert_ptr_eq(ev.conn, st.victim);
	close(other);
	stage_close(&st);
}
END_TEST

TCase *rails_case(void)
{
	TCase *t = tcase_create("rails");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, bad_rail, 0, 7);
	tcase_add_test(t, half_bundles);
	tcase_add_test(t, half_bundle_expires);
	tcase_add_test(t, message_by_another_rail);
	tcase_add_loop_test(t, one_rail_ends, 0, 2);
	return t;
}

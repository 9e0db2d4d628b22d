/* SPDX-License-Identifier: Apache-2.0
 *
 * What is under way on a real device: receives are there, READs keep to what both allow, chains are
 * posted as a whole, and nothing lands behind the end.
 */
#include "verbs_device.h"

#include <dirent.h>
#include <fcntl.h>

/* The sum of the device's counters that speak of RNR. */
static unsigned long rnr_count(void)
{
	char path[512];
	unsigned long sum = 0;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters",
		 env("RDMA_DEV"));
	DIR *dir = opendir(path);
	int counters = 0;

	for (struct dirent *at; dir && (at = readdir(dir));) {
		char file[1024];
		unsigned long value = 0;

		if (!strstr(at->d_name, "rnr"))
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, at->d_name);
		FILE *f = fopen(file, "re");

		if (f && fscanf(f, "%lu", &value) == 1) {
			sum += value;
			counters++;
		}
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	ck_assert_msg(counters > 0 || is_iwarp(), "no counter of RNR in %s", path);
	return sum;
}

/* A thousand connects, by five. */
START_TEST(no_rnr_at_start)
{
	unsigned long before = rnr_count();
	/* iWARP has no RNR, and its connections take long: each depth once shows that what was
	 * early is not what ends them. */
	int connects = is_iwarp() ? 40 : 200;
	struct served s;

	served_start(&s, NULL);
	for (int i = 0; i < connects; i++) {
		struct tp_options opt = {.depth = 1 + (uint32_t)i % 40};
		struct side b = {.cq = new_cq()};

		ck_ok(tp_connect(tp_listener_uri(s.listener), &opt, b.cq, NULL, &b.conn));
		/* As much as goes out, at once. */
		for (int k = 0; k < 50 && tp_send(b.conn, "early", 5) == 0; k++)
			;
		tp_conn_close(b.conn);
		expect_past_room(NULL, &b, TP_EV_CLOSED);
		side_free(&b);
	}
	await(&s.closed, connects);
	served_stop(&s);
	ck_assert_uint_eq(rnr_count(), before);
}
END_TEST

/* A sender that never stops, at a receiver that is slow to poll. */
START_TEST(no_rnr_under_load)
{
	struct pair_options opt = {.a.depth = 3 + 10 * (uint32_t)_i};
	unsigned long before = rnr_count();
	struct pair p;
	struct tp_event ev;
	uint32_t sent = 0, got = 0, total = 2000;

	pair_open(&p, &opt);
	pair_memory(&p, 4096, RW);
	for (uint64_t start = clock_ns(); got < total;) {
		struct tp_op op = with_imm(op_write(&p.b, 0, 0, 64), sent);

		for (int rc; sent < total && (rc = tp_post(p.b.conn, &op, 1)) != -EAGAIN;) {
			ck_ok(rc);
			op.imm = ++sent;
		}
		side_pump(&p.b);
		if (sent % 7)
			side_pump(&p.b);
		side_pump(&p.a);
		while (side_next(&p.a, &ev))
			if (ev.kind == TP_EV_IMM)
				ck_assert_uint_eq(ev.imm, got++);
		while (side_next(&p.b, &ev))
			ck_assert_int_eq(ev.kind, TP_EV_ROOM);
		ck_in_time(start);
	}
	pair_close(&p);
	ck_assert_uint_eq(rnr_count(), before);
}
END_TEST

/* A peer that allows fewer than this side could do, and asks for fewer. */
START_TEST(reads_that_both_allow)
{
	struct wire_header header = wire_header(WIRE_HI, 0, 0);
	struct side a = {.cq = new_cq()};
	struct tp_listener *l;
	struct raw raw;
	pthread_t thread;

	ck_ok(tp_listen(listen_uri, NULL, &l));
	struct knocker k = {&raw, tp_listener_uri(l), raw_hello()};

	k.hello.reads_in = (uint8_t)(1 + _i);
	k.hello.reads_out = 2;
	pthread_create(&thread, NULL, knock, &k);
	a.conn = accept_one(l, a.cq);
	pthread_join(thread, NULL);
	raw_send(&raw, &header, sizeof(header));
	ck_assert_uint_eq(tp_conn_limits(a.conn).read_depth, 1 + (uint32_t)_i);
	tp_conn_destroy(a.conn);
	tp_cq_destroy(a.cq);
	raw_free(&raw);
	tp_listener_destroy(l);
}
END_TEST

/* Many more than may be on the wire at once; two of ours have more than one there. */
START_TEST(reads_in_flight)
{
	enum { READS = 100, LEN = 512 };
	struct pair p;
	uint64_t done = 0;

	pair_open(&p, NULL);
	pair_memory(&p, READS * LEN, RW);
	ck_assert_uint_gt(tp_conn_limits(p.a.conn).read_depth, 1);
	ck_assert_uint_eq(tp_conn_limits(p.a.conn).read_depth, tp_conn_limits(p.b.conn).read_depth);
	fill(side_window(&p.b), READS * LEN, 5);
	for (size_t i = 0; i < READS; i++) {
		struct tp_op op = with_signal(op_read(&p.a, i * LEN, i * LEN, LEN), i);

		side_post(&p.a, &p.b, &op);
	}
	while (done < READS) {
		struct tp_event ev = expect_past_room(&p, &p.a, TP_EV_DONE);

		ck_assert_int_eq(ev.status, 0);
		ck_assert_uint_eq(ev.cookie, done++);
	}
	check_filled(side_local(&p.a), READS * LEN, 5);
	pair_close(&p);
}
END_TEST

struct hammer {
	struct side *side;
	enum tp_op_kind kind;
	atomic_bool ended;
};

/* WRITEs, or READs, without end. */
static void *hammer(void *arg)
{
	struct hammer *h = arg;
	struct tp_event ev;
	int rc;

	do {
		struct tp_op op = with_signal(op_write(h->side, 0, 0, 32768), 1);

		op.kind = h->kind;
		for (int i = 0; i < 8; i++)
			side_local(h->side)[i * 4096]++;
		rc = tp_post(h->side->conn, &op, 1);
		side_pump(h->side);
		while (side_next(h->side, &ev))
			;
	} while (!h->side->closed && (rc >= 0 || rc == -EAGAIN || rc == -ENOTCONN));
	h->ended = true;
	return NULL;
}

/* What a peer WRITEs and what this side READs lands before TP_EV_CLOSED or never: behind it the
 * memory is its owner's. */
START_TEST(nothing_lands_behind_the_end)
{
	struct pair p;
	struct hammer h = {.side = &p.b, .kind = _i ? TP_OP_READ : TP_OP_WRITE};
	pthread_t thread;

	pair_open(&p, NULL);
	pair_memory(&p, 32768, RW);
	memset(side_window(&p.a), 1, 32768);
	ck_assert_int_eq(pthread_create(&thread, NULL, hammer, &h), 0);
	usleep(100000);
	tp_conn_close(_i ? p.b.conn : p.a.conn);
	if (_i == 0)
		expect_alone(&p.a, TP_EV_CLOSED);
	for (uint64_t start = clock_ns(); !h.ended; side_pump(&p.a))
		ck_in_time(start);
	pthread_join(thread, NULL);
	char *memory = _i ? side_local(&p.b) : side_window(&p.a);

	memset(memory, 0x5a, 32768);
	usleep(300000);
	for (int i = 0; i < 32768; i++)
		ck_assert_msg(memory[i] == 0x5a, "byte %d was written", i);
	pair_free(&p);
}
END_TEST

/* Writes, short and long, READs, messages: by ibv_wr_* and by ibv_post_send (_i is the way). */
START_TEST(both_ways_of_posting)
{
	struct pair p;
	const size_t size = 1 << 20;

	doorbell_way = _i ? DOORBELL_OLD : DOORBELL_BEST;
	pair_open(&p, NULL);
	ck_assert_int_eq(conn_of(p.b.conn)->qp_ex != NULL, !_i && !is_iwarp());
	pair_memory(&p, size, RW);
	for (uint32_t round = 0; round < 20; round++) {
		size_t len = (size_t)1 << round;

		fill(side_local(&p.b), len, round);
		struct tp_op op = with_imm(op_write(&p.b, 0, 0, len), round);

		side_post(&p.b, &p.a, &op);
		ck_assert_uint_eq(expect_past_room(&p, &p.a, TP_EV_IMM).imm, round);
		check_filled(side_window(&p.a), len, round);
		memset(side_local(&p.b), 0, len);
		op = with_signal(op_read(&p.b, 0, 0, len), round + 1);
		side_post(&p.b, &p.a, &op);
		struct tp_event ev = expect_past_room(&p, &p.b, TP_EV_DONE);

		ck_assert_uint_eq(ev.cookie, round + 1);
		ck_assert_int_eq(ev.status, 0);
		check_filled(side_local(&p.b), len, round);
		side_send(&p.b, &p.a, "message", 8);
		ck_assert_str_eq(expect_past_room(&p, &p.a, TP_EV_MSG).msg, "message");
	}
	pair_close(&p);
}
END_TEST

/* A chain that the provider refuses posts nothing, and ends the connection; what was posted before
 * ends too, each once. */
START_TEST(a_refused_chain)
{
	struct pair p;
	struct tp_op ops[8];
	int done = 0;

	doorbell_way = _i ? DOORBELL_OLD : DOORBELL_BEST;
	pair_open(&p, NULL);
	pair_memory(&p, 65536, RW);
	struct conn *conn = conn_of(p.b.conn);
	uint32_t head = conn->sq.head;

	/* More in line than the queue pair was made for. */
	conn->base.limits.max_inline = 60000;
	for (int i = 0; i < 8; i++)
		ops[i] = with_signal(op_write(&p.b, 0, 0, i == 4 ? 50000 : 8), (uint64_t)i + 1);
	int taken = tp_post(p.b.conn, ops, 8);

	if (_i)
		ck_assert_msg(taken == 4, "%d: %s", taken, err_text());
	else
		ck_fails(taken, ENOTCONN);
	/* Nothing of it stays in the accounts but what was posted. */
	ck_assert_uint_eq(conn->sq.head - head, taken < 0 ? 0 : 4);
	for (struct tp_event ev;;) {
		ev = (struct tp_event){.kind = TP_EV_ROOM};
		while (!side_next(&p.b, &ev))
			side_pump(&p.b), side_pump(&p.a);
		if (ev.kind == TP_EV_DONE)
			ck_assert_uint_eq(ev.cookie, (uint64_t)++done);
		if (ev.kind == TP_EV_CLOSED)
			break;
	}
	ck_assert_int_eq(done, taken < 0 ? 0 : 4);
	pair_free(&p);
}
END_TEST

void verbs_flow(Suite *s)
{
	TCase *t = verbs_part(s, "rnr");

	tcase_add_loop_test(t, no_rnr_at_start, 0, 5);
	tcase_add_loop_test(t, no_rnr_under_load, 0, 2);
	t = verbs_part(s, "reads");
	tcase_add_loop_test(t, reads_that_both_allow, 0, 2);
	tcase_add_test(t, reads_in_flight);
	t = verbs_part(s, "ends");
	tcase_add_loop_test(t, nothing_lands_behind_the_end, 0, 2);
	t = verbs_part(s, "posting");
	tcase_add_loop_test(t, both_ways_of_posting, 0, 2);
	if (!is_iwarp()) /* siw's provider does not look at the length */
		tcase_add_loop_test(t, a_refused_chain, 0, 2);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages.
 */
#include "contract.h"
#include "harness.h"

#include <errno.h>

static void send_one(struct pair *p, struct side *from, struct side *to, size_t len)
{
	char msg[TP_MSG_MAX];

	fill(msg, len, (uint32_t)len);
	side_send(from, to, msg, len);
	/* Copied: what happens to it here does not matter any more. */
	memset(msg, 0xee, sizeof(msg));
	struct tp_event ev = expect(p, to, TP_EV_MSG);

	ck_assert_uint_eq(ev.len, len);
	check_filled(ev.msg, len, (uint32_t)len);
	free((void *)ev.msg);
}

START_TEST(every_size)
{
	static const size_t sizes[] = {1, 2, 63, 64, 65, 1000, TP_MSG_MAX - 1, TP_MSG_MAX};
	struct pair p;

	pair_open(&p, NULL);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		send_one(&p, &p.a, &p.b, sizes[i]);
		send_one(&p, &p.b, &p.a, sizes[i]);
	}
	pair_close(&p);
}
END_TEST

START_TEST(wrong_sizes)
{
	static const char big[TP_MSG_MAX + 1];
	struct pair p;

	pair_open(&p, NULL);
	ck_fails(tp_send(p.a.conn, big, 0), EMSGSIZE);
	ck_fails(tp_send(p.a.conn, big, TP_MSG_MAX + 1), EMSGSIZE);
	ck_fails(tp_send(p.a.conn, NULL, 1), EMSGSIZE);
	expect_none(&p, &p.b);
	send_one(&p, &p.a, &p.b, 1);
	pair_close(&p);
}
END_TEST

START_TEST(in_order_both_ways)
{
	uint32_t n = (uint32_t)scaled(20000, 2000), sent[2] = {0}, got[2] = {0};
	struct pair p;

	pair_open(&p, NULL);
	struct side *side[2] = {&p.a, &p.b};

	for (uint64_t start = clock_ns(); got[0] < n || got[1] < n;) {
		for (int i = 0; i < 2; i++) {
			while (sent[i] < n && tp_send(side[i]->conn, &sent[i], 4) == 0)
				sent[i]++;
			side_pump(side[i]);
			for (struct tp_event ev; side_next(side[i], &ev);) {
				uint32_t number;

				if (ev.kind == TP_EV_ROOM)
					continue;
				ck_assert_int_eq(ev.kind, TP_EV_MSG);
				memcpy(&number, ev.msg, 4);
				ck_assert_uint_eq(number, got[i]);
				got[i]++;
				free((void *)ev.msg);
			}
		}
		ck_in_time(start);
	}
	pair_close(&p);
}
END_TEST

/* Messages and immediates keep their order among each other. */
START_TEST(order_with_immediates)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 4096, TP_PEER_READ | TP_PEER_WRITE);
	for (uint32_t i = 0; i < 100; i++) {
		if (i % 3) {
			struct tp_op op = with_imm(op_write(&p.a, 0, 0, 8), i);

			side_post(&p.a, &p.b, &op);
		} else {
			side_send(&p.a, &p.b, &i, sizeof(i));
		}
	}
	for (uint32_t i = 0; i < 100; i++) {
		struct tp_event ev = expect(&p, &p.b, i % 3 ? TP_EV_IMM : TP_EV_MSG);

		if (i % 3) {
			ck_assert_uint_eq(ev.imm, i);
		} else {
			ck_assert(!memcmp(ev.msg, &i, sizeof(i)));
			free((void *)ev.msg);
		}
	}
	pair_close(&p);
}
END_TEST

/* Connections on one queue, of which one closes in the very poll that another's message comes in:
 * that one's next message does not take its place. */
START_TEST(beside_a_close)
{
	enum { N = 4, MANY = 64 };
	struct tp_options opt = {.max_conns = N};

	for (uint32_t round = 0; round < scaled(64, 16); round++) {
		struct side a[N] = {0}, b[N] = {0};
		struct tp_listener *l;
		struct tp_event ev[8];
		struct tp_cq *cq;
		uint32_t next = 0, closed = 0, talks = round % N;

		ck_ok(tp_listen(test_uri, &opt, &l));
		ck_ok(tp_cq_create(0, &cq));
		for (int i = 0; i < N; i++) {
			ck_ok(tp_cq_create(0, &b[i].cq));
			a[i].cq = cq;
			connect_to(l, NULL, &a[i], &b[i]);
		}
		/* Enough for the close to be noticed while there are some left. */
		for (uint32_t i = 0; i < MANY; i++)
			side_send(&b[talks], NULL, &i, sizeof(i));
		tp_conn_close(b[(talks + 1 + round / N % (N - 1)) % N].conn);
		for (uint64_t start = clock_ns(); next < MANY || !closed; ck_in_time(start)) {
			int n = tp_cq_poll(cq, ev, 8);

			for (int i = 0; i < n; i++) {
				closed += ev[i].kind == TP_EV_CLOSED;
				if (ev[i].kind != TP_EV_MSG)
					continue;
				ck_assert_msg(!memcmp(ev[i].msg, &next, sizeof(next)),
					      "not message %u", next);
				next++;
			}
		}
		for (int i = 0; i < N; i++) {
			tp_conn_destroy(a[i].conn);
			side_free(&b[i]);
		}
		tp_cq_destroy(cq);
		tp_listener_destroy(l);
	}
}
END_TEST

TCase *message_tests(void)
{
	TCase *t = tcase_create("messages");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, every_size);
	tcase_add_test(t, wrong_sizes);
	tcase_add_test(t, in_order_both_ways);
	tcase_add_test(t, order_with_immediates);
	tcase_add_test(t, beside_a_close);
	return t;
}

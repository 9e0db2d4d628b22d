/* SPDX-License-Identifier: Apache-2.0
 *
 * Deaths on a real device: of many at once, and of one that is silent from then on.
 */
#include "verbs_device.h"

#define CROWD 32

int role_crowd(const char *uri)
{
	struct tp_options opt = {.depth = 32};
	struct tp_conn *conn;
	struct tp_cq *cq;

	if (tp_cq_create(0, &cq) < 0)
		return 1;
	for (int i = 0; i < CROWD; i++)
		if (tp_connect(uri, &opt, cq, NULL, &conn) < 0 || tp_send(conn, "hello", 5) < 0) {
			fprintf(stderr, "crowd: %s\n", err_text());
			return 1;
		}
	child_say('!');
	for (struct tp_event ev[16];;)
		if (tp_cq_poll(cq, ev, 16) == 0)
			tp_cq_wait(cq, -1);
}

START_TEST(crowd_is_killed)
{
	struct served s;
	struct tp_options opt = {.max_conns = CROWD};

	served_start(&s, &opt);
	for (int i = 1; i <= (is_iwarp() ? 1 : 3); i++) {
		struct child child;

		child_start(&child, "crowd", tp_listener_uri(s.listener));
		child_expect(&child, '!');
		await(&s.msgs, i * CROWD);
		child_kill(&child);
		await(&s.closed, i * CROWD);
		ck_assert_int_eq(s.status, -ECONNRESET);
	}
	served_stop(&s);
}
END_TEST

/* A peer that no longer answers, and nobody says so: its machine is dead, or its goodbye was lost.
 */
START_TEST(silence_is_noticed)
{
	struct wire_header header = wire_header(WIRE_HI, 0, 0);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct side a = {.cq = new_cq()};
	struct tp_listener *l;
	struct tp_event ev;
	struct raw raw;
	pthread_t thread;

	if (is_iwarp()) /* TCP's to notice, in minutes */
		return;
	ck_ok(tp_listen(listen_uri, NULL, &l));
	struct knocker k = {&raw, tp_listener_uri(l), raw_hello()};

	pthread_create(&thread, NULL, knock, &k);
	a.conn = accept_one(l, a.cq);
	pthread_join(thread, NULL);
	raw_send(&raw, &header, sizeof(header));
	ck_assert_int_eq(ibv_modify_qp(raw.id->qp, &attr, IBV_QP_STATE), 0);
	side_send(&a, NULL, "anybody?", 8);
	ev = expect_alone(&a, TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(tp_conn_reason(a.conn), "does not answer"));
	side_free(&a);
	raw_free(&raw);
	tp_listener_destroy(l);
}
END_TEST

void verbs_death(Suite *s)
{
	TCase *t = verbs_part(s, "death");

	tcase_add_test(t, crowd_is_killed);
	tcase_add_test(t, silence_is_noticed);
}

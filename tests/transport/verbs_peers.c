/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers on a real device that are of another version, lie, or send nonsense.
 */
#include "verbs_device.h"

#include <arpa/inet.h>

START_TEST(old_peer_is_refused)
{
	struct served s;
	struct raw raw;
	struct hello hello = raw_hello(), answer;
	uint8_t data[256] = {0};

	served_start(&s, NULL);
	hello.version = 99;
	ck_assert_int_eq(raw_connect(&raw, tp_listener_uri(s.listener), &hello, data, sizeof(data)),
			 RDMA_CM_EVENT_REJECTED);
	ck_assert_int_eq(hello_decode(data, sizeof(data), &answer), HELLO_GOOD);
	ck_assert_uint_eq(answer.kind, HELLO_REFUSAL);
	ck_assert_uint_eq(answer.reason, HELLO_VERSIONS);
	ck_assert_uint_eq(answer.version, HELLO_VERSION);
	raw_free(&raw);
	ck_assert_int_eq(s.accepted, 0);
	served_stop(&s);
}
END_TEST

/* A hello that names another QP than it comes from: its binding would be one of the sender's
 * choice. */
START_TEST(a_lie_about_the_queue_pair)
{
	struct served s;
	struct raw raw;
	struct hello hello = raw_hello(), answer;
	uint8_t data[256] = {0};

	if (is_iwarp())
		return; /* its connection manager does not know */
	served_start(&s, NULL);
	hello.qp_num = 1;
	ck_assert_int_eq(raw_connect(&raw, tp_listener_uri(s.listener), &hello, data, sizeof(data)),
			 RDMA_CM_EVENT_REJECTED);
	ck_assert_int_eq(hello_decode(data, sizeof(data), &answer), HELLO_GOOD);
	ck_assert_uint_eq(answer.reason, HELLO_NONSENSE);
	raw_free(&raw);
	ck_assert_int_eq(s.accepted, 0);
	served_stop(&s);
}
END_TEST

/* Rejects with a hello of version 99, as a listener of another version does. */
static void *reject_thread(void *arg)
{
	struct rdma_event_channel *channel = arg;
	struct hello hello = {.version = 99, .kind = HELLO_REFUSAL, .reason = HELLO_VERSIONS};
	uint8_t data[HELLO_BYTES];
	struct rdma_cm_event *event;

	hello_encode(&hello, data);
	if (rdma_get_cm_event(channel, &event) != 0)
		return NULL;
	struct rdma_cm_id *id = event->id;

	rdma_ack_cm_event(event);
	rdma_reject(id, data, sizeof(data));
	rdma_destroy_id(id);
	return NULL;
}

START_TEST(versions_are_named)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in at = {.sin_family = AF_INET};
	struct rdma_cm_id *id;
	struct tp_cq *cq = new_cq();
	struct tp_conn *conn;
	pthread_t thread;
	char uri[96];

	inet_pton(AF_INET, env("RDMA_ADDR"), &at.sin_addr);
	ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&at), 0);
	ck_assert_int_eq(rdma_listen(id, 4), 0);
	snprintf(uri, sizeof(uri), "rdma://%s:%u", env("RDMA_ADDR"), ntohs(rdma_get_src_port(id)));
	ck_assert_int_eq(pthread_create(&thread, NULL, reject_thread, channel), 0);
	ck_fails(tp_connect(uri, NULL, cq, NULL, &conn), EPROTONOSUPPORT);
	expect_text("version 99");
	snprintf(uri, sizeof(uri), "this side version %d", HELLO_VERSION);
	expect_text(uri);
	pthread_join(thread, NULL);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	tp_cq_destroy(cq);
}
END_TEST

struct nonsense {
	const char *name;
	uint32_t kind, value, extra;
	size_t len;
	bool no_hi;
};

static const struct nonsense nonsenses[] = {
    {.name = "first message", .kind = WIRE_MSG, .value = 4, .len = 20, .no_hi = true},
    {.name = "first message", .kind = WIRE_HI, .len = 16},
    {.name = "unknown kind", .kind = 1000, .len = 16},
    {.name = "unknown kind", .kind = WIRE_MSG, .len = 7},
    {.name = "length", .kind = WIRE_MSG, .value = 0, .len = 16},
    {.name = "length", .kind = WIRE_MSG, .value = 5, .len = 20},
    {.name = "length", .kind = WIRE_MSG, .value = 0xffffffff, .len = 20},
    {.name = "length", .kind = WIRE_MSG, .value = 4100, .len = 4116},
    {.name = "not sent", .kind = WIRE_CREDIT, .value = 1, .len = 16},
    {.name = "not sent", .kind = WIRE_CREDIT, .value = 0, .len = 16},
};

START_TEST(nonsense_ends_its_connection)
{
	const struct nonsense *n = &nonsenses[_i];
	struct hello hello = raw_hello();
	uint8_t bytes[RAW_BYTES] = {0};
	struct served s;
	struct raw raw;

	served_start(&s, NULL);
	ck_assert_int_eq(raw_connect(&raw, tp_listener_uri(s.listener), &hello, NULL, 0),
			 RDMA_CM_EVENT_ESTABLISHED);
	struct wire_header header = wire_header(WIRE_HI, 0, 0);

	if (!n->no_hi)
		raw_send(&raw, &header, sizeof(header));
	header = wire_header(n->kind, n->value, n->extra);
	memcpy(bytes, &header, sizeof(header));
	raw_send(&raw, bytes, n->len);
	await(&s.closed, 1);
	ck_assert_int_eq(s.status, -EPROTO);
	ck_assert_msg(strstr(s.reason, n->name), "%s", s.reason);
	raw_free(&raw);

	/* Others are served as before. */
	struct side b = {.cq = new_cq()};

	ck_ok(tp_connect(tp_listener_uri(s.listener), NULL, b.cq, NULL, &b.conn));
	ck_ok(tp_send(b.conn, "x", 1));
	await(&s.msgs, 1);
	tp_conn_close(b.conn);
	expect_alone(&b, TP_EV_CLOSED);
	side_free(&b);
	served_stop(&s);
}
END_TEST

/* More than its credits allow, at a side that does not poll meanwhile. */
START_TEST(too_many_messages)
{
	struct wire_header header = wire_header(WIRE_HI, 0, 0);
	struct {
		struct wire_header header;
		char text[4];
	} msg = {wire_header(WIRE_MSG, 4, 0), "abc"};
	struct side a = {.cq = new_cq()};
	struct tp_listener *l;
	struct tp_event ev = {0};
	struct raw raw;
	pthread_t thread;
	int got = 0;

	ck_ok(tp_listen(listen_uri, NULL, &l));
	struct knocker k = {&raw, tp_listener_uri(l), raw_hello()};

	pthread_create(&thread, NULL, knock, &k);
	a.conn = accept_one(l, a.cq);
	pthread_join(thread, NULL);
	raw_send(&raw, &header, sizeof(header));
	for (int i = 0; i < 10; i++) /* the depth is 8 */
		raw_send(&raw, &msg, sizeof(msg));
	do {
		while (!side_next(&a, &ev))
			side_pump(&a);
		got += ev.kind == TP_EV_MSG;
		if (ev.kind == TP_EV_MSG)
			free((void *)ev.msg);
	} while (ev.kind != TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, -EPROTO);
	ck_assert_int_eq(got, 8);
	ck_assert_ptr_nonnull(strstr(tp_conn_reason(a.conn), "without a credit"));
	side_free(&a);
	raw_free(&raw);
	tp_listener_destroy(l);
}
END_TEST

void verbs_peers(Suite *s)
{
	TCase *t = verbs_part(s, "hello");

	tcase_add_test(t, old_peer_is_refused);
	tcase_add_test(t, a_lie_about_the_queue_pair);
	tcase_add_test(t, versions_are_named);
	t = verbs_part(s, "nonsense");
	tcase_add_loop_test(t, nonsense_ends_its_connection, 0,
			    (int)(sizeof(nonsenses) / sizeof(*nonsenses)));
	tcase_add_test(t, too_many_messages);
}

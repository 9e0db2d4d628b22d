/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses and options of a real device: what is asked for holds, and is shown.
 */
#include "verbs_device.h"

static void talk_and_look(struct tp_listener *l, const char *uri,
			  void (*look)(struct tp_conn *conn, struct tp_conn *accepted),
			  char *transport, size_t size)
{
	struct side a = {.cq = new_cq()}, b = {.cq = new_cq()};
	struct served s = {.listener = l, .cq = a.cq};

	pthread_create(&s.thread, NULL, serve, &s);
	int rc = tp_connect(uri, NULL, b.cq, NULL, &b.conn);

	ck_assert_msg(rc == 0, "%s: %d: %s", uri, rc, err_text());
	ck_ok(tp_send(b.conn, "x", 1));
	await(&s.msgs, 1);
	if (transport)
		snprintf(transport, size, "%s", tp_conn_transport(b.conn));
	if (look)
		look(b.conn, s.last);
	tp_conn_close(b.conn);
	expect_alone(&b, TP_EV_CLOSED);
	s.stop = true;
	pthread_join(s.thread, NULL);
	side_free(&b);
	side_free(&a);
}

static void talk(struct tp_listener *l, const char *uri, char *transport, size_t size)
{
	talk_and_look(l, uri, NULL, transport, size);
}

START_TEST(all_addresses)
{
	struct tp_listener *l;
	char uri[128];
	unsigned port;

	ck_ok(tp_listen("rdma://*:0", NULL, &l));
	ck_assert_ptr_null(strchr(tp_listener_uri(l), '*'));
	port = (unsigned)atoi(strrchr(tp_listener_uri(l), ':') + 1);
	talk(l, tp_listener_uri(l), NULL, 0);
	snprintf(uri, sizeof(uri), "rdma://%s:%u", env("RDMA_ADDR"), port);
	talk(l, uri, NULL, 0);
	snprintf(uri, sizeof(uri), "rdma://[%s]:%u", env("RDMA_ADDR6"), port);
	talk(l, uri, NULL, 0);
	tp_listener_destroy(l);
	snprintf(uri, sizeof(uri), "rdma://[%s]:0", env("RDMA_ADDR6"));
	ck_ok(tp_listen(uri, NULL, &l));
	talk(l, tp_listener_uri(l), NULL, 0);
	tp_listener_destroy(l);
	ck_ok(tp_listen("rdma://rdma-host:0", NULL, &l));
	talk(l, tp_listener_uri(l), NULL, 0);
	tp_listener_destroy(l);
	snprintf(uri, sizeof(uri), "rdma://*:0?dev=%s", env("RDMA_DEV"));
	ck_ok(tp_listen(uri, NULL, &l));
	talk(l, tp_listener_uri(l), NULL, 0);
	tp_listener_destroy(l);
}
END_TEST

START_TEST(options)
{
	char uri[256], transport[96];
	struct tp_listener *l;
	struct tp_conn *conn;
	struct tp_cq *cq = new_cq();

	ck_ok(tp_listen(listen_uri, NULL, &l));
	snprintf(uri, sizeof(uri), "%s?dev=%s&tc=104", tp_listener_uri(l), env("RDMA_DEV"));
	talk(l, uri, transport, sizeof(transport));
	ck_assert_ptr_nonnull(strstr(transport, env("RDMA_DEV")));
	snprintf(uri, sizeof(uri), "%s?dev=nosuch0", tp_listener_uri(l));
	ck_fails(tp_connect(uri, NULL, cq, NULL, &conn), ENODEV);
	expect_text("nosuch0");
	snprintf(uri, sizeof(uri), "%s?mtu=512&sl=3", tp_listener_uri(l));
	if (is_iwarp()) {
		ck_fails(tp_connect(uri, NULL, cq, NULL, &conn), EINVAL);
		expect_text("iWARP");
		ck_assert_ptr_nonnull(strstr(transport, "iWARP"));
	} else {
		talk(l, uri, transport, sizeof(transport));
		ck_assert_msg(strstr(transport, "RoCE v2, MTU 512"), "%s", transport);
		snprintf(uri, sizeof(uri), "%s?gid=77", tp_listener_uri(l));
		ck_fails(tp_connect(uri, NULL, cq, NULL, &conn), EINVAL);
		expect_text("GID");
	}
	tp_listener_destroy(l);
	tp_cq_destroy(cq);
}
END_TEST

static void query(struct tp_conn *conn, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;

	ck_assert_int_eq(ibv_query_qp(conn_of(conn)->qp, attr,
				      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_MIN_RNR_TIMER,
				      &init),
			 0);
}

/* The kernel's word for it, of the side that asked and the one that did not. */
static void look_at_tuned(struct tp_conn *conn, struct tp_conn *accepted)
{
	struct ibv_qp_attr attr;

	query(conn, &attr);
	ck_assert_uint_eq(attr.timeout, 14);
	ck_assert_uint_eq(attr.retry_cnt, 3);
	ck_assert_uint_eq(attr.rnr_retry, 2);
	ck_assert_uint_eq(attr.min_rnr_timer, 9);
	query(accepted, &attr);
	ck_assert_uint_eq(attr.timeout, TUNING_TIMEOUT);
	ck_assert_uint_eq(attr.retry_cnt, TUNING_RETRY);
	ck_assert_uint_eq(attr.rnr_retry, TUNING_RNR);
	ck_assert_uint_eq(attr.min_rnr_timer, TUNING_RNR_TIMER);
}

static void look_at_listeners(struct tp_conn *conn, struct tp_conn *accepted)
{
	struct ibv_qp_attr attr;

	query(accepted, &attr);
	ck_assert_uint_eq(attr.timeout, 15);
	query(conn, &attr);
	ck_assert_uint_eq(attr.timeout, TUNING_TIMEOUT);
}

static void look_at_sizes(struct tp_conn *conn, struct tp_conn *accepted)
{
	ck_assert_uint_eq(tp_conn_limits(conn).depth, 32);
	ck_assert_uint_eq(tp_conn_limits(accepted).depth, 32);
	ck_assert_uint_eq(tp_conn_limits(conn).max_inline, 64);
	ck_assert(!conn_of(conn)->tuning.relaxed);
	ck_assert(conn_of(accepted)->tuning.relaxed);
}

static void check_refused(struct tp_listener *l, const char *option, int err, const char *word)
{
	struct tp_cq *cq = new_cq();
	struct tp_conn *conn;
	char uri[256];

	snprintf(uri, sizeof(uri), "%s?%s", tp_listener_uri(l), option);
	int rc = tp_connect(uri, NULL, cq, NULL, &conn);

	ck_assert_msg(rc == -err, "%s: %d: %s", uri, rc, err_text());
	expect_text(word);
	tp_cq_destroy(cq);
}

START_TEST(tuning_holds)
{
	char uri[256], transport[192];
	struct tp_listener *l, *tuned;

	ck_ok(tp_listen(listen_uri, NULL, &l));
	snprintf(uri, sizeof(uri), "%s?depth=32&inline=64&ro=0", tp_listener_uri(l));
	talk_and_look(l, uri, look_at_sizes, transport, sizeof(transport));
	ck_assert_msg(strstr(transport, "depth 32, inline 64, ro 0"), "%s", transport);
	/* No software device can. */
	check_refused(l, "cq_mod=16/10", EOPNOTSUPP, "cq_mod=16/10");
	if (is_iwarp()) {
		check_refused(l, "timeout=14", EINVAL, "iWARP");
		check_refused(l, "rnr_timer=1", EINVAL, "rnr_timer");
	} else {
		check_refused(l, "retry=7", EINVAL, "0 to 6");
		snprintf(uri, sizeof(uri), "%s?timeout=14&retry=3&rnr=2&rnr_timer=9",
			 tp_listener_uri(l));
		talk_and_look(l, uri, look_at_tuned, transport, sizeof(transport));
		ck_assert_msg(strstr(transport, "timeout 14, retry 3"), "%s", transport);
		snprintf(uri, sizeof(uri), "%s?retry=7", listen_uri);
		ck_fails(tp_listen(uri, NULL, &tuned), EINVAL);
		snprintf(uri, sizeof(uri), "%s?timeout=15", listen_uri);
		ck_ok(tp_listen(uri, NULL, &tuned));
		talk_and_look(tuned, tp_listener_uri(tuned), look_at_listeners, NULL, 0);
		tp_listener_destroy(tuned);
	}
	tp_listener_destroy(l);
}
END_TEST

static void count_line(void *arg, const char *text)
{
	char *all = arg;

	strncat(all, text, 8191 - strlen(all));
	strncat(all, "\n", 8191 - strlen(all));
}

START_TEST(described)
{
	char text[8192] = "";

	ck_ok(tp_available("rdma"));
	tp_describe("rdma", count_line, text);
	ck_assert_msg(strstr(text, env("RDMA_DEV")) && strstr(text, "active"), "%s", text);
	ck_assert_msg(strstr(text, "cq_mod not on this device; posting by"), "%s", text);
	ck_assert_msg(strstr(text, is_iwarp() ? "ibv_post_send" : "ibv_wr_*"), "%s", text);
	if (!is_iwarp()) {
		ck_assert_msg(strstr(text, "timeout 18, retry 6, rnr 6, rnr_timer 14"), "%s", text);
		ck_assert_msg(strstr(text, "RoCE v2"), "%s", text);
		ck_assert_msg(strstr(text, env("RDMA_ADDR")), "%s", text);
	}
}
END_TEST

void verbs_options(Suite *s)
{
	TCase *t = verbs_part(s, "addresses");

	tcase_add_test(t, all_addresses);
	tcase_add_test(t, options);
	tcase_add_test(t, tuning_holds);
	tcase_add_test(t, described);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening, connecting, closing, and what is left after it.
 */
#include "contract.h"
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>

static struct tp_cq *new_cq(void)
{
	struct tp_cq *cq;

	ck_ok(tp_cq_create(0, &cq));
	return cq;
}

/* A URI of this transport at which nobody listens. */
static void nobody(char *uri, size_t room)
{
	struct tp_listener *l;

	ck_ok(tp_listen(test_uri, NULL, &l));
	snprintf(uri, room, "%s", tp_listener_uri(l));
	tp_listener_destroy(l);
}

START_TEST(connects)
{
	struct pair p;

	pair_open(&p, NULL);
	struct tp_limits a = tp_conn_limits(p.a.conn), b = tp_conn_limits(p.b.conn);

	ck_assert_ptr_eq(tp_conn_user(p.a.conn), &p.a);
	ck_assert_ptr_eq(tp_conn_user(p.b.conn), &p.b);
	ck_assert_str_ne(tp_conn_peer(p.a.conn), "");
	ck_assert_str_ne(tp_conn_peer(p.b.conn), "");
	ck_assert_str_eq(tp_conn_reason(p.a.conn), "");
	ck_assert(!strncmp(tp_conn_transport(p.a.conn), test_uri, test_is_shm() ? 3 : 4));
	ck_assert_uint_eq(a.max_chunk, b.max_chunk);
	ck_assert_uint_ge(a.depth, 1);
	ck_assert_uint_eq(a.depth, b.depth);
	ck_assert_uint_ge(a.read_depth, 1);
	ck_assert(a.load_store == test_is_shm());
	ck_assert_uint_ge(a.rails, 1);
	ck_assert_uint_eq(a.rails, b.rails);
	pair_close(&p);
}
END_TEST

/* The same at both ends, and another for each connection, also of the same two. */
START_TEST(bindings)
{
	uint8_t a[4][TP_BINDING_MAX], b[4][TP_BINDING_MAX];
	struct pair p;

	pair_open(&p, NULL);
	for (int i = 0; i < 4; i++) {
		struct pair more = {.a.cq = new_cq(), .b.cq = new_cq()};

		connect_to(p.listener, NULL, &more.a, &more.b);
		memset(a[i], 0, TP_BINDING_MAX);
		memset(b[i], 1, TP_BINDING_MAX);
		size_t len = tp_conn_binding(more.a.conn, a[i]);

		ck_assert_uint_eq(len, tp_conn_limits(more.a.conn).rails * TP_BINDING_LEN);
		ck_assert_uint_eq(tp_conn_binding(more.b.conn, b[i]), len);
		ck_assert_mem_eq(a[i], b[i], len);
		/* Each rail's own, too. */
		for (size_t at = TP_BINDING_LEN; at < len; at += TP_BINDING_LEN)
			ck_assert_mem_ne(a[i] + at, a[i], TP_BINDING_LEN);
		for (int j = 0; j < i; j++)
			ck_assert_mem_ne(a[i], a[j], len);
		tp_conn_close(more.a.conn);
		expect(&more, &more.b, TP_EV_CLOSED);
		expect(&more, &more.a, TP_EV_CLOSED);
		side_free(&more.b);
		side_free(&more.a);
	}
	pair_close(&p);
}
END_TEST

START_TEST(bad_arguments)
{
	struct tp_listener *l = NULL;
	struct tp_conn *conn = NULL;
	struct tp_cq *cq = new_cq(), *none = NULL;
	struct tp_options deep = {.depth = 1u << 30};

	ck_fails(tp_listen("tcp://x:1", NULL, &l), EINVAL);
	ck_fails(tp_listen("", NULL, &l), EINVAL);
	ck_fails(tp_listen(NULL, NULL, &l), EINVAL);
	ck_fails(tp_listen(test_uri, &deep, &l), EINVAL);
	ck_fails(tp_connect("rdma://*:7471", NULL, cq, NULL, &conn), EINVAL);
	ck_fails(tp_connect("shm:", NULL, cq, NULL, &conn), EINVAL);
	ck_fails(tp_cq_create(-2, &none), EINVAL);
	ck_assert_ptr_null(l);
	ck_assert_ptr_null(conn);
	ck_assert_ptr_null(none);
	tp_listener_destroy(NULL);
	tp_conn_destroy(NULL);
	tp_conn_close(NULL);
	tp_cq_destroy(NULL);
	tp_cq_destroy(cq);
}
END_TEST

START_TEST(refused)
{
	struct tp_conn *conn = NULL;
	struct tp_cq *cq = new_cq();
	char uri[400];
	uint64_t start;

	nobody(uri, sizeof(uri));
	start = clock_ns();
	ck_fails(tp_connect(uri, NULL, cq, NULL, &conn), ECONNREFUSED);
	ck_assert_uint_lt(clock_ns() - start, 5 * NS_PER_S);
	ck_assert_ptr_null(conn);
	tp_cq_destroy(cq);
}
END_TEST

START_TEST(unresolvable_and_unreachable)
{
	struct tp_options opt = {.timeout_ms = 1500};
	struct tp_conn *conn = NULL;
	struct tp_cq *cq = new_cq();

	if (!test_is_shm()) {
		uint64_t start = clock_ns();
		int rc = tp_connect("rdma://no-such-host.invalid:7471", &opt, cq, NULL, &conn);

		ck_assert_msg(rc == -ENOENT || rc == -EHOSTUNREACH, "%d: %s", rc, err_text());
		/* TEST-NET-1: no route, or nobody to answer. */
		rc = tp_connect("rdma://192.0.2.1:7471", &opt, cq, NULL, &conn);
		ck_assert_msg(rc == -EHOSTUNREACH || rc == -ETIMEDOUT || rc == -ENODEV, "%d: %s",
			      rc, err_text());
		ck_assert_uint_lt(clock_ns() - start, 20 * NS_PER_S);
	}
	tp_cq_destroy(cq);
}
END_TEST

START_TEST(nobody_accepts)
{
	struct tp_options opt = {.timeout_ms = 700};
	struct tp_listener *l;
	struct tp_conn *conn = NULL;
	struct tp_cq *cq = new_cq();

	ck_ok(tp_listen(test_uri, NULL, &l));
	uint64_t start = clock_ns();

	ck_fails(tp_connect(tp_listener_uri(l), &opt, cq, NULL, &conn), ETIMEDOUT);
	ck_assert_uint_ge(clock_ns() - start, 600 * NS_PER_MS);
	ck_assert_uint_lt(clock_ns() - start, 4 * NS_PER_S);
	/* The listener finds someone who has given up. It comes to nothing, or closes at once. */
	for (int i = 0; i < 3; i++) {
		struct side s = {.cq = cq};

		if (tp_accept(l, cq, NULL, &s.conn) == 1) {
			expect_alone(&s, TP_EV_CLOSED);
			tp_conn_destroy(s.conn);
			free(s.fifo.ev);
		}
	}
	tp_listener_destroy(l);
	tp_cq_destroy(cq);
}
END_TEST

START_TEST(name_in_use)
{
	struct tp_listener *l, *second = NULL;
	char uri[400];

	ck_ok(tp_listen(test_uri, NULL, &l));
	snprintf(uri, sizeof(uri), "%s", tp_listener_uri(l));
	ck_fails(tp_listen(uri, NULL, &second), EADDRINUSE);
	ck_assert_ptr_null(second);
	tp_listener_destroy(l);
	ck_ok(tp_listen(uri, NULL, &second));
	tp_listener_destroy(second);
}
END_TEST

START_TEST(nothing_to_accept)
{
	struct tp_listener *l;
	struct tp_conn *conn = NULL;
	struct tp_cq *cq = new_cq();

	ck_ok(tp_listen(test_uri, NULL, &l));
	ck_assert_int_ge(tp_listener_fd(l), 0);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(tp_accept(l, cq, NULL, &conn), 0);
	ck_assert_ptr_null(conn);
	tp_listener_destroy(l);
	tp_cq_destroy(cq);
}
END_TEST

struct crowd {
	struct tp_listener *listener;
	struct tp_cq *cq;
	_Atomic bool stop;
};

/* Goes on accepting: a refusal takes an accept too. */
static void *keep_accepting(void *arg)
{
	struct crowd *c = arg;
	struct tp_conn *conn;

	while (!c->stop)
		if (tp_accept(c->listener, c->cq, NULL, &conn) == 1)
			ck_abort_msg("more connections than max_conns");
	return NULL;
}

START_TEST(full)
{
	struct pair_options opt = {.a = {.max_conns = 2}};
	struct side a2 = {.cq = new_cq()}, b2 = {.cq = new_cq()}, a3 = {.cq = new_cq()},
		    b3 = {.cq = new_cq()};
	struct pair p;
	pthread_t thread;

	pair_open(&p, &opt);
	connect_to(p.listener, NULL, &a2, &b2);

	struct crowd crowd = {.listener = p.listener, .cq = new_cq()};
	struct tp_conn *conn = NULL;

	pthread_create(&thread, NULL, keep_accepting, &crowd);
	ck_fails(tp_connect(tp_listener_uri(p.listener), NULL, b3.cq, NULL, &conn), EUSERS);
	crowd.stop = true;
	pthread_join(thread, NULL);
	tp_cq_destroy(crowd.cq);

	/* One leaves: there is a place again. */
	tp_conn_close(b2.conn);
	expect_alone(&a2, TP_EV_CLOSED);
	side_free(&a2);
	connect_to(p.listener, NULL, &a3, &b3);
	side_free(&a3);
	side_free(&b3);
	side_free(&b2);
	pair_free(&p);
}
END_TEST

START_TEST(close_delivers)
{
	struct child child;
	struct tp_listener *l;
	struct side s = {.cq = new_cq()};

	ck_ok(tp_listen(test_uri, NULL, &l));
	child_start(&child, "leaver", tp_listener_uri(l));
	s.conn = accept_one(l, s.cq);
	side_memory(&s, 65536, TP_PEER_READ | TP_PEER_WRITE);
	ck_assert_uint_eq(expect_alone(&s, TP_EV_IMM).imm, 77);
	check_filled(side_window(&s), 65536, 7);
	struct tp_event ev = expect_alone(&s, TP_EV_MSG);

	ck_assert_uint_eq(ev.len, 3);
	ck_assert(!memcmp(ev.msg, "bye", 3));
	free((void *)ev.msg);
	ck_assert_int_eq(expect_alone(&s, TP_EV_CLOSED).status, 0);
	ck_assert_str_ne(tp_conn_reason(s.conn), "");
	child_kill(&child);
	tp_listener_destroy(l);
	side_free(&s);
}
END_TEST

START_TEST(close_is_final)
{
	struct pair p;
	struct tp_region *region = NULL;
	struct tp_remote *remote = NULL;
	struct tp_ref ref = {.len = 1, .key = 1};

	pair_open(&p, NULL);
	pair_memory(&p, 4096, TP_PEER_READ | TP_PEER_WRITE);
	struct tp_op op = with_signal(op_write(&p.a, 0, 0, 64), 1);

	tp_conn_close(p.a.conn);
	tp_conn_close(p.a.conn);
	ck_fails(tp_post(p.a.conn, &op, 1), ENOTCONN);
	ck_fails(tp_send(p.a.conn, "x", 1), ENOTCONN);
	ck_assert_int_eq(expect(&p, &p.a, TP_EV_CLOSED).status, 0);
	ck_assert_int_eq(expect(&p, &p.b, TP_EV_CLOSED).status, 0);
	ck_assert_str_ne(tp_conn_reason(p.a.conn), "");
	ck_assert_str_ne(tp_conn_reason(p.b.conn), "");
	op = op_write(&p.b, 0, 0, 64);
	ck_fails(tp_post(p.b.conn, &op, 1), ENOTCONN);
	ck_fails(tp_send(p.b.conn, "x", 1), ENOTCONN);
	ck_fails(tp_expose(p.b.conn, p.b.local_arena, TP_PEER_READ, &region), ENOTCONN);
	ref.more = tp_conn_limits(p.b.conn).rails - 1;
	ck_fails(tp_attach(p.b.conn, &ref, TP_PEER_READ, 4096, &remote), ENOTCONN);
	expect_none(&p, &p.a);
	expect_none(&p, &p.b);
	pair_free(&p);
}
END_TEST

START_TEST(both_close)
{
	for (int i = 0; i < scaled(200, 20); i++) {
		struct pair p;

		pair_open(&p, NULL);
		tp_conn_close(p.a.conn);
		tp_conn_close(p.b.conn);
		ck_assert_int_eq(expect(&p, &p.a, TP_EV_CLOSED).status, 0);
		ck_assert_int_eq(expect(&p, &p.b, TP_EV_CLOSED).status, 0);
		pair_free(&p);
	}
}
END_TEST

/* Destroyed while open, and with events waiting that nobody polled. */
START_TEST(destroy_while_open)
{
	struct pair p;

	pair_open(&p, NULL);
	ck_ok(tp_send(p.b.conn, "unread", 6));
	ck_assert_int_eq(tp_cq_wait(p.a.cq, 5000), 1);
	tp_conn_destroy(p.a.conn);
	p.a.conn = NULL;
	struct tp_event ev;

	ck_assert_int_eq(tp_cq_poll(p.a.cq, &ev, 1), 0);
	expect_past_room(NULL, &p.b, TP_EV_CLOSED);
	pair_free(&p);
}
END_TEST

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int count_shared_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	while (fgets(line, sizeof(line), f))
		n += strstr(line, "/memfd:") || strstr(line, "infiniband");
	fclose(f);
	return n;
}

static void connect_and_use(void)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 3 << 20, TP_PEER_READ | TP_PEER_WRITE);
	struct tp_op op = with_imm(op_write(&p.a, 0, 0, 100), 5);

	side_post(&p.a, &p.b, &op);
	expect(&p, &p.b, TP_EV_IMM);
	pair_close(&p);
}

START_TEST(nothing_is_left)
{
	/* The first connection may open what stays open, such as a device. */
	connect_and_use();
	int fds = count_fds(), maps = count_shared_maps();

	for (int i = 0; i < scaled(50, 10); i++)
		connect_and_use();
	ck_assert_int_eq(count_fds(), fds);
	ck_assert_int_eq(count_shared_maps(), maps);
}
END_TEST

START_TEST(reconnects)
{
	struct pair p;

	pair_open(&p, NULL);
	for (int i = 0; i < 50; i++) {
		struct side a = {.cq = new_cq()}, b = {.cq = new_cq()};

		connect_to(p.listener, NULL, &a, &b);
		ck_ok(tp_send(b.conn, &i, sizeof(i)));
		struct tp_event ev = expect_alone(&a, TP_EV_MSG);

		ck_assert(!memcmp(ev.msg, &i, sizeof(i)));
		free((void *)ev.msg);
		tp_conn_close(i % 2 ? a.conn : b.conn);
		expect_alone(i % 2 ? &a : &b, TP_EV_CLOSED);
		expect_alone(i % 2 ? &b : &a, TP_EV_CLOSED);
		side_free(&a);
		side_free(&b);
	}
	pair_close(&p);
}
END_TEST

/* Several connections on one queue take turns and keep their events apart. */
START_TEST(many_on_one_queue)
{
	enum { N = 8 };
	struct tp_options opt = {.max_conns = N};
	struct side b[N] = {0}, a[N] = {0};
	struct tp_cq *cq = new_cq();
	struct tp_listener *l;
	int got[N] = {0}, total = 0;

	ck_ok(tp_listen(test_uri, &opt, &l));
	for (int i = 0; i < N; i++) {
		b[i].cq = new_cq();
		a[i].cq = cq;
		connect_to(l, NULL, &a[i], &b[i]);
	}
	for (int round = 0; round < 10; round++)
		for (int i = 0; i < N; i++)
			side_send(&b[i], NULL, &i, sizeof(i));
	for (uint64_t start = clock_ns(); total < 10 * N;) {
		struct tp_event ev[5];
		int n = tp_cq_poll(cq, ev, 5);

		for (int i = 0; i < n; i++) {
			int from;

			ck_assert_int_eq(ev[i].kind, TP_EV_MSG);
			memcpy(&from, ev[i].msg, sizeof(from));
			ck_assert_ptr_eq(tp_conn_user(ev[i].conn), &a[from]);
			got[from]++;
			total++;
		}
		ck_in_time(start);
	}
	for (int i = 0; i < N; i++) {
		ck_assert_int_eq(got[i], 10);
		tp_conn_destroy(a[i].conn);
		side_free(&b[i]);
	}
	tp_cq_destroy(cq);
	tp_listener_destroy(l);
}
END_TEST

TCase *connect_tests(void)
{
	TCase *t = tcase_create("connect");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, connects);
	tcase_add_test(t, bindings);
	tcase_add_test(t, bad_arguments);
	tcase_add_test(t, refused);
	tcase_add_test(t, unresolvable_and_unreachable);
	tcase_add_test(t, nobody_accepts);
	tcase_add_test(t, name_in_use);
	tcase_add_test(t, nothing_to_accept);
	tcase_add_test(t, full);
	tcase_add_test(t, close_delivers);
	tcase_add_test(t, close_is_final);
	tcase_add_test(t, both_close);
	tcase_add_test(t, destroy_while_open);
	tcase_add_test(t, nothing_is_left);
	tcase_add_test(t, reconnects);
	tcase_add_test(t, many_on_one_queue);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs backend on a real device: what the contract's tests, which are the same for every
 * backend, do not ask. Needs RDMA_ADDR (an address of the device) and RDMA_DEV, as the guest of
 * tests/softroce/run has them; skipped where there is no device.
 */
#include "harness.h"

#include "transport/verbs/hello.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs/wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <stdatomic.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "run.h"

#define RW (TP_PEER_READ | TP_PEER_WRITE)

static char listen_uri[128];

static const char *env(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

static bool is_iwarp(void)
{
	return !strcmp(env("RDMA_KIND"), "siw");
}

static struct tp_cq *new_cq(void)
{
	struct tp_cq *cq;

	ck_ok(tp_cq_create(0, &cq));
	return cq;
}

static void expect_text(const char *part)
{
	ck_assert_msg(strstr(err_text(), part), "'%s' is not in: %s", part, err_text());
}

/* Both ways, with an immediate. */
static void still_works(struct pair *p)
{
	fill(side_local(&p->b), 4096, 9);
	struct tp_op op = with_imm(op_write(&p->b, 0, 0, 4096), 99);

	side_post(&p->b, &p->a, &op);
	ck_assert_uint_eq(expect_past_room(p, &p->a, TP_EV_IMM).imm, 99);
	check_filled(side_window(&p->a), 4096, 9);
}

/* ---- memory that was not given -----------------------------------------------------------------
 */

struct rogue {
	struct pair p;
	struct side a2, b2;
	struct tp_arena *arena;
	struct tp_region *local;
	struct tp_remote *stolen;
};

/* A good connection, and a second one on which `ref` is attached. */
static void rogue_open(struct rogue *r)
{
	memset(r, 0, sizeof(*r));
	pair_open(&r->p, NULL);
	pair_memory(&r->p, 65536, RW);
	r->a2.cq = new_cq();
	r->b2.cq = new_cq();
	connect_to(r->p.listener, NULL, &r->a2, &r->b2);
	ck_ok(tp_arena_create("rogue", 65536, 0, &r->arena));
	memset(tp_arena_base(r->arena), 0xee, 65536);
	ck_ok(tp_expose(r->b2.conn, r->arena, TP_LOCAL, &r->local));
	memset(side_window(&r->p.a), 0, 65536);
}

/* The rogue op ends badly for the rogue, and for nobody else. */
static void rogue_try(struct rogue *r, struct tp_ref ref, enum tp_op_kind kind, uint64_t offset)
{
	struct pair second = {.a = r->a2, .b = r->b2};
	struct tp_op op = {
	    .kind = kind,
	    .flags = TP_F_SIGNAL,
	    .local = tp_arena_base(r->arena),
	    .region = r->local,
	    .offset = offset,
	    .len = 2048,
	    .cookie = 7,
	};

	ck_ok(tp_attach(r->b2.conn, &ref, RW, ref.len, &op.remote));
	side_post(&second.b, &second.a, &op);
	struct tp_event ev = expect(&second, &second.b, TP_EV_DONE);

	ck_assert_uint_eq(ev.cookie, 7);
	ck_assert_msg(ev.status < 0 || (is_iwarp() && kind == TP_OP_WRITE), "status %d", ev.status);
	ev = expect(&second, &second.b, TP_EV_CLOSED);
	ck_assert_int_lt(ev.status, 0);
	if (!is_iwarp()) {
		ck_assert_int_eq(ev.status, -EACCES);
		ck_assert_ptr_nonnull(strstr(tp_conn_reason(ev.conn), "remote access error"));
	}
	expect(&second, &second.a, TP_EV_CLOSED);
	for (int i = 0; i < 65536; i++)
		ck_assert(side_window(&r->p.a)[i] == 0);
	r->a2 = second.a;
	r->b2 = second.b;
	still_works(&r->p);
	side_free(&r->a2);
	side_free(&r->b2);
	tp_arena_destroy(r->arena);
	pair_close(&r->p);
}

START_TEST(key_of_another_connection)
{
	struct rogue r;

	rogue_open(&r);
	rogue_try(&r, tp_region_ref(r.p.a.window), _i ? TP_OP_READ : TP_OP_WRITE, 0);
}
END_TEST

/* Connections that share all that connections may share: listener, queue, device context. */
START_TEST(key_of_a_sibling)
{
	struct side a1 = {.cq = new_cq()}, a2 = {.cq = a1.cq};
	struct side b1 = {.cq = new_cq()}, b2 = {.cq = new_cq()};
	struct tp_listener *l;
	struct tp_arena *arena;
	struct tp_region *region;
	char word[16] = "rogue";
	struct tp_op op = {.kind = TP_OP_WRITE, .flags = TP_F_SIGNAL, .local = word, .len = 16};

	ck_ok(tp_listen(listen_uri, NULL, &l));
	connect_to(l, NULL, &a1, &b1);
	connect_to(l, NULL, &a2, &b2);
	ck_ok(tp_arena_create("slots", 4096, 0, &arena));
	ck_ok(tp_expose(a1.conn, arena, RW, &region));
	struct tp_ref ref = tp_region_ref(region);

	ck_ok(tp_attach(b2.conn, &ref, RW, ref.len, &op.remote));
	side_post(&b2, NULL, &op);
	struct tp_event ev = expect_alone(&b2, TP_EV_DONE);

	ck_assert(ev.status < 0 || is_iwarp());
	ck_assert_int_lt(expect_alone(&b2, TP_EV_CLOSED).status, 0);
	for (int i = 0; i < 4096; i++)
		ck_assert(((char *)tp_arena_base(arena))[i] == 0);

	ck_ok(tp_attach(b1.conn, &ref, RW, ref.len, &op.remote));
	side_post(&b1, NULL, &op);
	ck_assert_int_eq(expect_alone(&b1, TP_EV_DONE).status, 0);
	tp_conn_destroy(a2.conn);
	side_free(&b2);
	side_free(&b1);
	side_free(&a1);
	tp_arena_destroy(arena);
	tp_listener_destroy(l);
}
END_TEST

/* The peer's own region on this connection, but longer than it is. */
START_TEST(beyond_the_end)
{
	struct rogue r;
	struct tp_region *region;

	rogue_open(&r);
	struct tp_arena *arena;

	ck_ok(tp_arena_create("short", 65536, 0, &arena));
	ck_ok(tp_expose(r.a2.conn, arena, RW, &region));
	struct tp_ref ref = tp_region_ref(region);

	ref.len = 1 << 20;
	rogue_try(&r, ref, TP_OP_WRITE, 65536);
	tp_arena_destroy(arena);
}
END_TEST

/* ---- peers that speak verbs by hand ------------------------------------------------------------
 */

#define RAW_RECVS 16
#define RAW_BYTES 4352

struct raw {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint8_t mem[(RAW_RECVS + 1) * RAW_BYTES];
};

static enum rdma_cm_event_type raw_event(struct raw *raw, void *data, size_t size)
{
	struct pollfd fd = {.fd = raw->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	ck_assert_msg(poll(&fd, 1, 20000) == 1, "no event");
	ck_assert_int_eq(rdma_get_cm_event(raw->channel, &event), 0);
	enum rdma_cm_event_type kind = event->event;

	if (data && event->param.conn.private_data) {
		size_t len = event->param.conn.private_data_len;

		memcpy(data, event->param.conn.private_data, len < size ? len : size);
	}
	rdma_ack_cm_event(event);
	return kind;
}

static void raw_qp(struct raw *raw)
{
	struct ibv_qp_init_attr attr = {
	    .cap = {.max_send_wr = 64,
		    .max_recv_wr = RAW_RECVS,
		    .max_send_sge = 1,
		    .max_recv_sge = 1},
	    .qp_type = IBV_QPT_RC,
	};

	ck_assert_int_eq(rdma_create_qp(raw->id, NULL, &attr), 0);
	raw->mr = ibv_reg_mr(raw->id->pd, raw->mem, sizeof(raw->mem), IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_nonnull(raw->mr);
	for (int i = 0; i < RAW_RECVS; i++)
		ck_assert_int_eq(
		    rdma_post_recv(raw->id, NULL, raw->mem + i * RAW_BYTES, RAW_BYTES, raw->mr), 0);
}

/* Connects to where `uri` is listened on with this hello; returns how that went. */
static enum rdma_cm_event_type raw_connect(struct raw *raw, const char *uri,
					   const struct hello *hello, void *answer, size_t size)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	uint8_t data[HELLO_BYTES];
	struct rdma_conn_param param = {
	    .private_data = data,
	    .private_data_len = sizeof(data),
	    .responder_resources = 4,
	    .initiator_depth = 4,
	    .retry_count = 7,
	    .rnr_retry_count = 0,
	};

	memset(raw, 0, sizeof(*raw));
	to.sin_port = htons((uint16_t)atoi(strrchr(uri, ':') + 1));
	inet_pton(AF_INET, env("RDMA_ADDR"), &to.sin_addr);
	raw->channel = rdma_create_event_channel();
	ck_assert_ptr_nonnull(raw->channel);
	ck_assert_int_eq(rdma_create_id(raw->channel, &raw->id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(raw->id, NULL, (struct sockaddr *)&to, 2000), 0);
	ck_assert_int_eq(raw_event(raw, NULL, 0), RDMA_CM_EVENT_ADDR_RESOLVED);
	ck_assert_int_eq(rdma_resolve_route(raw->id, 2000), 0);
	ck_assert_int_eq(raw_event(raw, NULL, 0), RDMA_CM_EVENT_ROUTE_RESOLVED);
	raw_qp(raw);
	struct hello said = *hello;

	said.qp_num += raw->id->qp->qp_num; /* but for who lies about it */
	hello_encode(&said, data);
	ck_assert_int_eq(rdma_connect(raw->id, &param), 0);
	enum rdma_cm_event_type kind = raw_event(raw, answer, size);

	/* What is sent at once may stay unread (transport/verbs/siw.c). */
	if (is_iwarp())
		usleep(50000);
	return kind;
}

/* Ends this side too once the peer has ended; what is posted comes out flushed. Nothing else need:
 * the peer may have read a message and ended before it acknowledged it, which Soft-RoCE then never
 * does (the state it was put in is looked at between the completion and the acknowledgement). */
static void raw_look(struct raw *raw)
{
	struct pollfd fd = {.fd = raw->channel->fd, .events = POLLIN};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (poll(&fd, 1, 0) == 1 && raw_event(raw, NULL, 0) == RDMA_CM_EVENT_DISCONNECTED)
		ck_assert_int_eq(ibv_modify_qp(raw->id->qp, &attr, IBV_QP_STATE), 0);
}

static void raw_free(struct raw *raw)
{
	rdma_disconnect(raw->id);
	rdma_destroy_qp(raw->id);
	ibv_dereg_mr(raw->mr);
	rdma_destroy_id(raw->id);
	rdma_destroy_event_channel(raw->channel);
}

static void raw_send(struct raw *raw, const void *bytes, size_t len)
{
	uint8_t *at = raw->mem + RAW_RECVS * RAW_BYTES;
	struct ibv_wc wc;

	memcpy(at, bytes, len);
	if (rdma_post_send(raw->id, NULL, at, len, raw->mr, IBV_SEND_SIGNALED) != 0)
		return; /* closed meanwhile */
	/* Its memory is used again, so it must have left. */
	for (uint64_t start = clock_ns(); ibv_poll_cq(raw->id->send_cq, 1, &wc) == 0;) {
		ck_assert_msg(clock_ns() - start < DEADLINE_NS,
			      "%zu bytes were neither acknowledged nor given up", len);
		raw_look(raw);
		sched_yield();
	}
}

static struct hello raw_hello(void)
{
	return (struct hello){
	    .version = HELLO_VERSION,
	    .kind = HELLO_OFFER,
	    .flags = is_iwarp() ? 0 : HELLO_NATIVE_IMM,
	    .depth = 8,
	    .max_chunk = 4096,
	    .mtu = is_iwarp() ? 0 : 1024,
	    .reads_out = 4,
	    .reads_in = 4,
	};
}

/* ---- a listener that is served by a thread -----------------------------------------------------
 */

struct served {
	struct tp_listener *listener;
	struct tp_cq *cq;
	pthread_t thread;
	atomic_bool stop;
	atomic_int accepted, closed, msgs;
	struct tp_conn *last; /* accepted */
	int status;
	char reason[256];
};

static void served_event(struct served *s, const struct tp_event *ev)
{
	if (ev->kind == TP_EV_MSG)
		s->msgs++;
	if (ev->kind != TP_EV_CLOSED)
		return;
	s->status = ev->status;
	snprintf(s->reason, sizeof(s->reason), "%s", tp_conn_reason(ev->conn));
	tp_conn_destroy(ev->conn);
	s->closed++;
}

static void *serve(void *arg)
{
	struct served *s = arg;
	struct tp_event ev[16];
	struct tp_conn *conn;

	while (!s->stop || s->closed < s->accepted) {
		int n, rc;

		while ((rc = tp_accept(s->listener, s->cq, NULL, &conn)) == 1) {
			s->last = conn;
			s->accepted++;
		}
		if (rc < 0)
			fprintf(stderr, "accept: %s\n", err_text());
		n = tp_cq_poll(s->cq, ev, 16);
		for (int i = 0; i < n; i++)
			served_event(s, &ev[i]);
		if (n == 0)
			tp_cq_wait(s->cq, 2);
	}
	return NULL;
}

static void served_start(struct served *s, const struct tp_options *opt)
{
	memset(s, 0, sizeof(*s));
	ck_ok(tp_listen(listen_uri, opt, &s->listener));
	s->cq = new_cq();
	ck_assert_int_eq(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void served_stop(struct served *s)
{
	s->stop = true;
	pthread_join(s->thread, NULL);
	tp_cq_destroy(s->cq);
	tp_listener_destroy(s->listener);
}

static void await(atomic_int *count, int value)
{
	for (uint64_t start = clock_ns(); *count < value; usleep(1000))
		ck_assert_msg(clock_ns() - start < DEADLINE_NS, "%d instead of %d", *count, value);
}

/* ---- the hello ---------------------------------------------------------------------------------
 */

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

/* A hello that names another QP than it comes from: its binding would be one of the sender's choice. */
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

/* ---- nonsense over the wire --------------------------------------------------------------------
 */

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

struct knocker {
	struct raw *raw;
	const char *uri;
	struct hello hello;
};

static void *knock(void *arg)
{
	struct knocker *me = arg;

	raw_connect(me->raw, me->uri, &me->hello, NULL, 0);
	return NULL;
}

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

/* ---- receiver not ready ------------------------------------------------------------------------
 */

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

/* ---- READs -------------------------------------------------------------------------------------
 */

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
	ck_assert_uint_eq(tp_conn_limits(p.a.conn).read_depth,
			  tp_conn_limits(p.b.conn).read_depth);
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

/* ---- memory that is used again -----------------------------------------------------------------
 */

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

/* ---- locked memory and fork --------------------------------------------------------------------
 */

static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	ck_assert_int_eq((int)syscall(SYS_capget, &head, data), 0);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	ck_assert_int_eq((int)syscall(SYS_capset, &head, data), 0);
}

START_TEST(memlock_is_explained)
{
	struct rlimit limit = {8 << 20, 8 << 20};
	struct tp_arena *arena;
	struct tp_region *region = NULL;
	struct pair p;

	/* Before the device is opened: it may be used with the credentials of that moment only. */
	drop_ipc_lock();
	pair_open(&p, NULL);
	ck_ok(tp_arena_create("large", 64 << 20, 0, &arena));
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	ck_fails(tp_expose(p.b.conn, arena, TP_PEER_READ, &region), ENOMEM);
	ck_assert_ptr_null(region);
	expect_text("65536 KiB");
	expect_text("8192 KiB");
	expect_text("ulimit -l unlimited");
	expect_text("limits.d");
	expect_text("LimitMEMLOCK");
	/* The connection is none the worse. */
	ck_ok(tp_send(p.b.conn, "x", 1));
	free((void *)expect(&p, &p.a, TP_EV_MSG).msg);
	pair_close(&p);
	tp_arena_destroy(arena);
}
END_TEST

START_TEST(fork_harms_nobody)
{
	struct pair p;
	int status;

	pair_open(&p, NULL);
	pair_memory(&p, 1 << 20, RW);
	still_works(&p);
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		/* As a data loader does: touches what it inherited, and goes. */
		memset(side_local(&p.b) + 8192, 1, 4096);
		_exit(side_window(&p.a)[5] == side_local(&p.b)[5] ? 0 : 1);
	}
	for (int i = 0; i < 20; i++)
		still_works(&p);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "the child ended with 0x%x", status);
	for (int i = 0; i < 20; i++)
		still_works(&p);
	pair_close(&p);
}
END_TEST

/* ---- a crowd dies ------------------------------------------------------------------------------
 */

#define CROWD 32

static int role_crowd(const char *uri)
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

/* ---- addresses and options ---------------------------------------------------------------------
 */

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

/* ---- posting -----------------------------------------------------------------------------------
 */

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

static TCase *part(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);

	tcase_set_timeout(t, 90);
	suite_add_tcase(s, t);
	return t;
}

static Suite *suite(void)
{
	Suite *s = suite_create("verbs on a device");
	TCase *t = part(s, "memory");

	tcase_add_loop_test(t, key_of_another_connection, 0, 2);
	tcase_add_test(t, key_of_a_sibling);
	tcase_add_test(t, beyond_the_end);
	tcase_add_test(t, memlock_is_explained);
	tcase_add_test(t, fork_harms_nobody);
	t = part(s, "hello");
	tcase_add_test(t, old_peer_is_refused);
	tcase_add_test(t, a_lie_about_the_queue_pair);
	tcase_add_test(t, versions_are_named);
	t = part(s, "nonsense");
	tcase_add_loop_test(t, nonsense_ends_its_connection, 0,
			    (int)(sizeof(nonsenses) / sizeof(*nonsenses)));
	tcase_add_test(t, too_many_messages);
	t = part(s, "rnr");
	tcase_add_loop_test(t, no_rnr_at_start, 0, 5);
	tcase_add_loop_test(t, no_rnr_under_load, 0, 2);
	t = part(s, "reads");
	tcase_add_loop_test(t, reads_that_both_allow, 0, 2);
	tcase_add_test(t, reads_in_flight);
	t = part(s, "ends");
	tcase_add_loop_test(t, nothing_lands_behind_the_end, 0, 2);
	t = part(s, "death");
	tcase_add_test(t, crowd_is_killed);
	tcase_add_test(t, silence_is_noticed);
	t = part(s, "posting");
	tcase_add_loop_test(t, both_ways_of_posting, 0, 2);
	if (!is_iwarp()) /* siw's provider does not look at the length */
		tcase_add_loop_test(t, a_refused_chain, 0, 2);
	t = part(s, "addresses");
	tcase_add_test(t, all_addresses);
	tcase_add_test(t, options);
	tcase_add_test(t, tuning_holds);
	tcase_add_test(t, described);
	return s;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "--role"))
		return role_crowd(argv[3]);
	if (tp_available("rdma") < 0 || !*env("RDMA_ADDR")) {
		fprintf(stderr, "skipped: %s\n", *err_text() ? err_text() : "RDMA_ADDR is not set");
		return 77;
	}
	snprintf(listen_uri, sizeof(listen_uri), "rdma://%s:0", env("RDMA_ADDR"));
	test_uri = listen_uri;
	test_small = true;
	SRunner *runner = srunner_create(suite());
	return run_all(runner);
}

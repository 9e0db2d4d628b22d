/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_device.h"

#include <arpa/inet.h>
#include <poll.h>

char listen_uri[128];

const char *env(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

bool is_iwarp(void)
{
	return !strcmp(env("RDMA_KIND"), "siw");
}

struct tp_cq *new_cq(void)
{
	struct tp_cq *cq;

	ck_ok(tp_cq_create(0, &cq));
	return cq;
}

void expect_text(const char *part)
{
	ck_assert_msg(strstr(err_text(), part), "'%s' is not in: %s", part, err_text());
}

void still_works(struct pair *p)
{
	fill(side_local(&p->b), 4096, 9);
	struct tp_op op = with_imm(op_write(&p->b, 0, 0, 4096), 99);

	side_post(&p->b, &p->a, &op);
	ck_assert_uint_eq(expect_past_room(p, &p->a, TP_EV_IMM).imm, 99);
	check_filled(side_window(&p->a), 4096, 9);
}

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

enum rdma_cm_event_type raw_connect(struct raw *raw, const char *uri, const struct hello *hello,
				    void *answer, size_t size)
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

void raw_free(struct raw *raw)
{
	rdma_disconnect(raw->id);
	rdma_destroy_qp(raw->id);
	ibv_dereg_mr(raw->mr);
	rdma_destroy_id(raw->id);
	rdma_destroy_event_channel(raw->channel);
}

void raw_send(struct raw *raw, const void *bytes, size_t len)
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

struct hello raw_hello(void)
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

void *serve(void *arg)
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

void served_start(struct served *s, const struct tp_options *opt)
{
	memset(s, 0, sizeof(*s));
	ck_ok(tp_listen(listen_uri, opt, &s->listener));
	s->cq = new_cq();
	ck_assert_int_eq(pthread_create(&s->thread, NULL, serve, s), 0);
}

void served_stop(struct served *s)
{
	s->stop = true;
	pthread_join(s->thread, NULL);
	tp_cq_destroy(s->cq);
	tp_listener_destroy(s->listener);
}

void await(atomic_int *count, int value)
{
	for (uint64_t start = clock_ns(); *count < value; usleep(1000))
		ck_assert_msg(clock_ns() - start < DEADLINE_NS, "%d instead of %d", *count, value);
}

void *knock(void *arg)
{
	struct knocker *me = arg;

	raw_connect(me->raw, me->uri, &me->hello, NULL, 0);
	return NULL;
}

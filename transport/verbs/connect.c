/* SPDX-License-Identifier: Apache-2.0
 *
 * tp_connect: name, address, route, queues, hello; each wait has the one deadline and a named
 * error. The connection's own event channel is waited on, so nobody else's events are touched.
 *
 * What is done last can't fail: after the polling thread has come to know the connection, any
 * trouble is an event of the connection, and no longer an error of tp_connect.
 */
#include "base/clock.h"
#include "base/err.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <string.h>

/* InfiniBand's reject reasons; iWARP has negative errnos in their place. */
#define REJ_NO_LISTENER 8
#define REJ_CONSUMER    28

struct attempt {
	const struct tp_owner *owner;
	const struct tp_uri *uri;
	const struct tp_options *opt;
	uint64_t deadline;
	struct conn *conn;
	char to[96];
};

static int timed_out(const struct attempt *at, const char *phase)
{
	return err_set(ETIMEDOUT, "connecting to %s: %s did not end within %u ms", at->to, phase,
		       at->opt->timeout_ms);
}

/* A status or errno of rdma_cm's as one of those that tp_connect promises. */
static int named(int err)
{
	switch (err) {
	case ENETUNREACH:
	case EHOSTDOWN:
	case ENETDOWN:
		return EHOSTUNREACH;
	case ECONNRESET:
		return ECONNREFUSED;
	default:
		return err > 0 ? err : EIO;
	}
}

static int resolve_failed(const struct attempt *at, int err, const char *phase)
{
	if (err == ENODEV)
		return err_set(ENODEV,
			       "connecting to %s: no RDMA device is on the network that leads "
			       "there (`gradslot doctor` shows the devices and their addresses)",
			       at->to);
	return err_set(named(err), "connecting to %s: %s: %s", at->to, phase, strerror(err));
}

/* Waits for the event that ends a phase of address resolution. */
static int expect(struct attempt *at, enum rdma_cm_event_type wanted, const char *phase)
{
	struct rdma_cm_event *event;
	int rc = cm_wait(at->conn->channel, at->deadline, &event);

	if (rc == -ETIMEDOUT)
		return timed_out(at, phase);
	if (rc < 0)
		return rc;
	if (event->event != wanted)
		rc = resolve_failed(at, event->status < 0 ? -event->status : EHOSTUNREACH, phase);
	rdma_ack_cm_event(event);
	return rc;
}

static int ms_left(const struct attempt *at)
{
	uint64_t now = clock_ns();

	return now < at->deadline ? (int)((at->deadline - now) / NS_PER_MS) + 1 : 1;
}

static int check_device(const struct attempt *at)
{
	const char *name = ibv_get_device_name(at->conn->id->verbs->device);

	if (!at->uri->dev[0] || !strcmp(at->uri->dev, name))
		return 0;
	return err_set(EHOSTUNREACH, "connecting to %s: the way there is by %s, not by dev=%s",
		       at->to, name, at->uri->dev);
}

static int resolve(struct attempt *at, union address *dst)
{
	static const char addr[] = "address resolution", route[] = "route resolution";
	struct rdma_cm_id *id = at->conn->id;
	union address src;
	struct sockaddr *from = NULL;
	int rc = 0;

	if (at->uri->dev[0]) {
		rc = device_address(at->uri->dev, at->uri->gid, dst, &src);
		from = &src.any;
	}
	if (rc < 0)
		return rc;
	if (rdma_resolve_addr(id, from, &dst->any, ms_left(at)) != 0)
		return resolve_failed(at, errno, addr);
	rc = expect(at, RDMA_CM_EVENT_ADDR_RESOLVED, addr);
	if (rc == 0)
		rc = check_device(at);
	if (rc < 0)
		return rc;
	if (rdma_resolve_route(id, ms_left(at)) != 0)
		return resolve_failed(at, errno, route);
	return expect(at, RDMA_CM_EVENT_ROUTE_RESOLVED, route);
}

/* ---- the answer -------------------------------------------------------------------------------
 */

static int refused(const struct attempt *at, const struct hello *answer, bool other_version)
{
	unsigned reason = other_version ? HELLO_VERSIONS : answer->reason;

	if (reason == HELLO_VERSIONS)
		return err_set(EPROTONOSUPPORT,
			       "%s refused: it speaks version %u of the protocol, this side "
			       "version %u",
			       at->to, answer->version, HELLO_VERSION);
	return err_set(reason == HELLO_FULL     ? EUSERS
		       : reason == HELLO_SCARCE ? ENOBUFS
		       : reason == HELLO_RAILS  ? ECONNREFUSED
						: EPROTO,
		       "%s refused: %s", at->to, hello_reason_text(reason));
}

static int rejected(const struct attempt *at, const struct rdma_cm_event *event)
{
	struct hello answer;
	enum hello_verdict verdict = hello_decode(event->param.conn.private_data,
						  event->param.conn.private_data_len, &answer);

	if (verdict == HELLO_OTHER_VERSION || (verdict == HELLO_GOOD && answer.reason))
		return refused(at, &answer, verdict == HELLO_OTHER_VERSION);
	if (event->status == REJ_NO_LISTENER || event->status < 0)
		return err_set(event->status < 0 ? named(-event->status) : ECONNREFUSED,
			       "connecting to %s: refused: nobody listens there", at->to);
	return err_set(ECONNREFUSED, "connecting to %s: rejected (reason %d%s)", at->to,
		       event->status,
		       event->status == REJ_CONSUMER
			   ? ": on this address nobody listens, or a program that is not gradslot"
			   : "");
}

static int take_answer(const struct attempt *at, const struct rdma_cm_event *event,
		       const struct hello *offer, struct hello *answer)
{
	enum hello_verdict verdict = hello_decode(event->param.conn.private_data,
						  event->param.conn.private_data_len, answer);

	if (verdict == HELLO_OTHER_VERSION)
		return refused(at, answer, true);
	if (verdict == HELLO_FOREIGN)
		return err_set(EPROTO, "%s accepted, but is not gradslot", at->to);
	if (verdict != HELLO_GOOD || !hello_fits(offer, answer))
		return err_set(EPROTO, "%s accepted with a hello that does not fit the offer",
			       at->to);
	return binding_check(at->conn, answer, event->param.conn.qp_num);
}

static int on_answer(const struct attempt *at, const struct rdma_cm_event *event,
		     const struct hello *offer, struct hello *answer)
{
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_RESPONSE: /* InfiniBand, RoCE */
	case RDMA_CM_EVENT_ESTABLISHED:      /* iWARP */
		return take_answer(at, event, offer, answer);
	case RDMA_CM_EVENT_REJECTED:
		return rejected(at, event);
	case RDMA_CM_EVENT_UNREACHABLE:
		return err_set(event->status == -ETIMEDOUT ? ETIMEDOUT : EHOSTUNREACH,
			       "connecting to %s: unreachable (status %d)", at->to, event->status);
	default:
		return err_set(event->status < 0 ? named(-event->status) : EIO,
			       "connecting to %s: %s (status %d)", at->to,
			       rdma_event_str(event->event), event->status);
	}
}

/* A rail's comes when all of them are there; it is not waited for when another has failed. */
static int await_answer(const struct attempt *at, struct rdma_cm_event **event)
{
	const bool rail = at->owner->given_up != NULL;
	uint64_t until;
	int rc;

	do {
		until = rail ? clock_ns() + TP_GIVE_UP_MS * NS_PER_MS : at->deadline;
		if (until > at->deadline)
			until = at->deadline;
		rc = cm_wait(at->conn->channel, until, event);
	} while (rc == -ETIMEDOUT && until < at->deadline && !tp_given_up(at->owner));
	return rc;
}

static int exchange(struct attempt *at, const struct hello *offer, struct hello *answer)
{
	struct conn *conn = at->conn;
	uint8_t data[HELLO_BYTES];
	struct rdma_cm_event *event;
	struct siw_guard guard;
	struct rdma_conn_param param = {
	    .private_data = data,
	    .private_data_len = sizeof(data),
	    .responder_resources = offer->reads_in,
	    .initiator_depth = offer->reads_out,
	    .retry_count = 7,
	    .rnr_retry_count = 6,
	    .qp_num = conn->qp_num,
	};

	hello_encode(offer, data);
	siw_enter(conn->dev, &guard);
	int asked = rdma_connect(conn->id, &param);

	siw_leave(conn->dev, &guard);
	if (asked != 0)
		return err_set(named(errno), "connecting to %s: %s", at->to, strerror(errno));
	conn->connect_pending = true;
	int rc = await_answer(at, &event);

	if (rc == -ETIMEDOUT)
		return timed_out(at, "the peer's answer");
	if (rc < 0)
		return rc;
	conn->connect_pending = false;
	rc = on_answer(at, event, offer, answer);
	rdma_ack_cm_event(event);
	return rc;
}

/* ---- one address ------------------------------------------------------------------------------
 */

/* gid= is a check: rdma_cm takes the GID that is the source address. */
static int check_gid(const struct attempt *at)
{
	const struct conn *conn = at->conn;
	const union ibv_gid *used = &conn->id->route.addr.addr.ibaddr.sgid;
	struct ibv_gid_entry asked;

	if (at->uri->gid < 0 || conn->dev->iwarp)
		return 0;
	if (ibv_query_gid_ex(conn->dev->ctx, conn->id->port_num, (uint32_t)at->uri->gid, &asked,
			     0) == 0 &&
	    !memcmp(&asked.gid, used, sizeof(*used)))
		return 0;
	return err_set(EINVAL,
		       "gid=%d: %s has no such GID, or the address that leads to %s is not its: "
		       "give dev= too (`gradslot doctor` shows the table)",
		       at->uri->gid, ibv_get_device_name(conn->dev->ctx->device), at->to);
}

static int make_queues(struct attempt *at, struct hello *offer)
{
	struct conn *conn = at->conn;
	struct qp_sizes sizes;
	int rc = device_get(conn->sub, conn->id, &conn->dev);

	if (rc == 0)
		rc = check_gid(at);
	if (rc == 0)
		rc = qp_tune(conn->dev, at->uri, &conn->tuning);
	conn->lend_limit = at->opt->lend_bytes;
	if (rc == 0)
		rc = qp_sizes(conn->dev, at->opt->depth, &sizes);
	if (rc == 0)
		rc = qp_offer(conn->dev, conn->id->port_num, at->uri, at->opt, sizes.depth, offer);
	if (rc == 0)
		rc = qp_create(conn, &sizes);
	if (rc == 0)
		rc = binding_introduce(conn, offer);
	if (rc < 0)
		return rc;
	qp_probe(conn, offer);
	offer->bundle = at->owner->bundle_id;
	offer->rail = at->owner->rail;
	offer->rails = at->owner->rails;
	return 0;
}

static int establish(struct attempt *at, const struct hello *offer, const struct hello *answer)
{
	struct conn *conn = at->conn;
	struct hello own = *answer;

	/* From this side: what the peer takes in goes out here. */
	own.reads_out = answer->reads_in;
	own.reads_in = answer->reads_out;
	conn->credit_tx.depth = conn->credit_rx.depth = own.depth;
	conn->peer_probe_addr = answer->probe_addr;
	conn->peer_probe_key = answer->probe_key;
	int rc = qp_connect(conn, at->uri, &own);

	if (rc < 0)
		return rc;
	qp_set_limits(conn, &own);
	cm_name_peer(conn);
	binding_make(conn, true, offer, answer);
	if (!conn->dev->iwarp && rdma_establish(conn->id) != 0)
		return err_set(named(errno), "connecting to %s: rdma_establish: %s", at->to,
			       strerror(errno));
	rc = cm_watch(conn);
	if (rc < 0)
		return rc;
	conn->posting = POST_OPEN;
	conn->cm_established = true;
	conn->knock_ms = KNOCK_MS;
	conn_bind(conn, CONN_OPEN, conn->dev->siw ? clock_ns() + KNOCK_MS * NS_PER_MS : 0);
	pthread_spin_lock(&conn->lock);
	post_control(conn, SENDQ_CREDIT, WIRE_HI, 0);
	pthread_spin_unlock(&conn->lock);
	if (conn->dev->siw)
		siw_knock(conn);
	sub_kick(conn->sub);
	return 0;
}

static int connect_conn(struct attempt *at, union address *dst)
{
	struct conn *conn = at->conn;
	struct hello offer, answer;
	int rc = cm_channel(&conn->channel);

	if (rc < 0)
		return rc;
	if (rdma_create_id(conn->channel, &conn->id, conn, RDMA_PS_TCP) != 0)
		return err_set(errno, "rdma_create_id: %s", strerror(errno));
	rc = cm_set_tos(conn->id, at->uri);
	if (rc == 0)
		rc = resolve(at, dst);
	if (rc == 0)
		rc = make_queues(at, &offer);
	if (rc == 0)
		rc = exchange(at, &offer, &answer);
	if (rc == 0)
		rc = establish(at, &offer, &answer);
	return rc;
}

static int connect_one(struct attempt *at, union address *dst, struct sub *sub,
		       struct tp_conn **out)
{
	int rc = conn_new(sub, at->owner, &at->conn);

	if (rc < 0)
		return rc;
	address_text(dst, at->to, sizeof(at->to));
	rc = connect_conn(at, dst);
	if (rc < 0)
		conn_free(at->conn);
	else
		*out = &at->conn->base;
	return rc;
}

int verbs_connect(const struct tp_uri *uri, const struct tp_options *opt, struct tp_subcq *sub,
		  const struct tp_owner *owner, struct tp_conn **out)
{
	uint64_t deadline = clock_ns() + opt->timeout_ms * NS_PER_MS;
	struct addresses hosts;
	int rc = resolve_host(uri->host, uri->port, deadline, &hosts);

	for (int i = 0; rc == 0 && i < hosts.n; i++) {
		/* Each address gets its share of the time that is left. */
		uint64_t now = clock_ns();
		uint64_t left = now < deadline ? deadline - now : 0;
		struct attempt at = {
		    .owner = owner,
		    .uri = uri,
		    .opt = opt,
		    .deadline = now + left / (uint64_t)(hosts.n - i),
		};

		rc = connect_one(&at, &hosts.at[i], sub_of(sub), out);
		if (rc == 0)
			return 0;
		if (i + 1 < hosts.n)
			rc = 0;
	}
	return rc;
}

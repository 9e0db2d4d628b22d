/* SPDX-License-Identifier: Apache-2.0
 *
 * tp_listen and tp_accept. The listener has an event channel with connection requests only: a
 * request that is accepted moves to a channel of its own. Requests that are rails of one bundle wait
 * for one another, unanswered (gather.h). Nothing here waits for a peer.
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "transport/bundle.h"
#include "transport/gather.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_A_CALL 8 /* refused ones that one tp_accept works through */
#define BACKLOG_MIN     128

struct listener {
	struct tp_listener base;
	struct tp_uri uri;
	struct tp_options opt;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *ids[2]; /* `*` has one for each address family */
	int n_ids;
	struct quota *quota;
	struct gather gather; /* of struct request */
};

struct request {
	struct rdma_cm_id *id;
	enum hello_verdict verdict;
	struct hello offer;
	uint32_t qp_num; /* of the peer, as the connection manager says */
};

/* ---- listening --------------------------------------------------------------------------------
 */

static int bind_failed(const struct tp_uri *uri, const char *at)
{
	if (errno == ENODEV)
		return err_set(ENODEV,
			       "listening on %s: this address is not one of an RDMA device's "
			       "network (`gradslot doctor` shows which are)",
			       at);
	return err_set(errno, "listening on %s: %s", at, strerror(errno));
}

/* One more id on the listener's channel, bound to `at`. */
static int bind_id(struct listener *listener, union address *at, bool family_only)
{
	struct rdma_cm_id *id;
	char text[96];
	int on = 1;

	if (rdma_create_id(listener->channel, &id, listener, RDMA_PS_TCP) != 0)
		return err_set(errno, "rdma_create_id: %s", strerror(errno));
	int rc = cm_set_tos(id, &listener->uri);

	if (rc == 0 && family_only &&
	    rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)) != 0)
		rc = err_set(errno, "one address family alone: %s", strerror(errno));
	if (rc == 0 && rdma_bind_addr(id, &at->any) != 0)
		rc = bind_failed(&listener->uri, address_text(at, text, sizeof(text)));
	if (rc < 0)
		rdma_destroy_id(id);
	else
		listener->ids[listener->n_ids++] = id;
	return rc;
}

static void drop_ids(struct listener *listener)
{
	while (listener->n_ids)
		rdma_destroy_id(listener->ids[--listener->n_ids]);
}

static void set_port(union address *at, uint16_t port)
{
	if (at->any.sa_family == AF_INET)
		at->v4.sin_port = htons(port);
	else
		at->v6.sin6_port = htons(port);
}

/* Every address of both families, at one port: some devices' IPv6 wildcards leave out IPv4. */
static int bind_both(struct listener *listener)
{
	union address v4 = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = INADDR_ANY}};
	union address v6 = {.v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any}};

	set_port(&v4, listener->uri.port);
	int rc = bind_id(listener, &v4, true);

	if (rc < 0)
		return rc;
	set_port(&v6, ntohs(rdma_get_src_port(listener->ids[0])));
	rc = bind_id(listener, &v6, true);
	if (rc == -EAFNOSUPPORT) /* no IPv6 in this kernel */
		return 0;
	if (rc < 0)
		drop_ids(listener);
	return rc;
}

/* `*`: every address; of one device alone when dev= is given, as rdma_cm binds to addresses. */
static int bind_all(struct listener *listener)
{
	const struct tp_uri *uri = &listener->uri;
	union address at, any_family = {.any.sa_family = AF_UNSPEC};
	int tries = uri->port ? 1 : 8, rc;

	if (uri->dev[0]) {
		rc = device_address(uri->dev, uri->gid, &any_family, &at);
		if (rc < 0)
			return rc;
		set_port(&at, uri->port);
		return bind_id(listener, &at, false);
	}
	/* A port that was free for one family may be in use for the other. */
	do {
		rc = bind_both(listener);
	} while (rc < 0 && --tries > 0);
	return rc;
}

static int bind_host(struct listener *listener)
{
	uint64_t deadline = clock_ns() + listener->opt.timeout_ms * NS_PER_MS;
	struct addresses hosts;
	int rc = resolve_host(listener->uri.host, listener->uri.port, deadline, &hosts);

	for (int i = 0; rc == 0 && i < hosts.n; i++) {
		rc = bind_id(listener, &hosts.at[i], false);
		if (rc == 0)
			return 0;
		if (i + 1 < hosts.n)
			rc = 0;
	}
	return rc;
}

/* With an address bound the device is known, and what was asked of it can be checked now. */
static int check_device(struct listener *listener)
{
	struct rdma_cm_id *id = listener->ids[0];
	struct tuning tuning;
	struct hello own;

	if (!id->verbs)
		return 0;
	const char *name = ibv_get_device_name(id->verbs->device);

	if (listener->uri.dev[0] && strcmp(listener->uri.dev, name) != 0)
		return err_set(EINVAL, "the address %s belongs to %s, not to dev=%s",
			       listener->uri.host, name, listener->uri.dev);
	struct device seen = {.ctx = id->verbs,
			      .iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP};

	if (ibv_query_device(id->verbs, &seen.attr) != 0)
		return err_set(EIO, "%s: ibv_query_device failed", name);
	int rc = qp_tune(&seen, &listener->uri, &tuning);

	return rc < 0 ? rc
		      : qp_offer(&seen, id->port_num, &listener->uri, &listener->opt, 1, &own);
}

static void name_listener(struct listener *listener)
{
	uint16_t port = ntohs(rdma_get_src_port(listener->ids[0]));
	const char *host = listener->uri.host;
	bool v6 = strchr(host, ':') != NULL;

	snprintf(listener->base.uri, sizeof(listener->base.uri), "rdma://%s%s%s:%u", v6 ? "[" : "",
		 host, v6 ? "]" : "", port);
	if (strcmp(host, "*") != 0)
		return;
	/* Peers can't connect to "*": name the address of a device of this machine. */
	struct ibv_device **list = ibv_get_device_list(NULL);
	union address at, like = {.any.sa_family = AF_UNSPEC};
	char text[96];

	for (int i = 0; list && list[i]; i++) {
		const char *dev =
		    listener->uri.dev[0] ? listener->uri.dev : ibv_get_device_name(list[i]);

		if (device_address(dev, listener->uri.gid, &like, &at) < 0)
			continue;
		set_port(&at, port);
		snprintf(listener->base.uri, sizeof(listener->base.uri), "rdma://%s",
			 address_text(&at, text, sizeof(text)));
		break;
	}
	if (list)
		ibv_free_device_list(list);
}

static int open_listener(struct listener *listener)
{
	int backlog = (int)listener->opt.max_conns;
	int rc = cm_channel(&listener->channel);

	if (rc < 0)
		return rc;
	rc = strcmp(listener->uri.host, "*") ? bind_host(listener) : bind_all(listener);
	if (rc == 0)
		rc = check_device(listener);
	if (rc < 0)
		return rc;
	for (int i = 0; i < listener->n_ids; i++)
		if (rdma_listen(listener->ids[i], backlog < BACKLOG_MIN ? BACKLOG_MIN : backlog) !=
		    0)
			return bind_failed(&listener->uri, listener->uri.host);
	name_listener(listener);
	return 0;
}

int verbs_listen(const struct tp_uri *uri, const struct tp_options *opt, struct tp_listener **out)
{
	struct listener *listener = calloc(1, sizeof(*listener));

	if (!listener)
		return err_set(ENOMEM, "no memory for a listener");
	listener->base.backend = &tp_verbs_backend;
	listener->uri = *uri;
	listener->opt = *opt;
	listener->quota = quota_new();
	int rc =
	    listener->quota ? open_listener(listener) : err_set(ENOMEM, "no memory for a listener");

	if (rc < 0)
		verbs_listener_destroy(&listener->base);
	else
		*out = &listener->base;
	return rc;
}

static void refuse(struct rdma_cm_id *id, enum hello_reason reason)
{
	struct hello hello = {
	    .version = HELLO_VERSION, .kind = HELLO_REFUSAL, .reason = (uint16_t)reason};
	const union address *at = (const union address *)rdma_get_peer_addr(id);
	uint8_t data[HELLO_BYTES];
	char text[96];

	hello_encode(&hello, data);
	/* If it can't be told, destroying the id rejects it without a reason. */
	if (rdma_reject(id, data, sizeof(data)) == 0)
		log_info("rdma: refused %s: %s", address_text(at, text, sizeof(text)),
			 hello_reason_text(reason));
	rdma_destroy_id(id);
}

/* All that came of a bundle. */
static void refuse_all(const struct gathering *all, unsigned from, enum hello_reason reason)
{
	for (unsigned r = from; r < all->rails; r++) {
		struct request *req = all->request[r];

		if (req)
			refuse(req->id, reason);
		free(req);
	}
}

static void drop_gatherings(struct listener *listener, uint64_t now)
{
	struct gathering all;

	while (gather_expired(&listener->gather, now, &all))
		refuse_all(&all, 0, HELLO_RAILS);
}

void verbs_listener_destroy(struct tp_listener *base)
{
	struct listener *listener = (struct listener *)base;
	struct rdma_cm_event *event;

	drop_gatherings(listener, UINT64_MAX);

	/* Requests that nobody took have ids of their own. */
	while (listener->channel && rdma_get_cm_event(listener->channel, &event) == 0) {
		struct rdma_cm_id *id =
		    event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;

		rdma_ack_cm_event(event);
		if (id)
			rdma_destroy_id(id);
	}
	drop_ids(listener);
	if (listener->channel)
		rdma_destroy_event_channel(listener->channel);
	quota_put(listener->quota);
	free(listener);
}

int verbs_listener_fd(const struct tp_listener *base)
{
	return ((const struct listener *)base)->channel->fd;
}

/* ---- accepting --------------------------------------------------------------------------------
 */

/* HELLO_OK, or why this request is refused. */
static enum hello_reason judge(const struct listener *listener, const struct request *req)
{
	const char *name = ibv_get_device_name(req->id->verbs->device);

	if (req->verdict == HELLO_OTHER_VERSION)
		return HELLO_VERSIONS;
	if (req->verdict != HELLO_GOOD || req->offer.kind != HELLO_OFFER)
		return HELLO_NONSENSE;
	if (listener->uri.dev[0] && strcmp(listener->uri.dev, name) != 0)
		return HELLO_DEVICE;
	if (atomic_load(&listener->quota->live) >= listener->opt.max_conns)
		return HELLO_FULL;
	return HELLO_OK;
}

/* Queues for what both sides can do. */
static int make_queues(struct listener *listener, struct conn *conn, const struct request *req,
		       struct hello *agreed)
{
	const struct hello *offer = &req->offer;
	struct qp_sizes sizes;
	struct hello own;
	int rc = device_get(conn->sub, conn->id, &conn->dev);

	if (rc == 0)
		rc = binding_check(conn, offer, req->qp_num);
	if (rc == 0)
		rc = qp_tune(conn->dev, &listener->uri, &conn->tuning);
	if (rc == 0)
		rc = qp_sizes(conn->dev, listener->opt.depth, &sizes);
	if (rc == 0)
		rc = qp_offer(conn->dev, conn->id->port_num, &listener->uri, &listener->opt,
			      sizes.depth, &own);
	if (rc < 0)
		return rc;
	if (offer->flags != own.flags || !offer->mtu != !own.mtu)
		return err_set(EPROTO, "the peer's hello is of another transport");
	*agreed = hello_agree(offer, &own);
	uint32_t path_mtu = qp_path_mtu(conn);

	if (path_mtu < agreed->mtu)
		agreed->mtu = path_mtu;
	rc = qp_sizes(conn->dev, agreed->depth, &sizes);
	if (rc == 0)
		rc = qp_create(conn, &sizes);
	if (rc == 0)
		rc = qp_connect(conn, &listener->uri, agreed);
	if (rc == 0)
		rc = binding_introduce(conn, agreed);
	if (rc < 0)
		return rc;
	binding_make(conn, false, agreed, offer);
	qp_set_limits(conn, agreed);
	qp_probe(conn, agreed);
	conn->peer_probe_addr = offer->probe_addr;
	conn->peer_probe_key = offer->probe_key;
	return 0;
}

/* The last steps. Once the poller knows the connection a failure is the connection's event. */
static int answer(struct listener *listener, struct conn *conn, const struct hello *agreed)
{
	uint8_t data[HELLO_BYTES];
	struct siw_guard guard;
	struct rdma_conn_param param = {
	    .private_data = data,
	    .private_data_len = sizeof(data),
	    .responder_resources = agreed->reads_in,
	    .initiator_depth = agreed->reads_out,
	    .rnr_retry_count = 6,
	    .qp_num = conn->qp_num,
	};
	int rc = cm_watch(conn);

	if (rc < 0)
		return rc;
	hello_encode(agreed, data);
	conn->posting = POST_NOT_YET;
	conn_bind(conn, CONN_ACCEPTED, clock_ns() + listener->opt.timeout_ms * NS_PER_MS);
	siw_enter(conn->dev, &guard);
	int accepted = rdma_accept(conn->id, &param);

	siw_leave(conn->dev, &guard);
	if (accepted != 0)
		conn_fail(conn, UNLOCKED, -ECONNABORTED, "the peer gave up connecting: %s",
			  strerror(errno));
	sub_kick(conn->sub);
	return 0;
}

static int accept_request(struct listener *listener, struct request *req, struct sub *sub,
			  const struct tp_owner *owner, struct tp_conn **out)
{
	struct hello agreed;
	struct conn *conn;
	int rc = conn_new(sub, owner, &conn);

	if (rc < 0) {
		refuse(req->id, HELLO_SCARCE);
		return rc;
	}
	conn->id = req->id;
	conn->id->context = conn;
	conn->lend_limit = listener->opt.lend_bytes;
	conn->quota = listener->quota;
	atomic_fetch_add(&conn->quota->refs, 1);
	atomic_fetch_add(&conn->quota->live, quota_share(&conn->base));
	cm_name_peer(conn);
	rc = cm_channel(&conn->channel);
	if (rc == 0 && rdma_migrate_id(conn->id, conn->channel) != 0)
		rc = err_set(errno, "rdma_migrate_id: %s", strerror(errno));
	if (rc == 0)
		rc = make_queues(listener, conn, req, &agreed);
	if (rc == 0)
		rc = answer(listener, conn, &agreed);
	if (rc == 0) {
		*out = &conn->base;
		return 1;
	}
	err_wrap(rc, "accepting %s", conn->base.peer);
	conn->id = NULL;
	refuse(req->id, rc == -EPROTO ? HELLO_NONSENSE : HELLO_SCARCE);
	conn_free(conn);
	return rc;
}

/* ---- rails ------------------------------------------------------------------------------------
 */

static int take_rail(void *listener, void *request, struct tp_subcq *sub,
		     const struct tp_owner *owner, struct tp_conn **out)
{
	struct request *req = request;
	int rc = accept_request(listener, req, sub_of(sub), owner, out);

	free(req);
	return rc;
}

static int take_bundle(struct listener *listener, const struct gathering *all,
		       struct tp_subcq *sub, void *user, struct tp_conn **out)
{
	unsigned used;
	int rc = bundle_accept(listener, take_rail, all->request, all->rails, sub, user, &used, out);

	refuse_all(all, used, HELLO_RAILS);
	return rc;
}

/* One of several. */
static int gather(struct listener *listener, const struct request *one, struct tp_subcq *sub,
		  void *user, struct tp_conn **out)
{
	const struct hello *offer = &one->offer;
	struct request *req = malloc(sizeof(*req));
	struct gathering all;

	if (!req) {
		refuse(one->id, HELLO_SCARCE);
		return err_set(ENOMEM, "no memory for a rail");
	}
	*req = *one;
	switch (gather_add(&listener->gather, offer->bundle, offer->rails, offer->rail, req,
			   clock_ns(), &all)) {
	case GATHER_COMPLETE:
		return take_bundle(listener, &all, sub, user, out);
	case GATHER_WAITS: /* one that had to make room */
		refuse_all(&all, 0, HELLO_RAILS);
		break;
	case GATHER_WRONG:
		refuse(req->id, HELLO_NONSENSE);
		free(req);
		break;
	case GATHER_CROWDED:
		refuse(req->id, HELLO_RAILS);
		free(req);
		break;
	}
	return 0;
}

/* Its other rails need not wait for it. */
static void refuse_request(struct listener *listener, const struct request *req,
			   enum hello_reason reason)
{
	struct gathering all;

	refuse(req->id, reason);
	if (reason == HELLO_FULL && req->offer.rails &&
	    gather_drop(&listener->gather, req->offer.bundle, &all))
		refuse_all(&all, 0, reason);
}

/* Takes the next request off the channel; 0 when there is none. */
static int next_request(struct listener *listener, struct request *req)
{
	struct rdma_cm_event *event;
	int rc = 0;

	while (rc == 0 && rdma_get_cm_event(listener->channel, &event) == 0) {
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			req->id = event->id;
			req->qp_num = event->param.conn.qp_num;
			req->verdict =
			    hello_decode(event->param.conn.private_data,
					 event->param.conn.private_data_len, &req->offer);
			rc = 1;
		} else if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
			rc = err_set(ENODEV, "the listener's RDMA device was removed");
		}
		rdma_ack_cm_event(event);
	}
	return rc;
}

int verbs_accept(struct tp_listener *base, struct tp_subcq *sub, void *user, struct tp_conn **out)
{
	struct listener *listener = (struct listener *)base;
	struct request req;
	int rc;

	drop_gatherings(listener, clock_ns());
	for (int i = 0; i < REQUESTS_A_CALL; i++) {
		rc = next_request(listener, &req);
		if (rc <= 0)
			return rc;
		enum hello_reason reason = judge(listener, &req);

		if (reason != HELLO_OK) {
			refuse_request(listener, &req, reason);
			continue;
		}
		struct tp_owner owner = {.user = user};

		rc = req.offer.rails ? gather(listener, &req, sub, user, out)
				     : accept_request(listener, &req, sub_of(sub), &owner, out);
		if (rc)
			return rc;
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Connection manager events. Each connection has an event channel of its own: tp_connect waits on
 * it with a deadline, later the polling thread watches it. Every event is acknowledged, and no id
 * is destroyed while one of its events is being handled (that would wait for itself).
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

int cm_channel(struct rdma_event_channel **out)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	if (!channel)
		return err_set(
		    errno, "rdma_create_event_channel: %s%s", strerror(errno),
		    errno == ENODEV || errno == ENOENT ? " (is the module rdma_ucm loaded?)" : "");
	int flags = fcntl(channel->fd, F_GETFL);

	if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(channel->fd, F_SETFD, FD_CLOEXEC) < 0) {
		int rc = err_set(errno, "O_NONBLOCK on an event channel: %s", strerror(errno));

		rdma_destroy_event_channel(channel);
		return rc;
	}
	*out = channel;
	return 0;
}

int cm_wait(struct rdma_event_channel *channel, uint64_t deadline, struct rdma_cm_event **out)
{
	for (;;) {
		if (rdma_get_cm_event(channel, out) == 0)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return err_set(errno, "rdma_get_cm_event: %s", strerror(errno));
		uint64_t now = clock_ns();
		struct pollfd fd = {.fd = channel->fd, .events = POLLIN};

		if (now >= deadline)
			return -ETIMEDOUT;
		if (poll(&fd, 1, (int)((deadline - now) / NS_PER_MS) + 1) < 0 && errno != EINTR)
			return err_set(errno, "poll: %s", strerror(errno));
	}
}

int cm_set_tos(struct rdma_cm_id *id, const struct tp_uri *uri)
{
	uint8_t tos = (uint8_t)uri->tc;

	if (uri->tc < 0)
		return 0;
	if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)) == 0)
		return 0;
	return err_set(errno, "tc=%d can't be set: %s", uri->tc, strerror(errno));
}

void cm_name_peer(struct conn *conn)
{
	const union address *at = (const union address *)rdma_get_peer_addr(conn->id);

	if (at->any.sa_family == AF_INET || at->any.sa_family == AF_INET6)
		address_text(at, conn->base.peer, sizeof(conn->base.peer));
}

/* ---- the polling thread's ---------------------------------------------------------------------
 */

static void disconnected(struct conn *conn)
{
	if (conn->state == CONN_OPEN || conn->state == CONN_ACCEPTED)
		conn_fail(conn, UNLOCKED, -ECONNRESET,
			  "the peer went away without closing: its process ended or was killed");
	teardown_begin(conn);
	teardown_established(conn);
}

static void not_completed(struct conn *conn, const struct rdma_cm_event *event)
{
	conn_fail(conn, UNLOCKED, -ECONNABORTED,
		  "the peer did not complete the connection: %s (status %d)",
		  rdma_event_str(event->event), event->status);
	teardown_begin(conn);
	teardown_established(conn); /* it will not be, so nothing waits for it */
}

static void on_event(struct conn *conn, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		/* Posting waits for the peer's first message, which shows more. */
		teardown_established(conn);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		disconnected(conn);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		/* A peer that ends before its confirmation got through is said to reject. */
		if (conn->state == CONN_ACCEPTED)
			not_completed(conn, event);
		else
			disconnected(conn);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		conn_fail(conn, UNLOCKED, -ENODEV, "the RDMA device was removed");
		teardown_begin(conn);
		break;
	default: /* TIMEWAIT_EXIT, ADDR_CHANGE: nothing follows from them */
		log_debug("rdma: %s: %s", conn->base.peer, rdma_event_str(event->event));
	}
}

/* Whether an event may be taken: one that comes before the connection is bound waits for that. */
static bool is_bound(struct conn *conn)
{
	pthread_mutex_lock(&conn->sub->lock);
	bool bound = conn->bound;

	pthread_mutex_unlock(&conn->sub->lock);
	return bound;
}

static void cm_ready(struct tp_watch *watch, uint32_t events)
{
	struct conn *conn = (struct conn *)((char *)watch - offsetof(struct conn, cm_watch));
	struct rdma_cm_event *event;

	while (is_bound(conn) && rdma_get_cm_event(conn->channel, &event) == 0) {
		pthread_mutex_lock(&conn->sub->lock);
		on_event(conn, event);
		pthread_mutex_unlock(&conn->sub->lock);
		rdma_ack_cm_event(event);
	}
}

int cm_watch(struct conn *conn)
{
	conn->cm_watch = (struct tp_watch){.fd = conn->channel->fd, .ready = cm_ready};
	int rc = tp_cq_watch(conn->base.cq, &conn->cm_watch);

	conn->watched = rc == 0;
	return rc;
}

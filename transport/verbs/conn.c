/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections: making, finding and freeing them, and the one setter of their state.
 */
#include "base/err.h"
#include "base/log.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- states -----------------------------------------------------------------------------------
 */

void conn_set_state(struct conn *conn, enum conn_state state)
{
	static const char *const texts[] = {
	    [CONN_CONNECTING] = "connecting",
	    [CONN_ACCEPTED] = "accepted, waiting for the peer to confirm",
	    [CONN_OPEN] = "open",
	    [CONN_CLOSING] = "closing: posted work is delivered first",
	    [CONN_PEER_CLOSING] = "the peer closes: answering its goodbye",
	    [CONN_DRAINING] = "draining: work requests come back",
	    [CONN_DRAINED] = "drained: the QP is destroyed",
	    [CONN_CLOSED] = "closed",
	};

	log_debug("rdma: %s (QP %u): %s -> %s", conn->base.peer, conn->qp_num, texts[conn->state],
		  texts[state]);
	conn->state = state;
}

/* ---- the listener's count ---------------------------------------------------------------------
 */

struct quota *quota_new(void)
{
	struct quota *quota = calloc(1, sizeof(*quota));

	if (quota)
		quota->refs = 1;
	return quota;
}

void quota_put(struct quota *quota)
{
	if (quota && atomic_fetch_sub(&quota->refs, 1) == 1)
		free(quota);
}

void quota_leave(struct conn *conn)
{
	if (conn->quota) {
		atomic_fetch_sub(&conn->quota->live, quota_share(&conn->base));
		quota_put(conn->quota);
	}
	conn->quota = NULL;
}

/* ---- making -----------------------------------------------------------------------------------
 */

int conn_new(struct sub *sub, const struct tp_owner *owner, struct conn **out)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return err_set(ENOMEM, "no memory for a connection");
	conn->base.backend = &tp_verbs_backend;
	conn->base.cq = sub->base.cq;
	tp_conn_own(&conn->base, owner);
	conn->base.limits.rails = 1;
	conn->sub = sub;
	conn->state = CONN_CONNECTING;
	pthread_spin_init(&conn->lock, PTHREAD_PROCESS_PRIVATE);
	pthread_mutex_lock(&sub->lock);
	conn->serial = ++sub->next_serial & SERIAL_MASK;
	pthread_mutex_unlock(&sub->lock);
	*out = conn;
	return 0;
}

static struct conn **bucket_of(struct device *dev, uint32_t qp_num)
{
	return &dev->buckets[qp_num % CONN_BUCKETS];
}

void conn_bind(struct conn *conn, enum conn_state state, uint64_t deadline)
{
	struct sub *sub = conn->sub;
	struct conn **bucket = bucket_of(conn->dev, conn->qp_num);

	pthread_mutex_lock(&sub->lock);
	conn_set_state(conn, state);
	conn->bucket = *bucket;
	*bucket = conn;
	conn->prev = NULL;
	conn->next = sub->conns;
	if (conn->next)
		conn->next->prev = conn;
	sub->conns = conn;
	conn->bound = true;
	sub_deadline(conn, deadline);
	pthread_mutex_unlock(&sub->lock);
}

struct conn *conn_find(struct device *dev, uint32_t qp_num)
{
	struct conn *conn = *bucket_of(dev, qp_num);

	while (conn && conn->qp_num != qp_num)
		conn = conn->bucket;
	return conn;
}

/* ---- taking apart -----------------------------------------------------------------------------
 */

void conn_unbind(struct conn *conn)
{
	struct sub *sub = conn->sub;

	for (unsigned i = 0; i < sub->nheld; i++)
		if (sub->held[i].conn == conn)
			sub->held[i].conn = NULL;
	if (conn->bank)
		conn->bank->used -= conn->cqes;
	conn->bank = NULL;
	if (!conn->bound)
		return;
	conn->bound = false;
	sub_deadline(conn, 0);
	struct conn **at = bucket_of(conn->dev, conn->qp_num);

	while (*at != conn)
		at = &(*at)->bucket;
	*at = conn->bucket;
	if (conn->prev)
		conn->prev->next = conn->next;
	else
		sub->conns = conn->next;
	if (conn->next)
		conn->next->prev = conn->prev;
}

void conn_destroy_qp(struct conn *conn)
{
	struct siw_guard guard;

	if (!conn->qp)
		return;
	siw_enter(conn->dev, &guard);
	int rc = ibv_destroy_qp(conn->qp);

	siw_leave(conn->dev, &guard);
	if (rc != 0)
		log_error("rdma: %s: ibv_destroy_qp: %s", conn->base.peer, strerror(rc));
	conn->qp = NULL;
}

static void off_ready(struct conn *conn)
{
	struct conn **at = &conn->sub->ready;

	if (!conn->on_ready)
		return;
	while (*at != conn)
		at = &(*at)->ready_next;
	*at = conn->ready_next;
	conn->on_ready = false;
}

static void free_now(struct conn *conn)
{
	if (conn->qp) {
		qp_set_error(conn);
		conn_destroy_qp(conn);
	}
	pthread_mutex_lock(&conn->sub->lock);
	off_ready(conn);
	conn_unbind(conn);
	pthread_mutex_unlock(&conn->sub->lock);
	lend_free(conn);
	while (conn->regions)
		verbs_region_destroy(&conn->regions->base);
	while (conn->remotes)
		verbs_remote_destroy(&conn->remotes->base);
	if (conn->mem_mr)
		ibv_dereg_mr(conn->mem_mr);
	mem_unmap(conn->mem, conn->mem_size);
	if (conn->probe_mr)
		ibv_dereg_mr(conn->probe_mr);
	mem_unmap(conn->probe, sizeof(*conn->probe));
	rx_free(conn);
	if (conn->pd)
		ibv_dealloc_pd(conn->pd);
	if (conn->id)
		rdma_destroy_id(conn->id);
	if (conn->channel)
		rdma_destroy_event_channel(conn->channel);
	sendq_free(&conn->sq);
	quota_leave(conn);
	pthread_spin_destroy(&conn->lock);
	free(conn);
}

static void *free_later(void *arg)
{
	struct conn *conn = arg;
	struct sub *sub = conn->sub;

	free_now(conn);
	pthread_mutex_lock(&sub->lock);
	sub->freeing--;
	pthread_cond_signal(&sub->freed);
	pthread_mutex_unlock(&sub->lock);
	return NULL;
}

/* The kernel's iWARP connection manager lets go of a QP and an id only when the peer has answered,
 * or its own ten seconds are over. tp_connect has a deadline, so a thread waits in its stead (and
 * the sub waits for the thread before it ends). */
static bool give_to_thread(struct conn *conn)
{
	struct sub *sub = conn->sub;
	pthread_attr_t detached;
	pthread_t thread;

	pthread_mutex_lock(&sub->lock);
	sub->freeing++;
	pthread_mutex_unlock(&sub->lock);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	int rc = pthread_create(&thread, &detached, free_later, conn);

	pthread_attr_destroy(&detached);
	if (rc == 0)
		return true;
	pthread_mutex_lock(&sub->lock);
	sub->freeing--;
	pthread_mutex_unlock(&sub->lock);
	return false;
}

void conn_free(struct conn *conn)
{
	bool slow = conn->connect_pending && conn->dev->iwarp;

	if (!slow || !give_to_thread(conn))
		free_now(conn);
}

void verbs_conn_destroy(struct tp_conn *base)
{
	struct conn *conn = conn_of(base);

	/* Before its TP_EV_CLOSED this is only called while nobody polls. */
	if (conn->state != CONN_CLOSED) {
		if (conn->watched)
			tp_cq_unwatch(base->cq, &conn->cm_watch);
		if (!conn_ending(conn)) {
			struct siw_guard guard;

			qp_set_error(conn);
			siw_enter(conn->dev, &guard);
			rdma_disconnect(conn->id);
			siw_leave(conn->dev, &guard);
		}
	}
	conn_free(conn);
}

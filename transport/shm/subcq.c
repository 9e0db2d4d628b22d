/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections of one completion queue: polled in turn, armed before sleep.
 */
#include "base/err.h"
#include "transport/shm/order.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Events of one connection before it is the next one's turn. */
#define TURN_MAX 16

int shm_subcq_create(struct tp_cq *cq, struct tp_subcq **out)
{
	struct shm_subcq *sub = calloc(1, sizeof(*sub));

	if (!sub)
		return err_set(ENOMEM, "no memory for a completion queue");
	sub->base = (struct tp_subcq){.backend = &tp_shm_backend, .cq = cq};
	pthread_mutex_init(&sub->lock, NULL);
	*out = &sub->base;
	return 0;
}

void shm_subcq_destroy(struct tp_subcq *base)
{
	struct shm_subcq *sub = (struct shm_subcq *)base;

	pthread_mutex_destroy(&sub->lock);
	free(sub->conns);
	free(sub);
}

int shm_subcq_add(struct shm_subcq *sub, struct shm_conn *conn)
{
	int rc = tp_cq_watch(sub->base.cq, &conn->watch);

	if (rc < 0)
		return rc;
	if (conn->peer_watch.fd >= 0)
		rc = tp_cq_watch(sub->base.cq, &conn->peer_watch);
	if (rc < 0) {
		tp_cq_unwatch(sub->base.cq, &conn->watch);
		return rc;
	}
	pthread_mutex_lock(&sub->lock);
	conn->listed = true;
	conn->next_new = atomic_load_explicit(&sub->news, memory_order_relaxed);
	atomic_store_explicit(&sub->news, conn, memory_order_release);
	pthread_mutex_unlock(&sub->lock);
	return 0;
}

/* Without memory the list can't grow: the news stay where they are until it can. */
static bool grow(struct shm_subcq *sub)
{
	unsigned room = sub->room ? 2 * sub->room : 16;
	struct shm_conn **conns = realloc(sub->conns, room * sizeof(*conns));

	if (!conns)
		return false;
	sub->conns = conns;
	sub->room = room;
	return true;
}

static void take_news(struct shm_subcq *sub)
{
	if (!atomic_load_explicit(&sub->news, memory_order_relaxed))
		return;
	pthread_mutex_lock(&sub->lock);
	struct shm_conn *conn = atomic_load_explicit(&sub->news, memory_order_relaxed);

	while (conn && (sub->nconns < sub->room || grow(sub))) {
		sub->conns[sub->nconns++] = conn;
		conn = conn->next_new;
	}
	atomic_store_explicit(&sub->news, conn, memory_order_relaxed);
	pthread_mutex_unlock(&sub->lock);
}

static void unlist(struct shm_subcq *sub, unsigned i)
{
	struct shm_conn *conn = sub->conns[i];

	tp_cq_unwatch(sub->base.cq, &conn->watch);
	if (conn->peer_watch.fd >= 0)
		tp_cq_unwatch(sub->base.cq, &conn->peer_watch);
	conn->listed = false;
	sub->conns[i] = sub->conns[--sub->nconns];
}

void shm_subcq_remove(struct shm_subcq *sub, struct shm_conn *conn)
{
	take_news(sub);
	for (unsigned i = 0; i < sub->nconns; i++)
		if (sub->conns[i] == conn) {
			unlist(sub, i);
			return;
		}
}

static void unlist_closed(struct shm_subcq *sub)
{
	/* From the end: what moves into a place was looked at. */
	for (unsigned i = sub->nconns; i-- > 0;)
		if (sub->conns[i]->given_closed)
			unlist(sub, i);
}

int shm_subcq_poll(struct tp_subcq *base, struct tp_event *ev, int max)
{
	struct shm_subcq *sub = (struct shm_subcq *)base;
	bool any_closed = false;
	int n = 0;

	take_news(sub);
	/* Begins with the next one each time, and visits each once: a second visit would overwrite
	 * the message that the first one gave. So the list stays as it is meanwhile. */
	unsigned total = sub->nconns, first = total ? sub->turn++ % total : 0;

	for (unsigned i = 0; i < total && n < max; i++) {
		struct shm_conn *conn = sub->conns[(first + i) % total];
		int turn = max - n < TURN_MAX ? max - n : TURN_MAX;

		n += shm_conn_take(conn, ev + n, turn, &conn->given_closed);
		any_closed |= conn->given_closed;
	}
	if (any_closed)
		unlist_closed(sub);
	return n;
}

bool shm_subcq_arm(struct tp_subcq *base)
{
	struct shm_subcq *sub = (struct shm_subcq *)base;
	bool ready = false;

	take_news(sub);
	for (unsigned i = 0; i < sub->nconns && !ready; i++) {
		struct shm_conn *conn = sub->conns[i];
		bool starved = atomic_load_explicit(&conn->starved, memory_order_relaxed);

		announce_sleep(conn->mine, SHM_SLEEP_ENTRY | (starved ? SHM_SLEEP_ROOM : 0));
		ready = shm_conn_ready(conn);
	}
	return ready;
}

void shm_subcq_disarm(struct tp_subcq *base)
{
	struct shm_subcq *sub = (struct shm_subcq *)base;

	for (unsigned i = 0; i < sub->nconns; i++)
		end_sleep(sub->conns[i]->mine);
}

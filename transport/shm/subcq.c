/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections of one completion queue: polled in turn, armed before sleep.
 *
 * Of many connections few may be busy. So those that gave something lately, the *busy* ones, stand at
 * the head of the list and are visited at each poll; of the quiet ones behind them only some, in turn.
 * That is this side's own account: a peer can't keep another's connection from its turn.
 *
 * Nor is a quiet connection armed anew each time. `armed` says that its sleep word was announced, and
 * looked behind, and not taken back. As long as the peer has not taken the word (which it does with
 * whatever it publishes, and then rings), nothing was published since; who took it is looked at again.
 */
#include "base/err.h"
#include "transport/shm/order.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Events of one connection before it is the next one's turn. */
#define TURN_MAX 16
/* Quiet connections that a poll visits, and how many visits in vain make a busy one quiet. */
#define QUIET_VISITS 4u
#define VAIN_MAX     64u

int shm_subcq_create(struct tp_cq *cq, struct tp_subcq **out)
{
	struct shm_subcq *sub = line_alloc(1, sizeof(*sub));

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
		conn->place = sub->nconns;
		sub->conns[sub->nconns++] = conn;
		conn = conn->next_new;
	}
	atomic_store_explicit(&sub->news, conn, memory_order_relaxed);
	pthread_mutex_unlock(&sub->lock);
}

/* Exchanges the connections in two places. */
static void move(struct shm_subcq *sub, unsigned from, unsigned to)
{
	struct shm_conn *conn = sub->conns[from];

	sub->conns[from] = sub->conns[to];
	sub->conns[from]->place = from;
	sub->conns[to] = conn;
	conn->place = to;
}

static void unlist(struct shm_subcq *sub, unsigned i)
{
	struct shm_conn *conn = sub->conns[i];

	tp_cq_unwatch(sub->base.cq, &conn->watch);
	if (conn->peer_watch.fd >= 0)
		tp_cq_unwatch(sub->base.cq, &conn->peer_watch);
	conn->listed = false;
	if (i < sub->nbusy) {
		move(sub, i, --sub->nbusy);
		i = sub->nbusy;
	}
	move(sub, i, --sub->nconns);
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

/* ---- busy and quiet --------------------------------------------------------------------------- */

/* It has something, or gave it. */
static void make_busy(struct shm_subcq *sub, struct shm_conn *conn)
{
	conn->vain = 0;
	if (conn->armed)
		end_sleep(conn->mine);
	conn->armed = false;
	if (conn->place >= sub->nbusy)
		move(sub, conn->place, sub->nbusy++);
}

void shm_subcq_rung(struct shm_conn *conn)
{
	struct shm_subcq *sub = conn->sub;

	/* Not while it is among the news. */
	if (conn->place < sub->nconns && sub->conns[conn->place] == conn)
		make_busy(sub, conn);
}

static void make_quiet(struct shm_subcq *sub)
{
	for (unsigned i = sub->nbusy; i-- > 0;)
		if (sub->conns[i]->vain >= VAIN_MAX)
			move(sub, i, --sub->nbusy);
}

/* ---- polling ---------------------------------------------------------------------------------- */

/* One poll. It visits a connection once: a second visit would overwrite the message that the first one
 * gave. So the list stays as it is meanwhile. */
struct round_trip {
	struct tp_event *ev;
	int n, max, turn;
	bool any_closed;
};

/* True: it gave something. */
static bool visit(struct round_trip *r, struct shm_conn *conn)
{
	int room = r->max - r->n, turn = room < r->turn ? room : r->turn;
	int n = shm_conn_take(conn, r->ev + r->n, turn, &conn->given_closed);

	r->n += n;
	r->any_closed |= conn->given_closed;
	conn->vain = n ? 0 : conn->vain + 1;
	return n > 0;
}

/* Begins with the next one each time, as the quiet ones do. */
static void visit_busy(struct shm_subcq *sub, struct round_trip *r)
{
	unsigned n = sub->nbusy, at = n ? sub->turn % n : 0;

	for (unsigned i = 0; i < n && r->n < r->max; i++) {
		visit(r, sub->conns[at]);
		at = at + 1 < n ? at + 1 : 0;
	}
}

/* Those that gave something go to `woken`. Returns how many. */
static unsigned visit_quiet(struct shm_subcq *sub, struct round_trip *r, struct shm_conn **woken)
{
	unsigned total = sub->nconns - sub->nbusy, n = total < QUIET_VISITS ? total : QUIET_VISITS;
	unsigned many = 0;

	for (unsigned i = 0; i < n && r->n < r->max; i++) {
		struct shm_conn *conn = sub->conns[sub->nbusy + sub->quiet_turn++ % total];

		if (visit(r, conn))
			woken[many++] = conn;
	}
	return many;
}

int shm_subcq_poll(struct tp_subcq *base, struct tp_event *ev, int max)
{
	struct shm_subcq *sub = (struct shm_subcq *)base;
	struct round_trip r = {.ev = ev, .max = max, .turn = TURN_MAX};
	struct shm_conn *woken[QUIET_VISITS];
	unsigned many;

	take_news(sub);
	/* The quiet first, or busy ones could fill every poll. */
	many = visit_quiet(sub, &r, woken);
	if (sub->nbusy == 1)
		r.turn = max; /* nobody else's turn comes before the next poll */
	visit_busy(sub, &r);
	while (many > 0)
		make_busy(sub, woken[--many]);
	if (r.any_closed)
		unlist_closed(sub);
	if (++sub->turn % VAIN_MAX == 0)
		make_quiet(sub);
	return r.n;
}

/* ---- sleeping --------------------------------------------------------------------------------- */

/* True: it has something. */
static bool arm(struct shm_conn *conn)
{
	bool starved = atomic_load_explicit(&conn->starved, memory_order_relaxed);
	uint32_t what = SHM_SLEEP_ENTRY | (starved ? SHM_SLEEP_ROOM : 0);

	if (conn->armed && sleep_is_announced(conn->mine, what))
		return shm_conn_ready_here(conn);
	announce_sleep(conn->mine, what);
	conn->armed = true;
	return shm_conn_ready(conn);
}

bool shm_subcq_arm(struct tp_subcq *base)
{
	struct shm_subcq *sub = (struct shm_subcq *)base;

	take_news(sub);
	for (unsigned i = 0; i < sub->nconns; i++) {
		struct shm_conn *conn = sub->conns[i];

		if (arm(conn)) {
			make_busy(sub, conn);
			return true;
		}
	}
	return false;
}

void shm_subcq_disarm(struct tp_subcq *base)
{
	struct shm_subcq *sub = (struct shm_subcq *)base;

	for (unsigned i = 0; i < sub->nbusy; i++) {
		end_sleep(sub->conns[i]->mine);
		sub->conns[i]->armed = false;
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the transport gives, on its way to the program.
 *
 * Invariants:
 *  1. A connection's events leave in order within each lane, TP_EV_CLOSED last.
 *  2. Polling thread only, but for TP_EV_ROOM that a failing post brings about, and what is dropped
 *     with a connection.
 */
#include "layer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { BATCH = 32, BACKLOG = 65536, SHUFFLE_NS = 1000000 };

int __wrap_tp_cq_poll(struct tp_cq *cq, struct tp_event *ev, int max);
int __wrap_tp_cq_wait(struct tp_cq *cq, int timeout_ms);

/* ---- the queue ------------------------------------------------------------------------------- */

static enum lane lane_of(enum tp_event_kind kind)
{
	switch (kind) {
	case TP_EV_IMM:
	case TP_EV_MSG:
		return LANE_RECEIVES;
	case TP_EV_DONE:
		return LANE_SENDS;
	case TP_EV_ROOM:
		return LANE_ROOM;
	default:
		return LANE_CLOSED;
	}
}

static struct held *add(struct fconn *c, const struct tp_event *ev)
{
	struct held *h = calloc(1, sizeof(*h));

	if (!h)
		abort();
	h->ev = *ev;
	h->conn = c;
	h->lane = lane_of(ev->kind);
	h->after = UINT64_MAX;
	if (ev->kind == TP_EV_MSG) {
		h->msg = malloc(ev->len);
		if (!h->msg)
			abort();
		memcpy(h->msg, ev->msg, ev->len);
		h->ev.msg = h->msg;
	}
	*c->queue->end = h;
	c->queue->end = &h->next;
	c->queue->n++;
	return h;
}

static struct held *take_out(struct fqueue *q, struct held **at)
{
	struct held *h = *at;

	*at = h->next;
	if (q->end == &h->next)
		q->end = at;
	q->n--;
	h->next = NULL;
	return h;
}

static void drop(struct held *h)
{
	free(h->msg);
	free(h);
}

/* Those of one connection, of some lanes. */
static void drop_lanes(struct fconn *c, unsigned lanes)
{
	for (struct held **at = &c->queue->first; *at;) {
		if ((*at)->conn == c && ((*at)->lane & lanes))
			drop(take_out(c->queue, at));
		else
			at = &(*at)->next;
	}
}

void queue_drop(struct fconn *c)
{
	pthread_mutex_lock(&c->queue->lock);
	drop_lanes(c, ~0u);
	c->queue->closing -= c->closing;
	pthread_mutex_unlock(&c->queue->lock);
}

static bool has_events(struct fconn *c)
{
	bool any = false;

	for (struct held *h = c->queue->first; h; h = h->next)
		any |= h->conn == c;
	return any;
}

void claim(struct fconn *c)
{
	pthread_mutex_lock(&c->queue->lock);
	bool any = has_events(c);

	c->unclaimed = false;
	pthread_mutex_unlock(&c->queue->lock);
	if (any)
		tp_cq_wake(c->queue->cq);
}

void disown(struct fconn *c)
{
	pthread_mutex_lock(&c->queue->lock);
	bool over = c->closed;

	c->orphan = true;
	drop_lanes(c, ~0u);
	__real_tp_conn_close(c->conn);
	pthread_mutex_unlock(&c->queue->lock);
	if (over)
		tp_conn_destroy(c->conn);
}

bool give_room(struct fconn *c)
{
	struct tp_event room = {.kind = TP_EV_ROOM, .conn = c->conn};
	bool there = false;

	pthread_mutex_lock(&c->queue->lock);
	for (struct held *h = c->queue->first; h; h = h->next)
		there |= h->conn == c && h->lane == LANE_ROOM;
	if (!c->closed && !there)
		add(c, &room)->due = clock_ns() + rules_draw(SHUFFLE_NS);
	bool open = !c->closed;

	pthread_mutex_unlock(&c->queue->lock);
	tp_cq_wake(c->queue->cq);
	return open;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* The ops whose completion was kept back end now. */
static void end_ops(struct fconn *c)
{
	for (uint32_t i = 0; i < c->n_cookies; i++)
		add(c, &(struct tp_event){.kind = TP_EV_DONE,
					  .conn = c->conn,
					  .cookie = c->cookies[i],
					  .status = -ECONNABORTED});
	c->n_cookies = 0;
}

void thaw(struct fconn *c)
{
	struct tp_event closed = {.kind = TP_EV_CLOSED, .conn = c->conn};

	c->frozen = false;
	for (struct held *h = c->queue->first; h; h = h->next) {
		if (h->conn != c)
			continue;
		h->due = 0;
		if (h->lane == LANE_SENDS)
			h->ev.status = -ECONNABORTED;
		else if (h->lane == LANE_CLOSED)
			closed = h->ev;
	}
	drop_lanes(c, ~(unsigned)LANE_SENDS);
	end_ops(c);
	add(c, &closed);
}

static void closed(struct fconn *c, const struct tp_event *ev)
{
	c->closed = true;
	c->queue->closing -= c->closing;
	c->closing = c->waiting = false;
	if (!c->frozen)
		end_ops(c);
	add(c, ev);
	if (c->frozen && c->closed_here)
		thaw(c);
}

/* ---- one event ------------------------------------------------------------------------------- */

/* Back to what it stands for. */
static void unmask(struct fconn *c, struct tp_event *ev)
{
	struct stand_in in;

	if (!c->noimm || ev->kind != TP_EV_MSG || ev->len != sizeof(in) ||
	    memcmp(ev->msg, STAND_IN_MARK, sizeof(in.mark)) != 0)
		return;
	memcpy(&in, ev->msg, sizeof(in));
	*ev = (struct tp_event){.kind = TP_EV_IMM, .conn = ev->conn, .imm = in.imm, .len = in.len};
}

/* Whether the program waits for it; what waits here goes first. */
static bool wants(struct fconn *c)
{
	bool gone = send_waiting(c), wanted = c->wants_room || !c->noimm;

	c->wants_room = false;
	if (gone && c->closing) {
		c->queue->closing--;
		c->closing = false;
		__real_tp_conn_close(c->conn);
	}
	return wanted;
}

static enum fault_point point_of(enum tp_event_kind kind)
{
	static const enum fault_point points[] = {
	    [TP_EV_IMM] = AT_IMM,   [TP_EV_MSG] = AT_MSG,       [TP_EV_DONE] = AT_DONE,
	    [TP_EV_ROOM] = AT_ROOM, [TP_EV_CLOSED] = AT_CLOSED,
	};

	return points[kind];
}

static void truncate_event(struct tp_event *ev, enum fault_point at)
{
	if (ev->len < 2 || !rules_fire(FAULT_TRUNCATE, at))
		return;
	ev->len = 1 + rules_draw(ev->len - 1);
}

/* Delays and reorders what is in the queue now. */
static void hold(struct held *h, enum fault_point at)
{
	const struct fault_rule *delay = rules_fire(FAULT_DELAY, at);
	struct fconn *c = h->conn;

	if (delay)
		h->due = clock_ns() + delay->us * NS_PER_US;
	if (rules_fire(FAULT_REORDER, AT_CONNS))
		c->still_until = clock_ns() + rules_draw(SHUFFLE_NS);
	if (!rules_fire(FAULT_REORDER, at))
		return;
	h->due = clock_ns() + SHUFFLE_NS;
	h->after = c->queue->handed + 1 + rules_draw(8);
	if (h->lane == LANE_RECEIVES)
		h->lane = LANE_ALONE;
}

static void take(struct fconn *c, struct tp_event ev)
{
	unmask(c, &ev);
	enum fault_point at = point_of(ev.kind);

	if (ev.kind == TP_EV_ROOM && !wants(c))
		return;
	rules_reached(at);
	rules_kill(at);
	if (rules_fire(FAULT_FREEZE, at))
		c->frozen = true;
	if (ev.kind == TP_EV_CLOSED) {
		closed(c, &ev);
		return;
	}
	if (rules_fire(FAULT_DROP, at)) {
		if (ev.kind == TP_EV_DONE)
			keep_cookie(c, ev.cookie);
		return;
	}
	truncate_event(&ev, at);
	hold(add(c, &ev), at);
	if (rules_fire(FAULT_DUP, at))
		add(c, &ev);
}

/* ---- polling --------------------------------------------------------------------------------- */

static bool due(const struct fqueue *q, const struct held *h, uint64_t now)
{
	return !h->conn->unclaimed && !h->conn->frozen && h->conn->still_until <= now &&
	       (h->due <= now || h->after <= q->handed);
}

/* Whether it may leave, in a walk from the first. */
static bool may_leave(struct fqueue *q, struct held *h, uint64_t now)
{
	struct fconn *c = h->conn;

	if (c->walk != q->walk) {
		c->walk = q->walk;
		c->blocked = 0;
	}
	bool free = h->lane == LANE_CLOSED  ? !c->blocked
		    : h->lane == LANE_ALONE ? true
					    : !(c->blocked & h->lane);

	if (free && due(q, h, now))
		return true;
	c->blocked |= h->lane;
	return false;
}

static int give(struct fqueue *q, struct tp_event *ev, int max)
{
	uint64_t now = clock_ns();
	int n = 0;

	q->walk++;
	for (struct held **at = &q->first; *at && n < max;) {
		if (!may_leave(q, *at, now)) {
			at = &(*at)->next;
			continue;
		}
		struct held *h = take_out(q, at);

		ev[n++] = h->ev;
		q->handed++;
		h->next = q->given;
		q->given = h;
	}
	return n;
}

static void forget_given(struct fqueue *q)
{
	while (q->given) {
		struct held *h = q->given;

		q->given = h->next;
		drop(h);
	}
}

static uint64_t close_by;

static void look_at_closing(struct fconn *c)
{
	pthread_mutex_lock(&c->lock);
	bool over = c->closing && c->close_by <= close_by;

	if (over)
		c->waiting = false;
	pthread_mutex_unlock(&c->lock);
	if (over)
		close_now(c);
}

/* Whether there is room for more events, too. */
static bool end_closing(struct fqueue *q)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	bool any, room;

	pthread_mutex_lock(&q->lock);
	any = q->closing > 0;
	room = q->n < BACKLOG;
	pthread_mutex_unlock(&q->lock);
	if (!any)
		return room;
	pthread_mutex_lock(&one);
	close_by = clock_ns();
	fconn_each(look_at_closing);
	pthread_mutex_unlock(&one);
	return room;
}

int __wrap_tp_cq_poll(struct tp_cq *cq, struct tp_event *ev, int max)
{
	struct fqueue *q = fqueue_of(cq);
	struct tp_event fresh[BATCH];
	struct fconn *of[BATCH], *gone[BATCH];
	int n = 0, ngone = 0;

	if (end_closing(q) && max > 0)
		n = __real_tp_cq_poll(cq, fresh, max < BATCH ? max : BATCH);
	for (int i = 0; i < n; i++)
		of[i] = fconn_of(fresh[i].conn, cq);
	pthread_mutex_lock(&q->lock);
	forget_given(q);
	for (int i = 0; i < n; i++) {
		if (of[i]->orphan) {
			if (fresh[i].kind == TP_EV_CLOSED)
				gone[ngone++] = of[i];
			continue;
		}
		pthread_mutex_lock(&of[i]->lock);
		take(of[i], fresh[i]);
		pthread_mutex_unlock(&of[i]->lock);
	}
	n = give(q, ev, max);
	pthread_mutex_unlock(&q->lock);
	for (int i = 0; i < ngone; i++)
		tp_conn_destroy(gone[i]->conn);
	return n;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Whether something may leave now; if not, *next is when something may. */
static bool ready(struct fqueue *q, uint64_t *next)
{
	uint64_t now = clock_ns();

	q->walk++;
	*next = q->closing ? now + 20 * NS_PER_MS : UINT64_MAX;
	for (struct held *h = q->first; h; h = h->next) {
		uint64_t at = h->due > h->conn->still_until ? h->due : h->conn->still_until;

		if (may_leave(q, h, now))
			return true;
		if (!h->conn->frozen && !h->conn->unclaimed && at < *next)
			*next = at > now ? at : now + NS_PER_MS;
	}
	return false;
}

static int ms_until(uint64_t when, uint64_t now)
{
	uint64_t ms = when > now ? (when - now + NS_PER_MS - 1) / NS_PER_MS : 0;

	return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

int __wrap_tp_cq_wait(struct tp_cq *cq, int timeout_ms)
{
	struct fqueue *q = fqueue_of(cq);
	uint64_t now = clock_ns(), next;
	uint64_t end = timeout_ms < 0 ? UINT64_MAX : now + (uint64_t)timeout_ms * NS_PER_MS;

	for (;;) {
		pthread_mutex_lock(&q->lock);
		forget_given(q);
		bool some = ready(q, &next);

		pthread_mutex_unlock(&q->lock);
		if (some)
			return 1;
		uint64_t until = next < end ? next : end;
		int rc =
		    __real_tp_cq_wait(cq, until == UINT64_MAX ? -1 : ms_until(until, clock_ns()));

		if (rc)
			return rc;
		now = clock_ns();
		if (next <= now)
			return 1;
		if (end <= now)
			return 0;
	}
}

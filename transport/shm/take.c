/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection's events, taken by the poller.
 *
 * Invariants:
 *  1. What the peer wrote is read once, into this process, and checked there.
 *  2. At the end, what was published before the hang-up is given first, but no more than the ring
 *     holds, whatever the peer goes on to write; then TP_EV_CLOSED, when every completion is out.
 */
#include "transport/shm/order.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <string.h>

struct batch {
	struct tp_event *ev;
	int n, max;
};

static struct tp_event *next_event(struct batch *b, struct shm_conn *conn, enum tp_event_kind kind)
{
	struct tp_event *ev = &b->ev[b->n++];

	*ev = (struct tp_event){.kind = kind, .conn = &conn->base};
	return ev;
}

static bool done_ready(struct shm_conn *conn)
{
	uint64_t pos = atomic_load_explicit(&conn->done_taken, memory_order_relaxed);
	struct shm_done *done = &conn->done[ring_slot(conn->rx.depth, pos)];

	return atomic_load_explicit(&done->seq, memory_order_acquire) == ring_seq(pos);
}

static void take_done(struct shm_conn *conn, struct batch *b)
{
	while (b->n < b->max && done_ready(conn)) {
		uint64_t pos = atomic_load_explicit(&conn->done_taken, memory_order_relaxed);
		const struct shm_done *done = &conn->done[ring_slot(conn->rx.depth, pos)];
		struct tp_event *ev = next_event(b, conn, TP_EV_DONE);

		ev->status = done->status;
		ev->cookie = done->cookie;
		atomic_store_explicit(&conn->done_taken, pos + 1, memory_order_release);
	}
}

static enum ring_look look_in(struct shm_conn *conn)
{
	return ring_rx_look(&conn->rx,
			    look_for_entry(&conn->in[ring_slot(conn->rx.depth, conn->rx.taken)]));
}

/* Gives the event of the entry at hand. False: the peer lied, or the batch must end (a message's
 * bytes are kept for the caller until the next poll, and there is one place for them). */
static bool take_entry(struct shm_conn *conn, struct batch *b)
{
	uint32_t slot = ring_slot(conn->rx.depth, conn->rx.taken);
	uint32_t kind = atomic_load_explicit(&conn->in[slot].kind, memory_order_relaxed);
	uint32_t imm = atomic_load_explicit(&conn->in[slot].imm, memory_order_relaxed);
	uint32_t len = atomic_load_explicit(&conn->in[slot].len, memory_order_relaxed);
	uint64_t limit = kind == RING_IMM ? conn->base.limits.max_chunk : TP_MSG_MAX;

	if ((kind != RING_IMM && kind != RING_MSG) || len < 1 || len > limit) {
		shm_conn_lie(conn, "the peer sent an entry of kind %u with %u bytes", kind, len);
		return false;
	}
	struct tp_event *ev = next_event(b, conn, kind == RING_IMM ? TP_EV_IMM : TP_EV_MSG);

	ev->imm = kind == RING_IMM ? imm : 0;
	ev->len = len;
	if (kind == RING_MSG) {
		memcpy(conn->msg, conn->in_msgs + (size_t)slot * TP_MSG_MAX, len);
		ev->msg = conn->msg;
	}
	conn->rx.taken++;
	return kind == RING_IMM;
}

static void take_entries(struct shm_conn *conn, struct batch *b)
{
	uint64_t before = conn->rx.taken;

	while (b->n < b->max && (!conn->draining || conn->drain_left > 0)) {
		enum ring_look look = look_in(conn);

		if (look == RING_LIE)
			shm_conn_lie(conn,
				     "the peer wrote over the ring: entry %llu is not in order",
				     (unsigned long long)conn->rx.taken);
		if (look != RING_READY || !take_entry(conn, b))
			break;
		if (conn->draining)
			conn->drain_left--;
	}
	if (conn->rx.taken == before)
		return;
	publish_taken(conn->mine, conn->rx.taken);
	shm_wake_peer(conn, SHM_SLEEP_ROOM);
}

static void take_room(struct shm_conn *conn, struct batch *b)
{
	enum shm_room room;

	if (b->n == b->max || !atomic_load_explicit(&conn->starved, memory_order_relaxed))
		return;
	shm_lock(conn);
	room = shm_has_room(conn);
	if (room == SHM_ROOM)
		atomic_store_explicit(&conn->starved, false, memory_order_relaxed);
	shm_unlock(conn);
	if (room == SHM_ROOM)
		next_event(b, conn, TP_EV_ROOM);
	else if (room == SHM_ROOM_LIE)
		shm_conn_lie(conn, "the peer says it took entries that were not sent");
}

static bool all_completed(struct shm_conn *conn)
{
	shm_lock(conn);
	bool all = conn->done_reserved == conn->done_taken;
	shm_unlock(conn);
	return all;
}

int shm_conn_take(struct shm_conn *conn, struct tp_event *ev, int max, bool *closed)
{
	struct batch b = {.ev = ev, .max = max};
	/* Asked first: what was published before the end is then seen below. */
	bool ending = !shm_conn_open(conn);

	*closed = false;
	if (ending && !conn->draining) {
		conn->draining = true;
		conn->drain_left = conn->drain ? conn->rx.depth : 0;
	}
	conn->entries_first = !conn->entries_first;
	if (conn->entries_first)
		take_entries(conn, &b);
	take_done(conn, &b);
	if (!conn->entries_first)
		take_entries(conn, &b);
	if (!ending) {
		take_room(conn, &b);
		return b.n;
	}
	if (b.n == max || !all_completed(conn))
		return b.n;
	if (conn->drain_left > 0 && look_in(conn) == RING_READY)
		return b.n;
	shm_conn_discount(conn);
	next_event(&b, conn, TP_EV_CLOSED)->status = conn->status;
	*closed = true;
	return b.n;
}

bool shm_conn_ready_here(struct shm_conn *conn)
{
	return !shm_conn_open(conn) || done_ready(conn);
}

bool shm_conn_ready(struct shm_conn *conn)
{
	bool room = false;

	if (shm_conn_ready_here(conn) || look_in(conn) != RING_EMPTY)
		return true;
	if (atomic_load_explicit(&conn->starved, memory_order_relaxed)) {
		shm_lock(conn);
		room = shm_has_room(conn) != SHM_ROOM_NONE;
		shm_unlock(conn);
	}
	return room;
}

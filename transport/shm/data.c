/* SPDX-License-Identifier: Apache-2.0
 *
 * Posting. An op's place in the ring, and in the queue of completions, is taken under a lock; then
 * the bytes are copied without it; then the entry is published in its place. So threads copy side
 * by side, and the peer sees their entries in the order in which the places were taken.
 *
 * A WRITE that wants neither takes no lock: a counter is one store.
 */
#include "base/err.h"
#include "transport/shm/copy.h"
#include "transport/shm/order.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <string.h>

/* Where an op's entry and its completion go. */
struct places {
	bool entry, done;
	uint64_t entry_at, done_at;
};

static bool entry_room(struct shm_conn *conn, bool *lie)
{
	if (ring_tx_room(&conn->tx) > 0)
		return true;
	*lie = !ring_tx_credit(&conn->tx, look_for_taken(conn->theirs));
	return !*lie && ring_tx_room(&conn->tx) > 0;
}

static bool done_room(struct shm_conn *conn)
{
	return conn->done_reserved - atomic_load_explicit(&conn->done_taken, memory_order_acquire) <
	       conn->tx.depth;
}

enum shm_room shm_has_room(struct shm_conn *conn)
{
	bool lie = false;
	bool room = entry_room(conn, &lie) && done_room(conn);

	return lie ? SHM_ROOM_LIE : room ? SHM_ROOM : SHM_ROOM_NONE;
}

static int not_connected(struct shm_conn *conn)
{
	return err_set(ENOTCONN, "the connection is over: %s", conn->base.reason);
}

static int take_places(struct shm_conn *conn, struct places *p)
{
	bool lie = false, room = true, open;

	shm_lock(conn);
	open = shm_conn_open(conn);
	if (open) {
		room = (!p->done || done_room(conn)) && (!p->entry || entry_room(conn, &lie));
		if (room && p->entry) {
			p->entry_at = ring_tx_reserve(&conn->tx);
			atomic_fetch_add_explicit(&conn->unpublished, 1, memory_order_relaxed);
		}
		if (room && p->done)
			p->done_at = conn->done_reserved++;
		if (!room)
			atomic_store_explicit(&conn->starved, true, memory_order_relaxed);
	}
	shm_unlock(conn);
	if (lie)
		shm_conn_lie(conn, "the peer says it took entries that were not sent");
	if (!open || lie)
		return not_connected(conn);
	if (!room) {
		/* A sleeping poller has to wait for room as well from now on. */
		tp_cq_nudge(conn->base.cq);
		return err_set(EAGAIN, "no room: %u are under way", conn->tx.depth);
	}
	return 0;
}

static void publish(struct shm_conn *conn, uint64_t pos, enum ring_kind kind, uint32_t imm,
		    uint32_t len)
{
	struct ring_entry *entry = &conn->out[ring_slot(conn->tx.depth, pos)];

	atomic_store_explicit(&entry->kind, kind, memory_order_relaxed);
	atomic_store_explicit(&entry->imm, imm, memory_order_relaxed);
	atomic_store_explicit(&entry->len, len, memory_order_relaxed);
	publish_entry(entry, ring_seq(pos));
	shm_wake_peer(conn, SHM_SLEEP_ENTRY);
	atomic_fetch_sub_explicit(&conn->unpublished, 1, memory_order_release);
}

static void complete(struct shm_conn *conn, uint64_t pos, uint64_t cookie)
{
	struct shm_done *done = &conn->done[ring_slot(conn->tx.depth, pos)];

	done->status = 0;
	done->cookie = cookie;
	atomic_store_explicit(&done->seq, ring_seq(pos), memory_order_release);
	tp_cq_nudge(conn->base.cq);
}

static int post_one(struct shm_conn *conn, const struct tp_op *op)
{
	struct places p = {.entry = op->flags & TP_F_IMM, .done = op->flags & TP_F_SIGNAL};
	char *remote = (char *)op->remote->map + op->offset;

	if (p.entry || p.done) {
		int rc = take_places(conn, &p);

		if (rc < 0)
			return rc;
	} else if (!shm_conn_open(conn)) {
		return not_connected(conn);
	}
	if (op->kind == TP_OP_WRITE)
		shm_copy_out(remote, op->local, op->len);
	else
		shm_copy_in(op->local, remote, op->len);
	if (p.entry)
		publish(conn, p.entry_at, RING_IMM, op->imm, tp_imm_len(&conn->base, op->len));
	if (p.done)
		complete(conn, p.done_at, op->cookie);
	return 0;
}

/* A READ has ended when its turn in the chain is over, so TP_F_FENCE asks nothing more. */
int shm_post(struct tp_conn *base, const struct tp_op *ops, int n)
{
	for (int i = 0; i < n; i++) {
		int rc = post_one(to_shm(base), &ops[i]);

		if (rc < 0)
			return i ? i : rc;
	}
	return n;
}

int shm_send(struct tp_conn *base, const void *msg, size_t len)
{
	struct shm_conn *conn = to_shm(base);
	struct places p = {.entry = true};
	int rc = take_places(conn, &p);

	if (rc < 0)
		return rc;
	memcpy(conn->out_msgs + (size_t)ring_slot(conn->tx.depth, p.entry_at) * TP_MSG_MAX, msg,
	       len);
	publish(conn, p.entry_at, RING_MSG, 0, (uint32_t)len);
	return 0;
}

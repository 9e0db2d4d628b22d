/* SPDX-License-Identifier: Apache-2.0
 *
 * Posting: ops to chains of work requests, messages, and this backend's own small SENDs.
 *
 * Rules of the path that every gradient takes: one lock, no allocation, no system call but what
 * the provider makes in ibv_post_send, one ibv_post_send for a chain. Room is checked before
 * anything is posted, so ibv_post_send can't fail for a full queue, too many SGEs (there is one)
 * or too long an inline payload; if it fails all the same, the connection is broken and ends.
 */
#include "base/clock.h"
#include "base/err.h"
#include "transport/verbs/chunk.h"
#include "transport/verbs/refused.h"
#include "transport/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

#define CONFIRM_WAIT_MS 10

/* ---- chains ---------------------------------------------------------------------------------- */

#define SGES 1

static void say_refused(const struct conn *conn, const struct ibv_send_wr *wr, int err, char *out,
			size_t size)
{
	struct refused r = {
	    .err = err,
	    .under_way = conn->sq.head - conn->sq.tail,
	    .cap = conn->sq.cap + conn->sq.reserve,
	    .sges = (uint32_t)wr->num_sge,
	    .max_sges = SGES,
	    .inline_len = wr->send_flags & IBV_SEND_INLINE ? wr->sg_list->length : 0,
	    .max_inline = conn->base.limits.max_inline,
	};

	refused_text(&r, out, size);
}

/* Posts what was chained. On failure the queue's accounts are set right and the connection ends;
 * returns which op the first work request that was not posted belongs to, -1 when all were. */
static int flush(struct conn *conn)
{
	struct chain *chain = &conn->chain;
	struct ibv_send_wr *bad = NULL;
	struct siw_guard guard;
	int n = chain->n, rc;
	char why[160];

	if (n == 0)
		return -1;
	chain->n = 0;
	chain->wr[n - 1].next = NULL;
	siw_enter(conn->dev, &guard);
	rc = doorbell_ring(conn->qp, conn->qp_ex, chain->wr, &bad);
	siw_leave(conn->dev, &guard);
	if (rc == 0)
		return -1;
	int posted = bad ? (int)(bad - chain->wr) : 0;

	sendq_unpush(&conn->sq, (uint32_t)(n - posted));
	say_refused(conn, &chain->wr[posted], rc > 0 ? rc : errno, why, sizeof(why));
	conn_fail(conn, LOCKED, -EIO, "%s", why);
	return chain->op[posted];
}

/* The next work request of the chain, with one SGE; there is room in the chain. */
static struct ibv_send_wr *chain_add(struct conn *conn, enum sendq_kind kind, uint64_t arg,
				     bool signal, int op)
{
	struct chain *chain = &conn->chain;
	int i = chain->n++;
	uint32_t pos = conn->sq.head;
	struct ibv_send_wr *wr = &chain->wr[i];
	bool signalled = sendq_push(&conn->sq, kind, arg, signal);

	memset(wr, 0, sizeof(*wr));
	wr->wr_id = wr_id(WR_SEND, conn->serial, pos);
	wr->sg_list = &chain->sge[i];
	wr->num_sge = SGES;
	wr->send_flags = signalled ? IBV_SEND_SIGNALED : 0;
	if (i > 0)
		chain->wr[i - 1].next = wr;
	chain->op[i] = op;
	return wr;
}

static void set_sge(const struct conn *conn, struct ibv_send_wr *wr, const void *at, uint32_t len,
		    uint32_t lkey)
{
	*wr->sg_list = (struct ibv_sge){.addr = (uintptr_t)at, .length = len, .lkey = lkey};
	if (wr->opcode != IBV_WR_RDMA_READ && len <= conn->base.limits.max_inline)
		wr->send_flags |= IBV_SEND_INLINE;
}

/* A SEND of one header, kept in the header ring until its position is retired. */
static void chain_header(struct conn *conn, enum sendq_kind kind, uint64_t arg, bool signal, int op,
			 struct wire_header header)
{
	struct wire_header *at = &conn->headers[conn->sq.head & conn->sq.mask];
	struct ibv_send_wr *wr = chain_add(conn, kind, arg, signal, op);

	*at = header;
	wr->opcode = IBV_WR_SEND;
	set_sge(conn, wr, at, sizeof(*at), conn->mem_mr->lkey);
}

/* ---- room ------------------------------------------------------------------------------------ */

static bool has_room(const struct conn *conn, uint32_t wrs, bool credit, bool buffer)
{
	return sendq_room(&conn->sq) >= wrs && (!credit || credit_tx_room(&conn->credit_tx) > 0) &&
	       (!buffer || conn->tx_nfree > 0);
}

/* siw refuses a fenced READ, so over iWARP this side holds it back until the READs before it have
 * ended. */
static bool fenced_here(const struct conn *conn, const struct tp_op *op)
{
	return conn->dev->iwarp && op->kind == TP_OP_READ && (op->flags & TP_F_FENCE);
}

static bool reads_under_way(const struct conn *conn)
{
	return conn->any_read && sendq_under_way(&conn->sq, conn->last_read);
}

/* Remembers what a post lacked. Several may wait: the most demanding of them is remembered. */
static int no_room(struct conn *conn, uint32_t wrs, bool credit, bool buffer)
{
	if (!conn->want_room || conn->want_wrs < wrs)
		conn->want_wrs = wrs;
	conn->want_room = true;
	conn->want_credit = conn->want_credit || credit;
	conn->want_buffer = conn->want_buffer || buffer;
	return err_set(
	    EAGAIN, "%s",
	    conn->posting == POST_NOT_YET ? "the peer has not confirmed the connection yet"
	    : sendq_room(&conn->sq) < wrs ? "the send queue is full"
	    : credit && !credit_tx_room(&conn->credit_tx) ? "the peer has no receive left for this"
							  : "all message buffers are in use");
}

bool post_check_room(struct conn *conn)
{
	if (!conn->want_room || conn->posting != POST_OPEN ||
	    !has_room(conn, conn->want_wrs, conn->want_credit, conn->want_buffer) ||
	    (conn->want_reads && reads_under_way(conn)))
		return false;
	conn->want_room = conn->want_credit = conn->want_buffer = conn->want_reads = false;
	conn->want_wrs = 0;
	conn->room_due = true;
	return true;
}

static int check_open(struct conn *conn, uint32_t wrs, bool credit, bool buffer)
{
	if (conn->posting == POST_SHUT)
		return err_set(ENOTCONN, "the connection is closed");
	if (conn->posting == POST_NOT_YET || !has_room(conn, wrs, credit, buffer))
		return no_room(conn, wrs, credit, buffer);
	return 0;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static bool stands_in(const struct conn *conn, const struct tp_op *op)
{
	return (op->flags & TP_F_IMM) && !conn->base.limits.native_imm;
}

/* Of an op's last chunk: see siw_cut. */
static uint32_t cut_of(const struct conn *conn, const struct tp_op *op)
{
	uint64_t max = conn->base.limits.max_chunk, at = (op->len - 1) / max * max;

	if (op->kind != TP_OP_READ)
		return 0;
	return siw_cut(conn->dev, op->remote->ref.addr + op->offset + at, (uint32_t)(op->len - at));
}

/* Work requests that an op takes, or an error. */
static int count_wrs(const struct conn *conn, const struct tp_op *op)
{
	uint64_t n = chunk_count(op->len, conn->base.limits.max_chunk) + stands_in(conn, op) +
		     (cut_of(conn, op) > 0);

	if (n > sendq_longest(&conn->sq))
		return err_set(
		    EINVAL,
		    "an op of %llu bytes takes %llu work requests of at most %llu bytes, "
		    "and the queue carries %u: raise max_chunk or the depth, or cut it",
		    (unsigned long long)op->len, (unsigned long long)n,
		    (unsigned long long)conn->base.limits.max_chunk, sendq_longest(&conn->sq));
	if (op->kind == TP_OP_READ && !((struct region *)op->region)->sink)
		return err_set(EINVAL, "over iWARP a region that the peer may read can't be the "
				       "target of a READ: expose the memory once more as TP_LOCAL");
	return (int)n;
}

static int check_fence(struct conn *conn, const struct tp_op *op, uint32_t wrs)
{
	if (!fenced_here(conn, op) || !reads_under_way(conn))
		return 0;
	conn->want_reads = true;
	no_room(conn, wrs, false, false);
	return err_set(EAGAIN, "the READs before the fence are under way");
}

static void chain_chunk(struct conn *conn, const struct tp_op *op, int index, uint64_t at,
			uint32_t len)
{
	bool first = at == 0, last = at + len == op->len;
	bool ends = last && !stands_in(conn, op);
	bool done = ends && (op->flags & TP_F_SIGNAL);
	bool anywhere = op->kind == TP_OP_WRITE && op->len <= conn->base.limits.max_inline;
	/* A fence of this side's own waits for each READ's completion. */
	bool signal = done || (conn->dev->iwarp && op->kind == TP_OP_READ);
	struct ibv_send_wr *wr =
	    chain_add(conn, done ? SENDQ_OP : SENDQ_PART, op->cookie, signal, index);

	if (op->kind == TP_OP_READ) {
		conn->any_read = true;
		conn->last_read = conn->sq.head - 1;
	}
	wr->opcode = op->kind == TP_OP_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	if (ends && (op->flags & TP_F_IMM)) {
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = htonl(op->imm);
	}
	if (first && (op->flags & TP_F_FENCE) && !fenced_here(conn, op))
		wr->send_flags |= IBV_SEND_FENCE;
	wr->wr.rdma.remote_addr = op->remote->ref.addr + op->offset + at;
	wr->wr.rdma.rkey = (uint32_t)op->remote->ref.key;
	set_sge(conn, wr, (uint8_t *)op->local + at, len,
		anywhere ? 0 : ((struct region *)op->region)->mr->lkey);
}

/* Chains one op, for which there is room in the send queue. Returns like flush. */
static int chain_op(struct conn *conn, const struct tp_op *op, int index)
{
	uint64_t max = conn->base.limits.max_chunk, n = chunk_count(op->len, max), at = 0;
	uint32_t cut = cut_of(conn, op);
	int failed = -1;

	while (at < op->len && failed < 0) {
		uint32_t len = chunk_len(op->len - at, max, 0);

		if (cut && at + len == op->len) {
			len = cut;
			cut = 0;
		}
		if (conn->chain.n == CHAIN)
			failed = flush(conn);
		if (failed < 0)
			chain_chunk(conn, op, index, at, len);
		at += len;
	}
	if (failed < 0 && stands_in(conn, op)) {
		bool done = op->flags & TP_F_SIGNAL;

		if (conn->chain.n == CHAIN)
			failed = flush(conn);
		if (failed < 0)
			chain_header(
			    conn, done ? SENDQ_OP : SENDQ_PART, op->cookie, done, index,
			    wire_header(WIRE_IMM, op->imm, chunk_len(op->len, max, n - 1)));
	}
	if (failed < 0 && (op->flags & TP_F_IMM))
		conn->credit_tx.used++;
	return failed;
}

static int post_locked(struct conn *conn, const struct tp_op *ops, int n)
{
	int taken = 0, failed = -1, rc = 0;

	while (taken < n && failed < 0) {
		const struct tp_op *op = &ops[taken];
		int wrs = count_wrs(conn, op);

		rc = wrs < 0 ? wrs : check_open(conn, (uint32_t)wrs, op->flags & TP_F_IMM, false);
		if (rc == 0)
			rc = check_fence(conn, op, (uint32_t)wrs);
		if (rc < 0)
			break;
		failed = chain_op(conn, op, taken);
		taken++;
	}
	if (failed < 0)
		failed = flush(conn);
	if (failed >= 0) {
		taken = failed;
		rc = err_set(ENOTCONN, "the connection broke: %s", conn->why);
	}
	return taken ? taken : rc;
}

int verbs_post(struct tp_conn *base, const struct tp_op *ops, int n)
{
	struct conn *conn = conn_of(base);

	pthread_spin_lock(&conn->lock);
	int rc = post_locked(conn, ops, n);

	pthread_spin_unlock(&conn->lock);
	return rc;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void chain_message(struct conn *conn, const void *msg, size_t len, uint8_t *at, uint64_t buf)
{
	struct wire_header header = wire_header(WIRE_MSG, (uint32_t)len, 0);
	struct ibv_send_wr *wr = chain_add(conn, SENDQ_MSG, buf, buf != SENDQ_NO_BUFFER, 0);

	memcpy(at, &header, sizeof(header));
	memcpy(at + sizeof(header), msg, len);
	wr->opcode = IBV_WR_SEND;
	set_sge(conn, wr, at, (uint32_t)(sizeof(header) + len), conn->mem_mr->lkey);
	conn->credit_tx.used++;
}

/* Before the peer has confirmed the connection a message is chained, and posted when it has: an
 * accepted connection may be spoken on at once. (Ops need a remote, so the peer has confirmed.) */
static bool may_wait(const struct conn *conn)
{
	return conn->posting == POST_NOT_YET && conn->chain.n < CHAIN &&
	       has_room(conn, 1, true, true);
}

static int send_locked(struct conn *conn, const void *msg, size_t len)
{
	uint8_t small[1024];
	size_t total = sizeof(struct wire_header) + len;
	bool waits = may_wait(conn);
	bool in_line = !waits && total <= conn->base.limits.max_inline && total <= sizeof(small);
	int rc = waits ? 0 : check_open(conn, 1, true, !in_line);

	if (rc < 0)
		return rc;
	if (in_line) {
		chain_message(conn, msg, len, small, SENDQ_NO_BUFFER);
	} else {
		uint32_t buf = conn->tx_free[--conn->tx_nfree];

		chain_message(conn, msg, len, conn->tx_buffers + (size_t)buf * RX_SLOT_BYTES, buf);
	}
	if (!waits && flush(conn) >= 0)
		return err_set(ENOTCONN, "the connection broke: %s", conn->why);
	return 0;
}

/* An accepted connection whose peer's first message nobody has polled yet: gives it a moment, so
 * that what is sent at once does not depend on this side polling. */
static void open_if_confirmed(struct conn *conn)
{
	uint64_t until = clock_ns() + CONFIRM_WAIT_MS * NS_PER_MS;
	bool confirmed = complete_peek_hi(conn);

	while (!confirmed && clock_ns() < until) {
		sched_yield();
		confirmed = complete_peek_hi(conn);
	}
	if (!confirmed)
		return;
	pthread_spin_lock(&conn->lock);
	if (conn->posting == POST_NOT_YET) {
		conn->posting = POST_OPEN;
		post_waiting(conn);
	}
	pthread_spin_unlock(&conn->lock);
	sub_kick(conn->sub);
}

int verbs_send(struct tp_conn *base, const void *msg, size_t len)
{
	struct conn *conn = conn_of(base);

	pthread_spin_lock(&conn->lock);
	if (conn->posting == POST_NOT_YET) {
		pthread_spin_unlock(&conn->lock);
		open_if_confirmed(conn);
		pthread_spin_lock(&conn->lock);
	}
	int rc = send_locked(conn, msg, len);

	pthread_spin_unlock(&conn->lock);
	return rc;
}

/* ---- the backend's own ----------------------------------------------------------------------- */

void post_control(struct conn *conn, enum sendq_kind kind, enum wire_kind wire, uint32_t value)
{
	chain_header(conn, kind, 0, true, 0, wire_header(wire, value, 0));
	flush(conn);
}

/* iWARP says of a SEND only that TCP has it. An answer to a READ shows that the peer's side of the
 * connection has taken everything before it, without the peer's program doing anything. */
static void chain_probe(struct conn *conn, bool goodbye)
{
	struct ibv_send_wr *wr = chain_add(conn, SENDQ_PROBE, goodbye, true, 0);

	wr->opcode = IBV_WR_RDMA_READ;
	wr->wr.rdma.remote_addr = conn->peer_probe_addr;
	wr->wr.rdma.rkey = conn->peer_probe_key;
	set_sge(conn, wr, &conn->probe->sink, sizeof(conn->probe->sink), conn->probe_mr->lkey);
}

void post_goodbye(struct conn *conn)
{
	chain_header(conn, SENDQ_BYE, 0, true, 0, wire_header(WIRE_BYE, 0, 0));
	if (conn->dev->iwarp)
		chain_probe(conn, true);
	flush(conn);
}

void post_knock(struct conn *conn)
{
	if (conn->posting != POST_OPEN || sendq_reserve_room(&conn->sq) <= SQ_ENDING)
		return;
	chain_probe(conn, false);
	flush(conn);
}

void post_waiting(struct conn *conn)
{
	flush(conn);
}

void post_drop_waiting(struct conn *conn)
{
	sendq_unpush(&conn->sq, (uint32_t)conn->chain.n);
	conn->chain.n = 0;
}

void post_credit(struct conn *conn)
{
	/* The ending keeps its places. */
	if (conn->posting != POST_OPEN || !credit_rx_due(&conn->credit_rx) ||
	    sendq_reserve_room(&conn->sq) <= SQ_ENDING)
		return;
	conn->credit_rx.told = conn->credit_rx.reposted;
	post_control(conn, SENDQ_CREDIT, WIRE_CREDIT, conn->credit_rx.told);
}

void post_recv_marker(struct conn *conn)
{
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id(WR_RECV_MARKER, conn->serial, 0)};

	/* If it can't be posted the drain ends by its deadline. */
	ibv_post_recv(conn->qp, &wr, &bad);
}

void post_send_marker(struct conn *conn)
{
	struct ibv_send_wr *bad, *wr;

	wr = chain_add(conn, SENDQ_MARKER, 0, true, 0);
	wr->opcode = IBV_WR_SEND;
	set_sge(conn, wr, conn->headers, sizeof(*conn->headers), conn->mem_mr->lkey);
	conn->chain.n = 0;
	if (ibv_post_send(conn->qp, wr, &bad) != 0)
		sendq_unpush(&conn->sq, 1);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Work completions to events. Runs on the polling thread, under sub->lock.
 *
 * Invariants:
 *  1. A completion gives one event at most, so a poll never takes more completions than it can hand
 *     out events. What is not tied to a completion (ROOM, the rest of a dead connection) waits on
 *     the ready list.
 *  2. A completion is of a connection only if the QP number and the serial in its id fit; what
 *     comes after a QP was destroyed is ignored.
 *  3. After TP_EV_CLOSED was handed out the connection is not touched.
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "transport/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define HELD_MAX (sizeof(((struct sub *)0)->held) / sizeof(struct held))

int wc_errno(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_REM_ACCESS_ERR:
		return -EACCES;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return -ETIMEDOUT;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return -ENOBUFS;
	case IBV_WC_REM_INV_REQ_ERR:
		return -EPROTO;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		return -EFAULT;
	case IBV_WC_LOC_LEN_ERR:
		return -EMSGSIZE;
	case IBV_WC_WR_FLUSH_ERR:
		return -ECONNRESET;
	default:
		return -EIO;
	}
}

static int ended_status(struct conn *conn)
{
	return conn->status < 0 ? conn->status : -ECANCELED;
}

/* ---- sends ------------------------------------------------------------------------------------
 */

static const char *wc_hint(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
		return ": the peer does not allow this access to that memory";
	case IBV_WC_RETRY_EXC_ERR:
		return ": the peer's machine does not answer";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return ": the peer has no receives posted";
	default:
		return "";
	}
}

static void send_failed(struct conn *conn, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		conn_fail(conn, UNLOCKED, -ECONNRESET, "the connection broke (work was flushed)");
	else
		conn_fail(conn, UNLOCKED, wc_errno(wc->status),
			  "a work request failed: %s (vendor 0x%x)%s",
			  ibv_wc_status_str(wc->status), wc->vendor_err, wc_hint(wc->status));
	teardown_begin(conn);
}

/* Retires up to and with `pos`; the last one is in *out. Under conn->lock. */
static bool retire(struct conn *conn, uint32_t pos, struct sendq_wr *out)
{
	if (!sendq_under_way(&conn->sq, pos))
		return false;
	for (bool last = false; !last;) {
		last = conn->sq.tail == pos;
		/* Each op has a completion of its own; one that the provider lost stays in the
		 * queue and gets its event when the connection has ended. */
		if (!last && sendq_at(&conn->sq, conn->sq.tail)->kind == SENDQ_OP) {
			conn_fail(conn, LOCKED, -EIO, "the completion of an op is missing");
			return false;
		}
		sendq_pop(&conn->sq, out);
		if (out->kind == SENDQ_MSG && out->arg != SENDQ_NO_BUFFER)
			conn->tx_free[conn->tx_nfree++] = (uint32_t)out->arg;
	}
	return true;
}

/* The peer's side listens: no need to knock again. */
static void knock_heard(struct conn *conn)
{
	conn->knock_heard = true;
	sub_deadline(conn, 0);
}

/* What a completion says beyond its own end. */
static void arrived(struct conn *conn, const struct sendq_wr *wr)
{
	if (wr->kind == SENDQ_PROBE && conn->state == CONN_OPEN)
		knock_heard(conn);
	if (conn->dev->iwarp ? wr->kind == SENDQ_PROBE && wr->arg : wr->kind == SENDQ_BYE)
		teardown_bye_sent(conn);
}

static int on_send(struct conn *conn, const struct ibv_wc *wc, struct tp_event *ev)
{
	struct sendq_wr wr;
	bool room = false;

	pthread_spin_lock(&conn->lock);
	bool found = retire(conn, (uint32_t)wc->wr_id, &wr);

	if (found) {
		post_credit(conn);
		room = post_check_room(conn);
	}
	pthread_spin_unlock(&conn->lock);
	if (!found)
		return 0;
	if (room)
		ready_add(conn);
	if (wc->status != IBV_WC_SUCCESS && !conn_ending(conn))
		send_failed(conn, wc);
	if (wc->status == IBV_WC_SUCCESS)
		arrived(conn, &wr);
	conn->sq_flushed = conn->sq_flushed || wr.kind == SENDQ_MARKER;
	if (wr.kind != SENDQ_OP)
		return 0;
	*ev = (struct tp_event){.kind = TP_EV_DONE, .cookie = wr.arg, .conn = &conn->base};
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		ev->status = ended_status(conn);
	else
		ev->status = wc_errno(wc->status);
	return 1;
}

/* ---- receives ---------------------------------------------------------------------------------
 */

/* Posts a receive again; `counted` ones are the peer's credits. */
static void give_back(struct conn *conn, uint32_t slot, bool counted)
{
	if (conn_ending(conn))
		return;
	int rc = rx_repost(conn, slot);

	if (rc < 0)
		conn_fail(conn, UNLOCKED, rc, "a receive can't be posted again: %s", strerror(-rc));
	if (rc < 0 || !counted)
		return;
	pthread_spin_lock(&conn->lock);
	conn->credit_rx.reposted++;
	post_credit(conn);
	pthread_spin_unlock(&conn->lock);
}

static int nonsense(struct conn *conn, const char *what)
{
	conn_fail(conn, UNLOCKED, -EPROTO, "the peer breaks the protocol: %s", what);
	teardown_begin(conn);
	return 0;
}

static int give_imm(struct conn *conn, uint32_t slot, uint32_t imm, uint32_t len,
		    struct tp_event *ev)
{
	if (credit_rx_arrive(&conn->credit_rx) < 0)
		return nonsense(conn, "an immediate without a credit");
	*ev = (struct tp_event){.kind = TP_EV_IMM, .imm = imm, .len = len, .conn = &conn->base};
	give_back(conn, slot, true);
	return 1;
}

static int give_msg(struct conn *conn, uint32_t slot, uint32_t len, uint32_t bytes,
		    struct tp_event *ev)
{
	struct sub *sub = conn->sub;

	if (len < 1 || len > TP_MSG_MAX || bytes != sizeof(struct wire_header) + len)
		return nonsense(conn, "a message's length");
	if (credit_rx_arrive(&conn->credit_rx) < 0)
		return nonsense(conn, "a message without a credit");
	*ev = (struct tp_event){
	    .kind = TP_EV_MSG,
	    .msg = (uint8_t *)rx_slot(conn, slot) + sizeof(struct wire_header),
	    .len = len,
	    .conn = &conn->base,
	};
	sub->held[sub->nheld++] = (struct held){conn, slot};
	return 1;
}

static int on_credit(struct conn *conn, uint32_t slot, uint32_t returned)
{
	/* First the receive, then the count: see credit.h. */
	give_back(conn, slot, false);
	pthread_spin_lock(&conn->lock);
	int rc = credit_tx_learn(&conn->credit_tx, returned);
	bool room = rc == 0 && post_check_room(conn);

	pthread_spin_unlock(&conn->lock);
	if (room)
		ready_add(conn);
	return rc < 0 ? nonsense(conn, "a credit for what was not sent") : 0;
}

static int on_message(struct conn *conn, const struct ibv_wc *wc, uint32_t slot,
		      struct tp_event *ev)
{
	const struct wire_header *header = rx_slot(conn, slot);
	uint32_t kind = 0, value = 0;

	if (wc->byte_len >= sizeof(*header)) {
		kind = le32toh(header->kind);
		value = le32toh(header->value);
	}
	if ((kind == WIRE_HI) != (conn->state == CONN_ACCEPTED))
		return nonsense(conn, "the first message");
	switch (kind) {
	case WIRE_HI:
		give_back(conn, slot, false);
		teardown_opened(conn);
		return 0;
	case WIRE_MSG:
		return give_msg(conn, slot, value, wc->byte_len, ev);
	case WIRE_IMM:
		if (conn->base.limits.native_imm)
			return nonsense(conn, "a stand-in for an immediate");
		return give_imm(conn, slot, value, le32toh(header->extra), ev);
	case WIRE_CREDIT:
		return on_credit(conn, slot, value);
	case WIRE_BYE:
		give_back(conn, slot, false);
		if (conn->bye_seen)
			return nonsense(conn, "a second goodbye");
		teardown_bye_seen(conn);
		return 0;
	default:
		return nonsense(conn, "a message of unknown kind");
	}
}

static int recv_failed(struct conn *conn, const struct ibv_wc *wc)
{
	if (conn_ending(conn))
		return 0;
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		conn_fail(conn, UNLOCKED, -ECONNRESET,
			  "the connection broke (receives were flushed)");
	else
		conn_fail(conn, UNLOCKED, wc_errno(wc->status), "a receive failed: %s",
			  ibv_wc_status_str(wc->status));
	teardown_begin(conn);
	return 0;
}

static int on_recv(struct conn *conn, const struct ibv_wc *wc, struct tp_event *ev)
{
	uint32_t slot = (uint32_t)wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS)
		return recv_failed(conn, wc);
	if (wc->opcode == IBV_WC_RECV)
		return on_message(conn, wc, slot, ev);
	if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || conn->state == CONN_ACCEPTED)
		return nonsense(conn, "an unexpected receive");
	return give_imm(conn, slot, ntohl(wc->imm_data), wc->byte_len, ev);
}

/* ---- one completion ---------------------------------------------------------------------------
 */

static int on_wc(struct device *dev, const struct ibv_wc *wc, struct tp_event *ev)
{
	struct conn *conn = conn_find(dev, wc->qp_num);
	enum wr_kind kind = wr_id_kind(wc->wr_id);
	uint32_t serial = wr_id_serial(wc->wr_id);
	int n = 0;

	if (!conn || serial != conn->serial)
		return 0;
	if (kind == WR_SEND)
		n = on_send(conn, wc, ev);
	else if (kind == WR_RECV_MARKER)
		conn->rq_flushed = true;
	else
		n = on_recv(conn, wc, ev);
	teardown_progress(conn);
	return n;
}

/* ---- polling ----------------------------------------------------------------------------------
 */

static void repost_held(struct sub *sub)
{
	unsigned n = sub->nheld;

	sub->nheld = 0;
	for (unsigned i = 0; i < n; i++)
		if (sub->held[i].conn)
			give_back(sub->held[i].conn, sub->held[i].slot, true);
}

/* What is left of a dead connection: an event for each op without its completion. */
static int give_rest(struct conn *conn, struct tp_event *ev, int max)
{
	struct sendq_wr wr;
	int n = 0;

	while (n < max && sendq_pop(&conn->sq, &wr))
		if (wr.kind == SENDQ_OP)
			ev[n++] = (struct tp_event){.kind = TP_EV_DONE,
						    .status = ended_status(conn),
						    .cookie = wr.arg,
						    .conn = &conn->base};
	return n;
}

static void explain(struct conn *conn)
{
	/* A hang-up that the peer had announced is a good end. */
	if (conn->hangup && conn->bye_seen) {
		conn->status = 0;
		memcpy(conn->why, "closed by the peer", sizeof("closed by the peer"));
	}
	memcpy(conn->base.reason, conn->why, sizeof(conn->base.reason));
}

/* Hands out ROOM and CLOSED. Those closed are unhooked and left in *closed, which is a list by
 * ready_next; their events are made when the lock is dropped. */
static int hand_out(struct sub *sub, struct tp_event *ev, int max, struct conn **closed)
{
	int n = 0, reserved = 0;

	while (sub->ready && n + reserved < max) {
		struct conn *conn = sub->ready;

		if (conn->state == CONN_DRAINED) {
			n += give_rest(conn, ev + n, max - n - reserved);
			if (conn->sq.head != conn->sq.tail || n + reserved == max)
				break;
		}
		sub->ready = conn->ready_next;
		conn->on_ready = false;
		if (conn->state == CONN_DRAINED) {
			conn_set_state(conn, CONN_CLOSED);
			conn->ready_next = *closed;
			*closed = conn;
			reserved++;
			continue;
		}
		pthread_spin_lock(&conn->lock);
		bool due = conn->room_due;

		conn->room_due = false;
		pthread_spin_unlock(&conn->lock);
		if (due)
			ev[n++] = (struct tp_event){.kind = TP_EV_ROOM, .conn = &conn->base};
	}
	return n;
}

static int give_closed(struct conn *closed, struct tp_event *ev)
{
	int n = 0;

	while (closed) {
		struct conn *conn = closed;

		closed = conn->ready_next;
		if (conn->watched)
			tp_cq_unwatch(conn->base.cq, &conn->cm_watch);
		explain(conn);
		quota_leave(conn);
		ev[n++] = (struct tp_event){
		    .kind = TP_EV_CLOSED, .status = conn->status, .conn = &conn->base};
	}
	return n;
}

/* Polls one CQ, up to a batch. */
static int poll_bank(struct sub *sub, struct device *dev, struct cq_bank *bank, struct tp_event *ev,
		     int max)
{
	struct ibv_wc wc[WC_BATCH];
	int room = (int)(HELD_MAX - sub->nheld), n = 0;
	int ask = max < WC_BATCH ? max : WC_BATCH;
	int got = ibv_poll_cq(bank->cq, ask < room ? ask : room, wc);

	for (int i = 0; i < got; i++)
		n += on_wc(dev, &wc[i], ev + n);
	return n;
}

static int poll_stash(struct sub *sub, struct tp_event *ev, int max)
{
	int n = 0;

	while (sub->wc_at < sub->wc_end && n < max && sub->nheld < HELD_MAX)
		n += on_wc(sub->wc_device, &sub->wc[sub->wc_at++], ev + n);
	return n;
}

static int poll_banks(struct sub *sub, struct tp_event *ev, int max)
{
	unsigned total = 0, at = 0;
	int n = 0;

	for (struct device *dev = sub->devices; dev; dev = dev->next)
		for (struct cq_bank *bank = dev->banks; bank; bank = bank->next)
			total++;
	unsigned first = total ? sub->turn++ % total : 0;

	/* From the one whose turn it is to the last, then the ones before it. */
	for (unsigned round = 0; round < 2; round++, at = 0)
		for (struct device *dev = sub->devices; dev; dev = dev->next)
			for (struct cq_bank *bank = dev->banks; bank; bank = bank->next)
				if ((at++ >= first) == (round == 0) && n < max)
					n += poll_bank(sub, dev, bank, ev + n, max - n);
	return n;
}

/* Whether the peer's first message is among the completions that were polled ahead. */
static bool hi_is_stashed(const struct conn *conn)
{
	const struct sub *sub = conn->sub;

	for (int i = sub->wc_at; sub->wc_device == conn->dev && i < sub->wc_end; i++) {
		const struct ibv_wc *wc = &sub->wc[i];
		const struct wire_header *header;

		if (wc->qp_num != conn->qp_num || wc->status != IBV_WC_SUCCESS ||
		    wr_id_kind(wc->wr_id) != WR_RECV || wr_id_serial(wc->wr_id) != conn->serial)
			continue;
		header = rx_slot(conn, (uint32_t)wc->wr_id);
		return wc->byte_len >= sizeof(*header) && le32toh(header->kind) == WIRE_HI;
	}
	return false;
}

static bool knock_is_stashed(struct conn *conn)
{
	const struct sub *sub = conn->sub;
	bool found = false;

	pthread_spin_lock(&conn->lock);
	for (int i = sub->wc_at; sub->wc_device == conn->dev && i < sub->wc_end; i++) {
		const struct ibv_wc *wc = &sub->wc[i];
		uint32_t pos = (uint32_t)wc->wr_id;

		found = found || (wc->qp_num == conn->qp_num && wc->status == IBV_WC_SUCCESS &&
				  wr_id_kind(wc->wr_id) == WR_SEND &&
				  wr_id_serial(wc->wr_id) == conn->serial &&
				  sendq_at(&conn->sq, pos)->kind == SENDQ_PROBE);
	}
	pthread_spin_unlock(&conn->lock);
	return found;
}

bool complete_peek_knock(struct conn *conn)
{
	struct sub *sub = conn->sub;

	pthread_mutex_lock(&sub->lock);
	if (!conn->knock_heard && sub->wc_at == sub->wc_end)
		sub_stash(sub, conn->dev);
	bool heard = conn->knock_heard || conn->state != CONN_OPEN || knock_is_stashed(conn);

	pthread_mutex_unlock(&sub->lock);
	return heard;
}

bool complete_peek_hi(struct conn *conn)
{
	struct sub *sub = conn->sub;

	pthread_mutex_lock(&sub->lock);
	bool found = conn->state == CONN_OPEN;

	if (conn->state == CONN_ACCEPTED) {
		found = hi_is_stashed(conn);
		/* It may lie behind what another connection, or rail, was sent. */
		if (!found && sub_stash(sub, conn->dev))
			found = hi_is_stashed(conn);
	}
	pthread_mutex_unlock(&sub->lock);
	return found;
}

int verbs_poll(struct tp_subcq *base, struct tp_event *ev, int max)
{
	struct sub *sub = sub_of(base);
	struct conn *closed = NULL;
	int n;

	pthread_mutex_lock(&sub->lock);
	repost_held(sub);
	if (atomic_load_explicit(&sub->todo, memory_order_relaxed) &&
	    atomic_exchange(&sub->todo, false))
		teardown_asked(sub);
	n = hand_out(sub, ev, max, &closed);
	/* A CLOSED has its place kept, at the end. */
	for (struct conn *conn = closed; conn; conn = conn->ready_next)
		max--;
	n += poll_stash(sub, ev + n, max - n);
	n += poll_banks(sub, ev + n, max - n);
	if (sub->ending && clock_ns() >= sub->next_deadline)
		teardown_deadlines(sub, clock_ns());
	pthread_mutex_unlock(&sub->lock);
	return n + give_closed(closed, ev + n);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How a connection ends: one path, whatever the cause.
 *
 *   stop posting -> QP to ERR, rdma_disconnect -> drain -> QP destroyed -> TP_EV_CLOSED
 *
 * A graceful end comes before that: a side that closes sends a BYE behind all that it posted, and
 * the other side does the same when it sees that. A BYE's send completion shows that the peer has
 * everything before it. (Over iWARP it shows that TCP has the bytes, so there a READ follows, whose
 * completion does.) The side that is closed also ends when the closing one has disconnected.
 *
 * Draining waits for what was posted to come out of the CQ. A marker that is posted last shows the
 * end of each queue (InfiniBand, RoCE). iWARP need not flush what is posted in the error state, but
 * flushes the rest at once, so there a short quiet ends the drain. Both have a deadline. Then the
 * QP is destroyed: after that no completion comes and no memory is touched, and whatever op is
 * still without its completion gets a negative one. So every signalled op ends exactly once, and
 * nobody waits on LAST_WQE_REACHED.
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- asked by any thread ----------------------------------------------------------------------
 */

void conn_fail(struct conn *conn, enum fail_lock held, int status, const char *fmt, ...)
{
	va_list ap;

	if (held == UNLOCKED)
		pthread_spin_lock(&conn->lock);
	conn->posting = POST_SHUT;
	if (!conn->failed) {
		conn->failed = true;
		conn->status = status;
		conn->hangup = status == -ECONNRESET;
		va_start(ap, fmt);
		vsnprintf(conn->why, sizeof(conn->why), fmt, ap);
		va_end(ap);
	}
	if (held == UNLOCKED)
		pthread_spin_unlock(&conn->lock);
	atomic_fetch_or(&conn->asked, ASKED_END);
	sub_kick(conn->sub);
}

/* Notes a good end, if nothing else was noted before. Under conn->lock. */
static void note_end(struct conn *conn, const char *why)
{
	conn->posting = POST_SHUT;
	if (conn->failed)
		return;
	conn->failed = true;
	snprintf(conn->why, sizeof(conn->why), "%s", why);
}

/* Says goodbye, once, behind all that was posted. Under conn->lock. */
static void send_bye(struct conn *conn)
{
	if (conn->bye_posted)
		return;
	conn->bye_posted = true;
	post_goodbye(conn);
}

void verbs_close(struct tp_conn *base)
{
	struct conn *conn = conn_of(base);

	pthread_spin_lock(&conn->lock);
	/* At once, so that the peer learns of it even if nobody polls here for a while. */
	bool open = conn->posting == POST_OPEN;

	note_end(conn, "closed by this side");
	if (open)
		send_bye(conn);
	pthread_spin_unlock(&conn->lock);
	atomic_fetch_or(&conn->asked, ASKED_CLOSE);
	sub_kick(conn->sub);
}

/* ---- the graceful part ------------------------------------------------------------------------
 */

static uint64_t from_now(unsigned ms)
{
	return clock_ns() + ms * NS_PER_MS;
}

static void leave_open(struct conn *conn, enum conn_state state, unsigned ms, const char *why)
{
	conn_set_state(conn, state);
	sub_deadline(conn, from_now(ms));
	pthread_spin_lock(&conn->lock);
	note_end(conn, why);
	send_bye(conn);
	pthread_spin_unlock(&conn->lock);
}

static void begin_close(struct conn *conn)
{
	if (conn->state == CONN_ACCEPTED) {
		conn->close_wanted = true;
		sub_deadline(conn, from_now(CLOSE_MS));
	} else if (conn->state == CONN_OPEN) {
		leave_open(conn, CONN_CLOSING, CLOSE_MS, "closed by this side");
	}
}

void teardown_asked(struct sub *sub)
{
	for (struct conn *conn = sub->conns, *next; conn; conn = next) {
		next = conn->next;
		unsigned asked = atomic_exchange(&conn->asked, 0);

		if (asked & ASKED_END)
			teardown_begin(conn);
		else if (asked & ASKED_CLOSE)
			begin_close(conn);
	}
}

void teardown_opened(struct conn *conn)
{
	conn_set_state(conn, CONN_OPEN);
	sub_deadline(conn, 0);
	pthread_spin_lock(&conn->lock);
	if (conn->posting == POST_NOT_YET)
		conn->posting = POST_OPEN;
	post_waiting(conn);
	bool room = post_check_room(conn);

	pthread_spin_unlock(&conn->lock);
	if (room)
		ready_add(conn);
	if (conn->close_wanted)
		begin_close(conn);
}

/* Ends a graceful close when what this side posted has arrived. */
static void close_if_said(struct conn *conn)
{
	if ((conn->state == CONN_CLOSING || conn->state == CONN_PEER_CLOSING) && conn->bye_sent)
		teardown_begin(conn);
}

void teardown_bye_seen(struct conn *conn)
{
	conn->bye_seen = true;
	if (conn->state == CONN_OPEN)
		leave_open(conn, CONN_PEER_CLOSING, PEER_CLOSE_MS, "closed by the peer");
	close_if_said(conn);
}

void teardown_bye_sent(struct conn *conn)
{
	conn->bye_sent = true;
	close_if_said(conn);
}

/* ---- draining ---------------------------------------------------------------------------------
 */

/* An accepted connection may have carried data before rdma_cm got the peer's confirmation; until
 * then it can't be disconnected, and the peer would not be told. */
static void disconnect(struct conn *conn)
{
	struct siw_guard guard;

	if (!conn->cm_established || !conn->disconnect_due)
		return;
	conn->disconnect_due = false;
	siw_enter(conn->dev, &guard);
	/* Fails when the peer has disconnected already; there is nothing left to tell it then. */
	rdma_disconnect(conn->id);
	siw_leave(conn->dev, &guard);
}

void teardown_established(struct conn *conn)
{
	conn->cm_established = true;
	if (conn->state == CONN_DRAINING)
		disconnect(conn);
	teardown_progress(conn);
}

void teardown_begin(struct conn *conn)
{
	if (conn_ending(conn))
		return;
	conn_set_state(conn, CONN_DRAINING);
	bool iwarp = conn->dev->iwarp;

	pthread_spin_lock(&conn->lock);
	note_end(conn, "closed");
	pthread_spin_unlock(&conn->lock);
	/* Before ERR: some providers look at the receive queue once, when the state changes. */
	if (!iwarp)
		post_recv_marker(conn);
	/* Nobody posts any more, so this slow call is made without the lock. */
	qp_set_error(conn);
	pthread_spin_lock(&conn->lock);
	conn->want_room = conn->room_due = false;
	post_drop_waiting(conn);
	if (!iwarp)
		post_send_marker(conn);
	pthread_spin_unlock(&conn->lock);
	conn->disconnect_due = true;
	disconnect(conn);
	sub_deadline(conn, from_now(iwarp ? QUIET_MS : DRAIN_MS));
}

static void drained(struct conn *conn)
{
	sub_deadline(conn, 0);
	conn_destroy_qp(conn);
	conn_unbind(conn);
	conn_set_state(conn, CONN_DRAINED);
	ready_add(conn);
}

void teardown_progress(struct conn *conn)
{
	if (conn->state != CONN_DRAINING)
		return;
	if (conn->dev->iwarp)
		sub_deadline(conn, from_now(QUIET_MS));
	else if (conn->sq_flushed && conn->rq_flushed && !conn->disconnect_due)
		drained(conn);
}

/* The READ behind the first message was not answered: see siw.c. */
static void knock_again(struct conn *conn)
{
	if (conn->knock_ms < 1000)
		conn->knock_ms *= 2;
	sub_deadline(conn, from_now(conn->knock_ms));
	pthread_spin_lock(&conn->lock);
	post_knock(conn);
	pthread_spin_unlock(&conn->lock);
}

static void expired(struct conn *conn)
{
	switch (conn->state) {
	case CONN_ACCEPTED:
		conn_fail(conn, UNLOCKED, -ETIMEDOUT,
			  "the peer did not confirm the connection in time");
		teardown_begin(conn);
		break;
	case CONN_OPEN:
		knock_again(conn);
		break;
	case CONN_CLOSING:
	case CONN_PEER_CLOSING:
		teardown_begin(conn);
		break;
	case CONN_DRAINING:
		if (!conn->dev->iwarp)
			log_warn("rdma: %s: not all work requests came back flushed in %d ms",
				 conn->base.peer, DRAIN_MS);
		drained(conn);
		break;
	default:
		sub_deadline(conn, 0);
	}
}

void teardown_deadlines(struct sub *sub, uint64_t now)
{
	uint64_t first = UINT64_MAX;

	for (struct conn *conn = sub->conns, *next; conn; conn = next) {
		next = conn->next;
		if (conn->deadline && conn->deadline <= now)
			expired(conn);
	}
	for (struct conn *conn = sub->conns; conn; conn = conn->next)
		if (conn->deadline && conn->deadline < first)
			first = conn->deadline;
	sub->next_deadline = first;
}

void ready_add(struct conn *conn)
{
	if (conn->on_ready)
		return;
	conn->on_ready = true;
	conn->ready_next = NULL;
	struct conn **at = &conn->sub->ready;

	while (*at)
		at = &(*at)->ready_next;
	*at = conn;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The control thread: takes connections, hands messages to the talk, keeps deadlines, buries
 * sessions, and ends the server.
 */
#include "server/control.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"
#include "server/internal.h"
#include "server/dialog.h"
#include "server/strangers.h"
#include "server/watch.h"

enum { TICK_MS = 100 };

/* ---- sessions ---------------------------------------------------------------------------------- */

static struct poller *pick_poller(struct srv *srv)
{
	return &srv->poller[srv->next_poller++ % srv->opt.pollers];
}

static void enlist(struct srv *srv, struct session *s, struct tp_conn *conn)
{
	s->conn = conn;
	s->all_rails = (1u << tp_conn_limits(conn).rails) - 1;
	s->since = clock_ns();
	s->deadline = s->since + control_talk_ns(srv);
	snprintf(s->who, sizeof(s->who), "trainer at %s", tp_conn_peer(conn));
	s->next = srv->sessions;
	srv->sessions = s;
	srv->n_sessions++;
	atomic_fetch_add(&srv->connected, 1);
}

static void accept_all(struct srv *srv, struct tp_listener *listener)
{
	while (!strangers_full(srv)) {
		struct tp_conn *conn;
		int rc;

		if (!srv->spare)
			srv->spare = session_create(srv, pick_poller(srv));
		if (!srv->spare) {
			log_error("no memory for another trainer");
			return;
		}
		rc = tp_accept(listener, srv->spare->poller->cq, srv->spare, &conn);
		if (rc == 0)
			return;
		if (rc < 0) {
			log_warn("a connection was not taken: %s", err_text());
			/* One that stays in the way (no descriptors left) must not keep this
			 * thread from ending others, which would make room. */
			if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM)
				srv->accept_again = clock_ns() + TICK_MS * NS_PER_MS;
			return;
		}
		enlist(srv, srv->spare, conn);
		srv->spare = NULL;
		strangers_limit(srv);
	}
}

static void reap(struct session *s)
{
	struct srv *srv = s->srv;

	for (struct session **at = &srv->sessions; *at; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
	srv->n_sessions--;
	session_destroy(s);
}

static void on_message(struct session *s, struct note *note)
{
	struct saver *saver = &s->srv->saver;

	atomic_fetch_sub(&s->inbox_bytes, sizeof(*note) + note->len);
	dialog_message(s, note->data, note->len);
	if (saver_counts(saver, wire_peek(note->data, note->len)))
		saver_came(saver);
	free(note);
}

/* What its connection says. */
static void connection_note(struct session *s, struct note *note)
{
	switch (note->kind) {
	case NOTE_MSG:
		on_message(s, note);
		break;
	case NOTE_EARLY:
		session_condemn(s, WIRE_E_PROTOCOL, "data while %s, before anything was granted",
				session_state_name(session_state(s)));
		break;
	case NOTE_ROOM:
		atomic_store(&s->room_noted, false);
		dialog_flush(s);
		break;
	default: /* NOTE_REAP */
		hello_give_rank(s); /* all that it pushed is applied: the rank's next may hear of it */
		reap(s);
		break;
	}
}

/* What comes with a reference to the session. */
static void session_event(struct session *s, enum note_kind kind)
{
	switch (kind) {
	case NOTE_CLOSED:
		leave_closed(s);
		atomic_fetch_sub(&s->srv->connected, 1);
		break;
	case NOTE_STARTED:
		start_begun(s);
		break;
	case NOTE_LEFT:
		leave_done(s);
		break;
	case NOTE_LOST:
		watch_lost(s);
		break;
	case NOTE_RATE:
		notice_rate_set(s);
		break;
	default: /* NOTE_REFUSED */
		notice_refused(s);
		break;
	}
	session_put(s);
}

void control_note(struct note *note)
{
	switch (note->kind) {
	case NOTE_SAVE_DUE:
	case NOTE_SAVED:
		saver_note(note);
		break;
	case NOTE_LOOKED:
		watch_looked(
		    (struct srv *)(void *)((char *)note - offsetof(struct srv, looked_note)));
		break;
	case NOTE_MSG:
	case NOTE_EARLY:
	case NOTE_ROOM:
	case NOTE_REAP:
		connection_note(note->session, note);
		break;
	default:
		session_event(note->session, note->kind);
		break;
	}
}

static void keep_deadlines(struct srv *srv, uint64_t now)
{
	for (struct session *s = srv->sessions; s; s = s->next) {
		if (!s->deadline || now <= s->deadline || atomic_load(&s->condemned))
			continue;
		/* One that left owes nothing but to hang up. */
		if (session_state(s) == SESSION_LEAVING) {
			tp_conn_close(s->conn);
			continue;
		}
		if (s->waiting) {
			hello_tired(s);
			continue;
		}
		strangers_silent(s);
		session_condemn(s, WIRE_E_PROTOCOL, "silent for %u ms while %s", srv->opt.talk_ms,
				session_state_name(session_state(s)));
	}
}

static void keep_time(struct srv *srv, uint64_t now)
{
	keep_deadlines(srv, now);
	if (now < srv->next_tick)
		return;
	srv->next_tick = now + TICK_MS * NS_PER_MS;
	watch_tick(srv, now);
	beat_all(srv, now);
}

/* ---- serving and ending ------------------------------------------------------------------------ */

static bool done(const struct srv *srv)
{
	return srv->opt.exit_when_done && srv->ever_active >= srv->opt.trainers &&
	       srv->vigil.waited == 0 && strangers_alone(srv);
}

static void wait_for_events(struct srv *srv, bool accepting)
{
	struct pollfd fds[SRV_MAX_LISTENERS + 1];
	nfds_t n = 0;

	fds[n++] = (struct pollfd){.fd = srv->inbox.fd, .events = POLLIN};
	for (uint32_t i = 0; accepting && i < srv->opt.n_listen; i++)
		fds[n++] = (struct pollfd){.fd = tp_listener_fd(srv->listener[i]),
					   .events = POLLIN};
	poll(fds, n, TICK_MS);
}

void control_fail(struct srv *srv, int rc)
{
	if (srv->failed)
		return;
	srv->failed = rc;
	snprintf(srv->failure, sizeof(srv->failure), "%s", err_text());
}

static void end_sessions(struct srv *srv)
{
	uint64_t deadline = clock_ns() + CONTROL_END_NS;

	srv->ending = true;
	round_over(&srv->round);
	for (struct session *s = srv->sessions; s; s = s->next) {
		session_condemn(s, WIRE_E_SHUTDOWN, "the server is stopping");
		tp_conn_close(s->conn); /* also those that were condemned and linger */
	}
	watch_end(srv);
	while (srv->sessions && clock_ns() < deadline) {
		wait_for_events(srv, false);
		inbox_drain(&srv->inbox, control_note);
	}
	if (srv->sessions)
		log_warn("%u connections did not end in time", srv->n_sessions);
}

static void tell_ages(const struct srv *srv)
{
	struct srv_stats stats;

	srv_get_stats(srv, &stats);
	ages_log("all trainers", &(struct ages_look){stats.aged, stats.age_sum, stats.age_max});
}

void control_turn(struct srv *srv, bool accepting)
{
	accepting &= clock_ns() >= srv->accept_again && !strangers_full(srv);
	wait_for_events(srv, accepting);
	/* Before the inbox: a trainer's first message finds its session enlisted. */
	for (uint32_t i = 0; accepting && i < srv->opt.n_listen; i++)
		accept_all(srv, srv->listener[i]);
	inbox_drain(&srv->inbox, control_note);
	hello_again(srv);
	keep_time(srv, clock_ns());
	saver_tick(&srv->saver);
}

int srv_run(struct srv *srv)
{
	int rc;

	place_memory(&srv->place); /* all that trainers reach is made on this thread */
	while (!atomic_load(&srv->stops) && !srv->failed && !done(srv))
		control_turn(srv, true);
	if (atomic_load(&srv->stops))
		log_info("stopping");
	rc = saver_last(srv);
	end_sessions(srv);
	tell_ages(srv);
	place_memory_end(&srv->place);
	return srv->failed ? err_set(-srv->failed, "%s", srv->failure) : rc;
}

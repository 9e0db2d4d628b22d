/* SPDX-License-Identifier: Apache-2.0
 *
 * The control thread: takes connections, hands messages to the handshake, keeps deadlines, buries
 * sessions, and ends the server.
 */
#include "server/control.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"
#include "server/internal.h"

enum { TICK_MS = 100 };

/* ---- sessions ---------------------------------------------------------------------------------- */

static struct poller *pick_poller(struct srv *srv)
{
	return &srv->poller[srv->next_poller++ % srv->opt.pollers];
}

static void enlist(struct srv *srv, struct session *s, struct tp_conn *conn)
{
	s->conn = conn;
	s->deadline = clock_ns() + control_talk_ns(srv);
	snprintf(s->who, sizeof(s->who), "trainer at %s", tp_conn_peer(conn));
	s->next = srv->sessions;
	srv->sessions = s;
	srv->n_sessions++;
	atomic_fetch_add(&srv->connected, 1);
}

static void accept_all(struct srv *srv, struct tp_listener *listener)
{
	for (;;) {
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

void control_note(struct note *note)
{
	struct session *s = note->session;
	struct srv *srv = s->srv;

	switch (note->kind) {
	case NOTE_MSG:
		atomic_fetch_sub(&s->inbox_bytes, sizeof(*note) + note->len);
		handshake_message(s, note->data, note->len);
		free(note);
		break;
	case NOTE_EARLY:
		session_condemn(s, WIRE_E_PROTOCOL, "data while %s, before anything was granted",
				session_state_name(session_state(s)));
		break;
	case NOTE_ROOM:
		atomic_store(&s->room_noted, false);
		handshake_flush(s);
		break;
	case NOTE_CLOSED:
		handshake_closed(s);
		atomic_fetch_sub(&srv->connected, 1);
		session_put(s);
		break;
	case NOTE_STARTED:
		handshake_started(s);
		session_put(s);
		break;
	case NOTE_LEFT:
		handshake_left(s);
		session_put(s);
		break;
	case NOTE_RATE:
		handshake_rate_set(s);
		session_put(s);
		break;
	case NOTE_REFUSED:
		handshake_refused(s);
		session_put(s);
		break;
	case NOTE_REAP:
		reap(s);
		break;
	}
}

static void keep_deadlines(struct srv *srv, uint64_t now)
{
	for (struct session *s = srv->sessions; s; s = s->next) {
		if (!s->deadline || now <= s->deadline || atomic_load(&s->condemned))
			continue;
		/* One that left owes nothing but to hang up. */
		if (session_state(s) == SESSION_LEAVING)
			tp_conn_close(s->conn);
		else
			session_condemn(s, WIRE_E_PROTOCOL, "silent for %u ms while %s",
					srv->opt.talk_ms, session_state_name(session_state(s)));
	}
}

/* ---- serving and ending ------------------------------------------------------------------------ */

static bool done(const struct srv *srv)
{
	return srv->opt.exit_when_done && srv->ever_active >= srv->opt.trainers &&
	       srv->n_sessions == 0;
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

static void end_sessions(struct srv *srv)
{
	uint64_t deadline = clock_ns() + CONTROL_END_NS;

	for (struct session *s = srv->sessions; s; s = s->next) {
		session_condemn(s, WIRE_E_SHUTDOWN, "the server is stopping");
		tp_conn_close(s->conn); /* also those that were condemned and linger */
	}
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

int srv_run(struct srv *srv)
{
	while (!atomic_load(&srv->stop) && !done(srv)) {
		bool accepting = clock_ns() >= srv->accept_again;

		wait_for_events(srv, accepting);
		/* Before the inbox: a trainer's first message finds its session enlisted. */
		for (uint32_t i = 0; accepting && i < srv->opt.n_listen; i++)
			accept_all(srv, srv->listener[i]);
		inbox_drain(&srv->inbox, control_note);
		keep_deadlines(srv, clock_ns());
	}
	if (atomic_load(&srv->stop))
		log_info("stopping");
	end_sessions(srv);
	tell_ages(srv);
	return 0;
}

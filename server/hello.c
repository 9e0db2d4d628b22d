/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer says who it is, and gets a rank.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "auth/auth.h"
#include "server/access.h"
#include "server/control.h"
#include "server/internal.h"
#include "server/dialog.h"

static void describe(struct session *s, const char *name)
{
	snprintf(s->who, sizeof(s->who), "trainer %u \"%.80s\" at %s", s->rank, name,
		 tp_conn_peer(s->conn));
}

/* ---- whose rank it is -------------------------------------------------------------------------- */

/* A rank that is waited for is its own trainer's, unless there is no other. -1: all are held. */
static int64_t free_rank(const struct srv *srv)
{
	int64_t waited = -1;

	for (uint32_t r = 0; r < srv->opt.trainers; r++) {
		if (srv->rank[r])
			continue;
		if (!vigil_waits(&srv->vigil, r))
			return r;
		if (waited < 0)
			waited = r;
	}
	return waited;
}

/* Its connection is over, and what it had is being put down: its rank will be free. */
static bool is_ending(const struct session *s)
{
	return session_state(s) == SESSION_CLOSED ||
	       (atomic_load(&s->condemned) && session_state(s) != SESSION_LEAVING);
}

static bool any_is_ending(const struct srv *srv)
{
	for (uint32_t r = 0; r < srv->opt.trainers; r++)
		if (srv->rank[r] && is_ending(srv->rank[r]))
			return true;
	return false;
}

/* The trainer of this live session has connected anew: it shows its token, or that of the session that
 * this one resumes and of which it may never have had the welcome. */
static bool is_its_trainer(const struct session *holder, const struct wire_hello *hello)
{
	return hello->resumes &&
	       (memcmp(holder->token, hello->session, WIRE_SESSION_LEN) == 0 ||
		(holder->resumed &&
		 ledger_knows(&holder->srv->ledger, holder->rank, hello->session)));
}

/* Every rank is held: true, and it waits, if one of them will soon be free. */
static bool may_hope(struct session *s)
{
	if (any_is_ending(s->srv))
		return true;
	session_condemn(s, WIRE_E_FULL,
			"%u trainers are connected, as many as the server was started for",
			s->srv->opt.trainers);
	return false;
}

/* The rank is held: true if it will be free. */
static bool may_succeed(struct session *s, struct session *holder, const struct wire_hello *hello)
{
	if (is_ending(holder))
		return true;
	if (is_its_trainer(holder, hello) && session_state(holder) != SESSION_LEAVING) {
		session_condemn(holder, WIRE_E_RANK, "its trainer connected anew");
		tp_conn_close(holder->conn);
		return true;
	}
	if (free_rank(s->srv) < 0)
		return may_hope(s);
	session_condemn(s, WIRE_E_RANK, "rank %u is held by %s, whose connection is alive",
			holder->rank, holder->who);
	return false;
}

/* The rank that it gets now; -1: it has to wait, or was turned away. */
static int64_t choose_rank(struct session *s, const struct wire_hello *hello, bool *waits)
{
	struct srv *srv = s->srv;
	int64_t rank = hello->rank < 0 ? free_rank(srv) : hello->rank;

	*waits = false;
	if (rank >= srv->opt.trainers) {
		session_condemn(s, WIRE_E_RANGE, "rank %" PRId64 " is not below the %u trainers "
				"that the server was started for", rank, srv->opt.trainers);
		return -1;
	}
	if (rank < 0)
		*waits = may_hope(s);
	else if (srv->rank[rank])
		*waits = may_succeed(s, srv->rank[rank], hello);
	else
		return rank;
	return -1;
}

/* ---- the welcome ------------------------------------------------------------------------------- */

/* Its rank has kept its place: in sync mode it is waited for, elsewhere there is no place to lose. */
static bool resumes(const struct session *s, const struct wire_hello *hello)
{
	const struct srv *srv = s->srv;

	return hello->resumes && ledger_knows(&srv->ledger, s->rank, hello->session) &&
	       (srv->opt.mode != SRV_SYNC || vigil_waits(&srv->vigil, s->rank));
}

static void take_rank(struct session *s, uint32_t rank, const struct wire_hello *hello)
{
	struct srv *srv = s->srv;

	srv->rank[rank] = s;
	s->rank = rank;
	s->has_rank = true;
	describe(s, hello->name);
	s->resumed = resumes(s, hello);
	if (s->resumed) {
		vigil_hold(&srv->vigil, rank, true);
		ledger_resume(&srv->ledger, rank, hello->session);
	}
	auth_random(s->token, sizeof(s->token));
	ledger_issue(&srv->ledger, rank, s->token);
}

static void welcome(struct session *s)
{
	struct srv *srv = s->srv;
	struct wire_msg msg = {.kind = WIRE_WELCOME};

	msg.welcome = (struct wire_welcome){
		.version = WIRE_VERSION,
		.rank = s->rank,
		.trainers = srv->opt.trainers,
		.mode = (enum wire_mode)srv->opt.mode, /* numbered alike */
		.staleness = srv->opt.staleness,
		.server = srv->id,
		.resumed = s->resumed,
	};
	memcpy(msg.welcome.session, s->token, sizeof(s->token));
	access_sign(s, &msg.welcome);
	session_set_state(s, SESSION_DECLARING);
	/* It may load its data first: its rank tells it which. Who goes on has it. */
	s->deadline = s->resumed ? clock_ns() + control_talk_ns(srv) : 0;
	dialog_send(s, &msg);
}

static void set_waiting(struct session *s, bool waiting)
{
	s->srv->hellos_waiting += (uint32_t)waiting - (uint32_t)s->waiting;
	s->waiting = waiting;
}

/* True: it is settled, one way or the other. */
static bool try_to_admit(struct session *s, const struct wire_hello *hello)
{
	bool waits;
	int64_t rank = choose_rank(s, hello, &waits);

	if (rank >= 0) {
		take_rank(s, (uint32_t)rank, hello);
		welcome(s);
	}
	return !waits;
}

/* The rank, and the welcome, of one who may have them; or it waits for the end of the rank's last
 * session. */
static void admit(struct session *s, const struct wire_hello *hello)
{
	if (try_to_admit(s, hello))
		return;
	s->asked = *hello;
	set_waiting(s, true);
	s->deadline = clock_ns() + control_talk_ns(s->srv);
}

void hello_again(struct srv *srv)
{
	for (struct session *s = srv->sessions; srv->hellos_waiting && s; s = s->next)
		if (s->waiting && (atomic_load(&s->condemned) || try_to_admit(s, &s->asked)))
			set_waiting(s, false);
}

void hello_tired(struct session *s)
{
	session_condemn(s, WIRE_E_RANK, "the last session of rank %d has not ended within %u ms",
			s->asked.rank, s->srv->opt.talk_ms);
}

void hello_take(struct session *s, const struct wire_hello *hello)
{
	if (hello->version != WIRE_VERSION)
		session_condemn(s, WIRE_E_VERSION,
				"the trainer speaks version %u of the protocol, the server %u: use "
				"the same release on both", hello->version, WIRE_VERSION);
	else if (access_granted(s, hello))
		admit(s, hello);
}

void hello_give_rank(struct session *s)
{
	set_waiting(s, false); /* one that has a rank waits no more; one whose end this is, neither */
	if (!s->has_rank)
		return;
	s->srv->rank[s->rank] = NULL;
	s->has_rank = false;
	vigil_hold(&s->srv->vigil, s->rank, false);
}

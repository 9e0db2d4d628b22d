/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a session, with a bye or without.
 */
#include "base/clock.h"
#include "base/log.h"
#include "server/control.h"
#include "server/dialog.h"
#include "server/internal.h"
#include "server/joint.h"
#include "server/rows.h"

/* With the bye its place is gone, and nobody goes on from it. (In async and ssp mode the rank's count
 * goes on.) One that took no part leaves the rank as it found it. */
static void forget(struct session *s)
{
	struct ledger *l = &s->srv->ledger;

	if (!s->took_part)
		return;
	ledger_revoke(l, s->rank);
	if (s->srv->opt.mode == SRV_SYNC)
		ledger_forget(l, s->rank);
}

void leave_bye(struct session *s)
{
	bool in_round = s->srv->opt.mode != SRV_ASYNC && session_state(s) >= SESSION_JOINING;

	session_set_state(s, SESSION_LEAVING);
	forget(s);
	if (in_round)
		session_queue(s, &s->leave);
	else
		leave_done(s);
}

static void tell_ages(const struct session *s)
{
	struct ages_look ages = {0};

	ages_add(&s->ages, &ages);
	ages_log(s->who, &ages);
}

void leave_done(struct session *s)
{
	struct wire_msg msg = {.kind = WIRE_BYE};

	if (session_state(s) != SESSION_LEAVING)
		return;
	log_info("%s: left", s->who);
	tell_ages(s);
	/* Before the bye: with it, the rank may be asked for again. */
	hello_give_rank(s);
	s->deadline = clock_ns() + control_talk_ns(s->srv); /* to hang up */
	dialog_send(s, &msg);
}

/* Sync: what it has delivered of the step that was being made, as far as that counts: of a parameter
 * that is updated whole, and of a table, all or nothing (round.h, whole.c, rows.c). */
static void keep_dense(struct session *s, const struct param *p)
{
	const struct table *t = srv_table(s->srv);
	uint32_t first = p->place.first_block;
	uint64_t all = UINT64_MAX;

	for (uint32_t b = first; b < first + p->place.blocks; b++) {
		uint64_t step = 0;

		for (uint32_t i = 0; i < t->slots; i++) {
			uint64_t held = joint_slot_step(s, &t->block[b], i);

			step = held > step ? held : step;
		}
		all = step < all ? step : all;
		if (!p->whole)
			ledger_has(&s->srv->ledger, s->rank, b, step);
	}
	for (uint32_t b = first; p->whole && b < first + p->place.blocks; b++)
		ledger_has(&s->srv->ledger, s->rank, b, all);
}

static void keep_rows(struct session *s, const struct param *p)
{
	const struct part_claim *c = &s->claim[p - srv_table(s->srv)->param];

	/* Not one that was refused right after it was claimed. */
	if (c->done && c->step <= s->last_pushed)
		ledger_has(&s->srv->ledger, s->rank, p->place.first_block, c->step);
}

static void keep_delivered(struct session *s)
{
	const struct table *t = srv_table(s->srv);

	for (uint32_t i = 0; i < t->params; i++)
		if (is_table(&t->param[i]))
			keep_rows(s, &t->param[i]);
		else
			keep_dense(s, &t->param[i]);
}

/* Sync: its rank is another's once the round has said what becomes of its place. Async, ssp: once all
 * that it pushed is applied, which is when it is reaped. */
static void lose(struct session *s)
{
	struct srv *srv = s->srv;

	atomic_fetch_add(&srv->lost, !srv->ending);
	ledger_lose(&srv->ledger, s->rank);
	if (srv->opt.mode == SRV_SYNC) {
		/* Gradients of a step that waits for it hold on to the sessions they came from. */
		s->dropped |= srv->ending;
		keep_delivered(s);
		s->leave.kind = ITEM_LOSE;
	}
	if (srv->opt.mode != SRV_ASYNC)
		session_queue(s, &s->leave);
}

void leave_closed(struct session *s)
{
	struct srv *srv = s->srv;
	enum session_state was = session_state(s);

	if (was != SESSION_LEAVING && !atomic_load(&s->condemned))
		log_warn("%s: lost while %s: %s", s->who, session_state_name(was),
			 tp_conn_reason(s->conn));
	if (was == SESSION_ACTIVE)
		tell_ages(s);
	session_set_state(s, SESSION_CLOSED);
	s->deadline = 0;
	if (was == SESSION_JOINING || was == SESSION_ACTIVE)
		lose(s);
	else if (was == SESSION_LEAVING || srv->opt.mode == SRV_SYNC)
		hello_give_rank(s);
	if (srv->initialiser == s) {
		srv->initialiser = NULL;
		start_held(srv);
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Lost trainers, stragglers, and words on whoever is waited for.
 */
#include "server/watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "server/dialog.h"
#include "server/internal.h"
#include "server/joint.h"
#include "server/rows.h"

/* Names that a line has room for. */
enum { NAMES = 4 };

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_S;
}

/* ---- lost -------------------------------------------------------------------------------------- */

static const char *part_in(const struct session *s)
{
	return s->lost_place == PLACE_PASSED ? "which it had ended" : "its barrier is missing";
}

void watch_lost(struct session *s)
{
	struct srv *srv = s->srv;

	hello_give_rank(s);
	if (srv->ending)
		return;
	if (s->lost_place == PLACE_NONE) {
		if (s->lost_step)
			log_warn("%s: given up in step %" PRIu64 ": the others go on", s->who,
				 s->lost_step);
		atomic_fetch_add(&srv->given_up, s->lost_step != 0);
		return;
	}
	if (srv->opt.on_loss == SRV_LOSS_STOP) {
		control_fail(srv, err_set(ECONNRESET, "%s was lost in step %" PRIu64 " (%s)", s->who,
					  s->lost_step, part_in(s)));
		return;
	}
	vigil_lose(&srv->vigil, s->rank, clock_ns());
	log_warn("%s: lost in step %" PRIu64 " (%s): waited for for %.1f s", s->who, s->lost_step,
		 part_in(s), srv->opt.loss_wait_ms / 1000.0);
}

static void give_up(struct srv *srv, uint32_t rank)
{
	log_warn("trainer %u: given up: it did not come back within %.1f s; the others go on", rank,
		 srv->opt.loss_wait_ms / 1000.0);
	atomic_fetch_add(&srv->given_up, 1);
	round_give_up(&srv->round, rank);
}

void watch_end(struct srv *srv)
{
	for (uint32_t rank = 0; rank < srv->opt.trainers; rank++) {
		/* One that is held ends with its trainer's session. */
		if (!vigil_waits(&srv->vigil, rank) || srv->vigil.rank[rank].held)
			continue;
		vigil_settle(&srv->vigil, rank);
		round_give_up(&srv->round, rank);
	}
}

/* ---- what is missing --------------------------------------------------------------------------- */

/* A look at what its poller writes: it may be a little old. */
static bool has_come(const struct session *s, const struct param *p, uint64_t step)
{
	const struct table *t = srv_table(s->srv);
	uint32_t first = p->place.first_block;

	/* A table's first block has the slots of all of it, too. */
	for (uint32_t b = first; b < first + param_words(p); b++) {
		bool here = session_kept(s, b) == step;

		for (uint32_t i = 0; i < t->slots && !here; i++)
			here = joint_slot_step(s, &t->block[b], i) == step;
		if (!here)
			return false;
	}
	return true;
}

/* "; no gradient of "a", "b" and 3 others", or nothing. */
static void name_missing(const struct session *s, uint64_t step, char *text, size_t cap)
{
	const struct table *t = srv_table(s->srv);
	uint32_t missing = 0;
	int at = 0;

	text[0] = 0;
	for (uint32_t i = 0; i < t->params; i++) {
		if (has_come(s, &t->param[i], step))
			continue;
		if (missing++ < NAMES && at >= 0 && (size_t)at < cap)
			at += snprintf(text + at, cap - (size_t)at, "%s \"%.60s\"",
				       missing == 1 ? "; no gradient yet of" : ",",
				       t->param[i].decl.name);
	}
	if (missing > NAMES && (size_t)at < cap)
		snprintf(text + at, cap - (size_t)at, " and %u others", missing - NAMES);
}

/* ---- stragglers -------------------------------------------------------------------------------- */

static void act_on_straggler(struct srv *srv, struct session *s, uint64_t step, uint64_t waited)
{
	char missing[360];

	name_missing(s, step, missing, sizeof(missing));
	log_warn("%s: a straggler: step %" PRIu64 " has waited %.1f s for its barrier%s", s->who, step,
		 seconds(waited), missing);
	atomic_fetch_add(&srv->stragglers, 1);
	if (srv->opt.on_straggler == SRV_STRAGGLER_STOP) {
		control_fail(srv, err_set(ETIME,
					  "%s is a straggler: step %" PRIu64
					  " has waited %.1f s for its barrier%s",
					  s->who, step, seconds(waited), missing));
	} else if (srv->opt.on_straggler == SRV_STRAGGLER_DROP) {
		s->dropped = true;
		log_warn("%s: dropped as a straggler", s->who);
		session_condemn(s, WIRE_E_SHUTDOWN,
				"dropped as a straggler: step %" PRIu64 " has waited %.1f s for its "
				"barrier", step, seconds(waited));
	}
}

static void tell_of(const struct srv *srv, uint32_t rank, const struct round_look *seen, uint64_t now)
{
	const struct session *s = srv->rank[rank];
	double waited = seconds(now - seen->first_passed);
	char missing[360] = "";

	if (seen->rank[rank] == BARRIER_LOST)
		log_info("step %" PRIu64 " has waited %.0f s for trainer %u, which was lost; it is %s",
			 seen->step, waited, rank, s ? "coming back" : "waited for");
	else if (s && session_state(s) == SESSION_ACTIVE) {
		name_missing(s, seen->step, missing, sizeof(missing));
		log_info("step %" PRIu64 " has waited %.0f s for the barrier of %s%s", seen->step,
			 waited, s->who, missing);
	}
}

void watch_looked(struct srv *srv)
{
	const struct round_look *seen = &srv->round.seen;
	uint64_t now = clock_ns();
	bool straggle = srv->look_straggle, tell = srv->look_tell;

	srv->looking = srv->look_straggle = srv->look_tell = false;
	/* The step may have ended since, or somebody come back to it. */
	if (!seen->first_passed || seen->first_passed != srv->look_first || srv->ending)
		return;
	for (uint32_t rank = 0; rank < srv->opt.trainers; rank++) {
		struct session *s = srv->rank[rank];
		uint8_t state = seen->rank[rank];

		if (state != BARRIER_MEMBER && state != BARRIER_LOST)
			continue;
		if (straggle && state == BARRIER_MEMBER && s &&
		    session_state(s) == SESSION_ACTIVE && !atomic_load(&s->condemned))
			act_on_straggler(srv, s, seen->step, now - seen->first_passed);
		else if (tell)
			tell_of(srv, rank, seen, now);
	}
}

/* ---- the first step ---------------------------------------------------------------------------- */

static bool is_waiting(const struct session *s)
{
	return s && (session_state(s) == SESSION_HELD || session_state(s) == SESSION_JOINING);
}

/* Ranks that have not come, as "1, 3, 4-7". */
static uint32_t name_absent(const struct srv *srv, char *text, size_t cap)
{
	uint32_t absent = 0;
	size_t at = 0;

	text[0] = 0;
	for (uint32_t r = 0; r < srv->opt.trainers; r++) {
		uint32_t from = r;

		while (r < srv->opt.trainers && !is_waiting(srv->rank[r]))
			r++;
		if (r == from)
			continue;
		absent += r - from;
		if (at + 32 > cap)
			continue;
		at += (size_t)snprintf(text + at, cap - at, "%s%u", at ? ", " : "", from);
		if (r - from > 1)
			at += (size_t)snprintf(text + at, cap - at, "-%u", r - 1);
	}
	return absent;
}

static void tell_of_start(struct srv *srv, uint64_t now)
{
	char ranks[200];
	bool anybody = false;

	for (uint32_t r = 0; r < srv->opt.trainers && !srv->begun; r++)
		anybody |= is_waiting(srv->rank[r]);
	if (!anybody)
		srv->start_waits = 0;
	else if (!srv->start_waits)
		srv->start_waits = now;
	if (!vigil_tells(&srv->vigil, srv->start_waits, now))
		return;
	if (name_absent(srv, ranks, sizeof(ranks)))
		log_info("the first step has waited %.0f s for trainers %s of %u",
			 seconds(now - srv->start_waits), ranks, srv->opt.trainers);
	else if (srv->initialiser)
		log_info("the first step has waited %.0f s for initial weights from %s",
			 seconds(now - srv->start_waits), srv->initialiser->who);
}

void watch_tick(struct srv *srv, uint64_t now)
{
	uint64_t first;
	uint32_t rank;

	while (vigil_expire(&srv->vigil, now, &rank))
		give_up(srv, rank);
	if (!srv->begun && srv->opt.mode != SRV_ASYNC)
		tell_of_start(srv, now);
	if (!srv->begun || srv->opt.mode != SRV_SYNC || srv->looking)
		return;
	first = atomic_load(&srv->round.first_passed);
	srv->look_straggle = vigil_straggles(&srv->vigil, first, now);
	srv->look_tell = vigil_tells(&srv->vigil, first, now);
	if (!srv->look_straggle && !srv->look_tell)
		return;
	srv->looking = true;
	srv->look_first = first;
	round_ask(&srv->round);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The round: sync mode's steps.
 */
#include "server/round.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"
#include "server/internal.h"

/* The books of the next step, complete before anyone is told that this one is over. */
static void open_step(struct round *r)
{
	r->ending = false;
	r->left_gradients = false;
	atomic_store_explicit(&r->open, (uint64_t)srv_table(r->srv)->units + 1,
			      memory_order_relaxed);
	atomic_store_explicit(&r->expected, r->barrier.members, memory_order_release);
	atomic_store_explicit(&r->step, r->barrier.step, memory_order_release);
}

/* A joiner became a member: its first step is the one that is being made. */
static void start_joined(struct round *r)
{
	for (uint32_t rank = 0; rank < r->barrier.ranks; rank++) {
		struct session *s = r->session[rank];

		if (s && !s->first_step && r->barrier.rank[rank] == BARRIER_MEMBER) {
			s->first_step = r->barrier.step;
			session_note(s, &s->started_note);
		}
	}
}

static void end_step(struct round *r)
{
	uint64_t ended = r->barrier.step;

	barrier_advance(&r->barrier);
	open_step(r);
	for (uint32_t rank = 0; rank < r->barrier.ranks; rank++) {
		struct session *s = r->session[rank];

		if (s && s->first_step && s->first_step <= ended)
			session_release(s, ended);
	}
	start_joined(r);
}

/* True if the step is over. */
static bool close_one(struct round *r)
{
	return atomic_fetch_sub_explicit(&r->open, 1, memory_order_acq_rel) == 1;
}

void round_done_one(struct round *r)
{
	if (close_one(r))
		srv_post(r->srv, &r->actor, &r->settled);
}

static void post_settle(struct round *r, struct param *p, enum item_kind kind)
{
	p->settle.kind = kind;
	srv_post(r->srv, &p->actor, &p->settle);
}

/* Those that can be settled are; the global ones are measured first. */
static void settle_parameters(struct round *r)
{
	struct table *t = srv_table(r->srv);

	atomic_store_explicit(&r->measuring, 1, memory_order_relaxed);
	for (uint32_t i = 0; i < t->params; i++) {
		struct param *p = &t->param[i];

		if (atomic_load_explicit(&p->settled, memory_order_acquire) ==
		    r->barrier.step * p->units)
			continue;
		/* Counted as open, so that the item is out of the queue before the next step. */
		atomic_fetch_add_explicit(&r->open, 1, memory_order_relaxed);
		if (p->global)
			atomic_fetch_add_explicit(&r->measuring, 1, memory_order_relaxed);
		post_settle(r, p, p->global ? ITEM_MEASURE : ITEM_SETTLE);
	}
	round_measured_one(r);
}

void round_measured_one(struct round *r)
{
	if (atomic_fetch_sub_explicit(&r->measuring, 1, memory_order_acq_rel) == 1 &&
	    srv_table(r->srv)->globals)
		srv_post(r->srv, &r->actor, &r->measured);
}

/* In the order of the parameters, so that the sum is the same every time. */
static void judge(struct round *r)
{
	struct table *t = srv_table(r->srv);
	double norm2 = 0;
	float limit = 0;

	r->skip = false;
	for (uint32_t i = 0; i < t->params; i++) {
		struct param *p = &t->param[i];

		if (!p->global)
			continue;
		r->skip |= p->nonfinite;
		if (p->opt.common.clip_global_norm > 0) {
			norm2 += p->norm2;
			limit = p->opt.common.clip_global_norm;
		}
	}
	r->global_clip = kern_clip(norm2, limit);
}

static void settle_measured(struct round *r)
{
	struct table *t = srv_table(r->srv);

	judge(r);
	for (uint32_t rank = 0; r->skip && rank < r->barrier.ranks; rank++)
		if (r->session[rank] && r->session[rank]->first_step)
			session_count(r->session[rank], SESSION_SKIPPED);
	for (uint32_t i = 0; i < t->params; i++)
		if (t->param[i].global)
			post_settle(r, &t->param[i], ITEM_SETTLE);
}

static void end_if_complete(struct round *r)
{
	if (r->ending || !barrier_complete(&r->barrier, r->left_gradients))
		return;
	r->ending = true;
	settle_parameters(r);
	if (close_one(r))
		end_step(r);
}

/* Takes in who joined, if nothing is under way that they would have to wait for. */
static void admit(struct round *r)
{
	if (barrier_may_begin(&r->barrier)) {
		barrier_advance(&r->barrier);
		log_info("step 1: %u trainers", r->barrier.members);
	} else if (barrier_idle(&r->barrier) && !r->ending && !r->left_gradients) {
		barrier_admit(&r->barrier);
	} else {
		return;
	}
	open_step(r);
	start_joined(r);
}

static void join(struct round *r, struct session *s)
{
	if (barrier_join(&r->barrier, s->rank)) {
		log_error("%s: %s", s->who, err_text());
		return;
	}
	session_get(s);
	r->session[s->rank] = s;
	if (r->barrier.step == 0 && r->barrier.joining < r->barrier.start_at)
		log_info("waiting for %u of %u trainers",
			 r->barrier.start_at - r->barrier.joining, r->barrier.start_at);
	admit(r);
}

static void leave(struct round *r, struct session *s)
{
	if (r->session[s->rank] == s) {
		r->session[s->rank] = NULL;
		barrier_leave(&r->barrier, s->rank);
		if (s->last_pushed == r->barrier.step && r->barrier.step)
			r->left_gradients = true;
		session_put(s);
	}
	session_note(s, &s->left_note);
	end_if_complete(r);
	admit(r);
}

static void pass(struct round *r, struct session *s)
{
	/* It may have left since: a connection's end overtakes nothing, but a rank's may. */
	if (r->session[s->rank] == s && barrier_pass(&r->barrier, s->rank, s->pass_step))
		log_error("%s: %s", s->who, err_text());
	end_if_complete(r);
}

static void handle(struct actor *actor, struct item *item)
{
	struct round *r = (struct round *)actor;

	switch (item->kind) {
	case ITEM_JOIN:
		join(r, session_of(item));
		break;
	case ITEM_PASS:
		pass(r, session_of(item));
		break;
	case ITEM_LEAVE:
		leave(r, session_of(item));
		break;
	case ITEM_RELEASE:
		session_retry_release(session_of(item));
		return; /* with its reference */
	case ITEM_MEASURED:
		settle_measured(r);
		return;
	case ITEM_SETTLED:
		end_step(r);
		end_if_complete(r);
		admit(r);
		return;
	default: /* parameters' kinds are never posted here */
		__builtin_unreachable();
	}
	session_put(session_of(item));
}

int round_init(struct round *r, struct srv *srv, uint32_t trainers)
{
	int rc = barrier_init(&r->barrier, trainers, trainers);

	actor_init(&r->actor, handle, true);
	r->srv = srv;
	r->settled = (struct item){.kind = ITEM_SETTLED, .home = &r->actor};
	r->measured = (struct item){.kind = ITEM_MEASURED, .home = &r->actor};
	if (rc)
		return rc;
	r->session = calloc(trainers, sizeof(struct session *));
	return r->session ? 0 : err_set(ENOMEM, "no memory for %u trainers", trainers);
}

void round_fini(struct round *r)
{
	free(r->session);
	r->session = NULL;
	barrier_fini(&r->barrier);
}

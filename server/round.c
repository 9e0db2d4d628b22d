/* SPDX-License-Identifier: Apache-2.0
 *
 * The round: sync mode's steps.
 */
#include "server/round.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "server/internal.h"

/* The books of the next step, complete before anyone is told that this one is over. */
static void open_step(struct round *r)
{
	r->ending = false;
	r->left_gradients = false;
	atomic_store_explicit(&r->first_passed, 0, memory_order_relaxed);
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

/* ---- checkpoints ----------------------------------------------------------------------------- */

static void cut(struct round *r, uint64_t step)
{
	r->cut_wanted = false;
	saver_cut(&r->srv->saver, step);
}

/* Nobody is there who could deliver, and nobody has: what there is, is the end of the last step. */
static bool is_untouched(const struct round *r)
{
	if (r->ending || r->left_gradients || r->barrier.members > r->barrier.lost)
		return false;
	for (uint32_t rank = 0; rank < r->barrier.ranks; rank++)
		if (barrier_is_lost(&r->barrier, rank) && r->pushed[rank] == r->barrier.step)
			return false;
	return true;
}

static void cut_if_idle(struct round *r)
{
	bool begun = r->barrier.step > r->barrier.from;

	if (!r->cut_wanted || saver_holds(&r->srv->saver, true))
		return;
	if (!begun || is_untouched(r))
		cut(r, r->barrier.step - begun);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void end_step(struct round *r)
{
	uint64_t ended = r->barrier.step;

	r->held = saver_holds(&r->srv->saver, r->cut_wanted);
	if (r->held)
		return;
	/* Before anything of the next step can be in a queue. */
	if (r->cut_wanted)
		cut(r, ended);
	saver_step_ended(&r->srv->saver, ended);
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
static bool close_some(struct round *r, uint32_t n)
{
	return atomic_fetch_sub_explicit(&r->open, n, memory_order_acq_rel) == n;
}

void round_done(struct round *r, uint32_t n)
{
	if (close_some(r, n))
		srv_post(r->srv, &r->actor, &r->settled);
}

static void post_settle(struct round *r, struct param *p, enum item_kind kind)
{
	p->settle.kind = kind;
	srv_post(r->srv, p->home, &p->settle);
}

static bool is_settled(const struct round *r, const _Atomic uint64_t *settled, uint32_t units)
{
	return atomic_load_explicit(settled, memory_order_acquire) == r->barrier.step * units;
}

/* A joint pack's parameters are asked together. What is asked counts as open, so that the item is out of
 * the queue before the next step. */
static void settle_pack(struct round *r, struct pack *k)
{
	if (is_settled(r, &k->settled, k->n))
		return;
	atomic_fetch_add_explicit(&r->open, 1, memory_order_relaxed);
	srv_post(r->srv, &k->actor, &k->settle);
}

/* Those that can be settled are; the global ones are measured first. */
static void settle_parameters(struct round *r)
{
	struct table *t = srv_table(r->srv);

	/* But for the barrier all is done: no need to look at each. */
	if (atomic_load_explicit(&r->open, memory_order_acquire) == 1)
		return;
	atomic_store_explicit(&r->measuring, 1, memory_order_relaxed);
	for (uint32_t i = 0; i < t->params; i++) {
		struct param *p = &t->param[i];

		if (p->joint) {
			settle_pack(r, p->joint);
			i += p->joint->n - 1;
			continue;
		}
		if (is_settled(r, &p->settled, p->units))
			continue;
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
	if (close_some(r, 1))
		end_step(r);
}

/* Takes in who joined, if nothing is under way that they would have to wait for. */
static void admit(struct round *r)
{
	if (barrier_may_begin(&r->barrier)) {
		barrier_advance(&r->barrier);
		log_info("step %" PRIu64 ": %u trainers", r->barrier.step, r->barrier.members);
	} else if (barrier_idle(&r->barrier) && !r->ending && !r->left_gradients) {
		barrier_admit(&r->barrier);
	} else {
		return;
	}
	open_step(r);
	start_joined(r);
}

/* The rank's trainer is back: it has not had the time that others had. */
static int take_place(struct round *r, uint32_t rank)
{
	if (!barrier_is_lost(&r->barrier, rank))
		return barrier_join(&r->barrier, rank);
	if (atomic_load(&r->first_passed))
		atomic_store(&r->first_passed, clock_ns());
	return barrier_return(&r->barrier, rank);
}

static void join(struct round *r, struct session *s)
{
	if (take_place(r, s->rank)) {
		log_error("%s: %s", s->who, err_text());
		return;
	}
	session_get(s);
	r->session[s->rank] = s;
	if (r->barrier.step == r->barrier.from && r->barrier.joining < r->barrier.start_at)
		log_info("waiting for %u of %u trainers",
			 r->barrier.start_at - r->barrier.joining, r->barrier.start_at);
	start_joined(r); /* at once, if it is back in the step that is being made */
	admit(r);
}

/* The rank has no place any more; what it delivered counts. */
static void vacate(struct round *r, uint32_t rank)
{
	barrier_leave(&r->barrier, rank);
	if (r->pushed[rank] == r->barrier.step && r->barrier.step)
		r->left_gradients = true;
}

/* True: it was there. */
static bool forget(struct round *r, struct session *s)
{
	if (r->session[s->rank] != s)
		return false;
	r->session[s->rank] = NULL;
	if (s->last_pushed > r->pushed[s->rank])
		r->pushed[s->rank] = s->last_pushed;
	session_put(s);
	return true;
}

static void go_on(struct round *r)
{
	end_if_complete(r);
	cut_if_idle(r);
	admit(r);
}

static void end_and_go_on(struct round *r)
{
	end_step(r);
	go_on(r);
}

/* What is asked of it about checkpoints is another now. */
static void look_again(struct round *r)
{
	if (r->held)
		end_and_go_on(r);
	else
		cut_if_idle(r);
}

static void leave(struct round *r, struct session *s)
{
	if (forget(r, s))
		vacate(r, s->rank);
	session_note(s, &s->left_note);
	go_on(r);
}

static bool keeps_place(const struct round *r, const struct session *s)
{
	uint8_t state = r->barrier.rank[s->rank];

	return r->srv->opt.on_loss != SRV_LOSS_CONTINUE && !s->dropped && !r->over &&
	       (state == BARRIER_MEMBER || state == BARRIER_PASSED);
}

static void lose(struct round *r, struct session *s)
{
	s->lost_step = r->barrier.step;
	s->lost_place = PLACE_NONE;
	if (forget(r, s)) {
		if (keeps_place(r, s)) {
			barrier_lose(&r->barrier, s->rank);
			s->lost_place = r->barrier.rank[s->rank] == BARRIER_LOST ? PLACE_KEPT
										 : PLACE_PASSED;
		} else {
			vacate(r, s->rank);
		}
	}
	session_note(s, &s->lost_note);
	go_on(r);
}

static void give_up(struct round *r, uint32_t rank)
{
	if (barrier_is_lost(&r->barrier, rank))
		vacate(r, rank);
	go_on(r);
}

static void end_waits(struct round *r)
{
	r->over = true;
	for (uint32_t rank = 0; rank < r->barrier.ranks; rank++)
		if (barrier_is_lost(&r->barrier, rank))
			vacate(r, rank);
	go_on(r);
}

static void look(struct round *r)
{
	r->seen.step = r->barrier.step;
	r->seen.first_passed = atomic_load(&r->first_passed);
	memcpy(r->seen.rank, r->barrier.rank, r->barrier.ranks);
	inbox_post(&r->srv->inbox, &r->srv->looked_note);
}

static void pass(struct round *r, struct session *s)
{
	/* It may have left since: a connection's end overtakes nothing, but a rank's may. */
	if (r->session[s->rank] == s) {
		if (barrier_pass(&r->barrier, s->rank, s->pass_step))
			log_error("%s: %s", s->who, err_text());
		else if (!atomic_load_explicit(&r->first_passed, memory_order_relaxed))
			atomic_store_explicit(&r->first_passed, clock_ns(), memory_order_relaxed);
	}
	end_if_complete(r);
}

static void handle(struct actor *actor, struct item *item)
{
	struct round *r = (struct round *)actor;

	switch (item->kind) {
	case ITEM_CUT:
		r->cut_wanted = true;
		look_again(r);
		return;
	case ITEM_GO:
		atomic_store(&r->srv->saver.go_posted, false);
		look_again(r);
		return;
	case ITEM_JOIN:
		join(r, session_of(item));
		break;
	case ITEM_PASS:
		pass(r, session_of(item));
		break;
	case ITEM_LEAVE:
		leave(r, session_of(item));
		break;
	case ITEM_LOSE:
		lose(r, session_of(item));
		break;
	case ITEM_GIVE_UP:
		give_up(r, (uint32_t)(item - r->give_up));
		return;
	case ITEM_OVER:
		end_waits(r);
		return;
	case ITEM_LOOK:
		look(r);
		return;
	case ITEM_RELEASE:
		session_retry_release(session_of(item));
		return; /* with its reference */
	case ITEM_MEASURED:
		settle_measured(r);
		return;
	case ITEM_SETTLED:
		end_and_go_on(r);
		return;
	default: /* parameters' kinds are never posted here */
		__builtin_unreachable();
	}
	session_put(session_of(item));
}

void round_give_up(struct round *r, uint32_t rank)
{
	srv_post(r->srv, &r->actor, &r->give_up[rank]);
}

void round_over(struct round *r)
{
	srv_post(r->srv, &r->actor, &r->end);
}

void round_ask(struct round *r)
{
	srv_post(r->srv, &r->actor, &r->look);
}

int round_init(struct round *r, struct srv *srv, uint32_t trainers)
{
	int rc = barrier_init(&r->barrier, trainers, trainers);

	actor_init(&r->actor, handle, true);
	r->srv = srv;
	r->settled = (struct item){.kind = ITEM_SETTLED, .home = &r->actor};
	r->measured = (struct item){.kind = ITEM_MEASURED, .home = &r->actor};
	r->look = (struct item){.kind = ITEM_LOOK, .home = &r->actor};
	r->end = (struct item){.kind = ITEM_OVER, .home = &r->actor};
	if (rc)
		return rc;
	r->session = calloc(trainers, sizeof(struct session *));
	r->pushed = calloc(trainers, sizeof(*r->pushed));
	r->give_up = calloc(trainers, sizeof(*r->give_up));
	r->seen.rank = calloc(trainers, 1);
	if (!r->session || !r->pushed || !r->give_up || !r->seen.rank)
		return err_set(ENOMEM, "no memory for %u trainers", trainers);
	for (uint32_t rank = 0; rank < trainers; rank++)
		r->give_up[rank] = (struct item){.kind = ITEM_GIVE_UP, .home = &r->actor};
	return 0;
}

void round_fini(struct round *r)
{
	free(r->session);
	free(r->pushed);
	free(r->give_up);
	free(r->seen.rank);
	r->session = NULL;
	barrier_fini(&r->barrier);
}

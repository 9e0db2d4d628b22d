/* SPDX-License-Identifier: Apache-2.0
 *
 * The pace: ssp mode's steps.
 */
#include "server/pace.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"
#include "server/internal.h"

/* The first step of who waits for it: the one behind the slowest's; or behind its own last one, if it
 * goes on with a session that was lost, and may go past that. */
static void start_joined(struct pace *pace)
{
	const struct clocks *c = &pace->clocks;

	for (uint32_t rank = 0; c->begun && rank < c->ranks; rank++) {
		struct session *s = pace->session[rank];

		if (!s || s->first_step || clocks_released(c, rank) < c->ended[rank])
			continue;
		s->first_step = pace->clocks.ended[rank] + 1;
		atomic_store(&s->released, pace->clocks.ended[rank]);
		session_note(s, &s->started_note);
	}
}

static void release(struct pace *pace)
{
	uint64_t before = atomic_load_explicit(&pace->slowest, memory_order_relaxed);

	atomic_store_explicit(&pace->slowest, pace->clocks.slowest, memory_order_relaxed);
	if (pace->clocks.slowest > before)
		saver_step_ended(&pace->srv->saver, pace->clocks.slowest);
	for (uint32_t rank = 0; rank < pace->clocks.ranks; rank++) {
		struct session *s = pace->session[rank];
		uint64_t now = clocks_released(&pace->clocks, rank);

		if (!s || !s->first_step || now <= atomic_load(&s->released))
			continue;
		atomic_store(&s->released, now);
		session_release(s, now);
	}
	start_joined(pace);
}

static void join(struct pace *pace, struct session *s)
{
	int rc = s->resumed ? clocks_return(&pace->clocks, s->rank)
			    : clocks_join(&pace->clocks, s->rank);

	if (rc) {
		log_error("%s: %s", s->who, err_text());
		return;
	}
	session_get(s);
	pace->session[s->rank] = s;
	if (!pace->clocks.begun)
		log_info("waiting for %u of %u trainers",
			 pace->clocks.start_at - pace->clocks.members, pace->clocks.start_at);
	start_joined(pace);
}

static void leave(struct pace *pace, struct session *s)
{
	if (pace->session[s->rank] == s) {
		pace->session[s->rank] = NULL;
		clocks_leave(&pace->clocks, s->rank);
		session_put(s);
	}
	session_note(s, &s->left_note);
	release(pace);
}

static void pass(struct pace *pace, struct session *s)
{
	if (pace->session[s->rank] == s && clocks_pass(&pace->clocks, s->rank, s->pass_step))
		log_error("%s: %s", s->who, err_text());
	release(pace);
}

static void handle(struct actor *actor, struct item *item)
{
	struct pace *pace = (struct pace *)actor;
	struct session *s;

	if (item->kind == ITEM_CUT) {
		saver_cut(&pace->srv->saver, pace->clocks.slowest);
		return;
	}
	s = session_of(item);
	switch (item->kind) {
	case ITEM_JOIN:
		join(pace, s);
		break;
	case ITEM_PASS:
		pass(pace, s);
		break;
	case ITEM_LEAVE:
		leave(pace, s);
		break;
	case ITEM_RELEASE:
		session_retry_release(s);
		return; /* with its reference */
	default:        /* parameters' kinds are never posted here */
		__builtin_unreachable();
	}
	session_put(s);
}

int pace_init(struct pace *pace, struct srv *srv, uint32_t trainers, uint32_t staleness)
{
	int rc = clocks_init(&pace->clocks, trainers, trainers, staleness);

	actor_init(&pace->actor, handle, true);
	pace->srv = srv;
	if (rc)
		return rc;
	pace->session = calloc(trainers, sizeof(struct session *));
	return pace->session ? 0 : err_set(ENOMEM, "no memory for %u trainers", trainers);
}

void pace_fini(struct pace *pace)
{
	free(pace->session);
	pace->session = NULL;
	clocks_fini(&pace->clocks);
}

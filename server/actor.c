/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors: the counter that makes one consumer at a time out of a queue.
 */
#include "server/actor.h"

void actor_init(struct actor *actor, void (*handle)(struct actor *, struct item *), bool at_once)
{
	queue_init(&actor->queue);
	atomic_init(&actor->pending, 0);
	actor->at_once = at_once;
	actor->busy = false;
	atomic_init(&actor->holder, NULL);
	actor->cost = (struct turn_cost){0};
	actor->rest = NULL;
	actor->handle = handle;
}

bool actor_post(struct actor *actor, struct item *item)
{
	queue_push(&actor->queue, &item->node);
	/* Release: a runner that counts this item sees it whole. Acquire: if the run falls to the
	 * caller, it sees all that the run before it did. */
	return atomic_fetch_add_explicit(&actor->pending, 1, memory_order_acq_rel) == 0;
}

bool actor_hold(struct actor *actor)
{
	uint32_t idle = 0;

	/* Acquire: the holder sees what the run before did. */
	return atomic_load_explicit(&actor->pending, memory_order_relaxed) == 0 &&
	       atomic_compare_exchange_strong_explicit(&actor->pending, &idle, 1,
						       memory_order_acq_rel, memory_order_relaxed);
}

bool actor_let_go(struct actor *actor)
{
	if (actor->rest)
		actor->rest(actor);
	return atomic_fetch_sub_explicit(&actor->pending, 1, memory_order_acq_rel) != 1;
}

bool actor_run(struct actor *actor, uint32_t max)
{
	uint32_t n = atomic_load_explicit(&actor->pending, memory_order_acquire);

	if (n > max)
		n = max;
	for (uint32_t i = 0; i < n; i++)
		actor->handle(actor, (struct item *)queue_pop(&actor->queue));
	if (actor->rest)
		actor->rest(actor);
	/* Release: the next runner, whoever it is, sees what this one did. */
	return atomic_fetch_sub_explicit(&actor->pending, n, memory_order_acq_rel) != n;
}

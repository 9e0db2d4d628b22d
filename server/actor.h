/* SPDX-License-Identifier: Apache-2.0
 *
 * An actor: a queue of items and the promise that one thread at a time handles them. Parameters are
 * actors, and so are the round (the sync barrier) and the pace (ssp): all of their state is touched
 * only while an item is handled, so it needs no lock.
 *
 * Invariants:
 *  1. pending = items pushed and not yet handled. Whoever moves it from 0 to 1 owes the actor a run;
 *     nobody else may run it until a run has brought it back to 0.
 *  2. An item belongs to its queue from actor_post until its handle call, which may post it again.
 */
#ifndef GS_SERVER_ACTOR_H
#define GS_SERVER_ACTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/queue.h"
#include "server/turn.h"

enum item_kind {
	/* to a parameter */
	ITEM_GRAD,   /* a slot holds a gradient */
	ITEM_INIT,   /* a slot holds initial weights */
	ITEM_PULL,   /* a trainer wants a block written to it */
	ITEM_CREDIT, /* a credit could not be written for lack of room: again */
	ITEM_RATE,   /* a trainer sets the learning rate */
	ITEM_MEASURE, /* the barrier of the step is complete: what does the gradient come to? */
	ITEM_SETTLE,  /* the barrier of the step is complete: settle what is open */
	ITEM_SNAPSHOT, /* a checkpoint: the cut, or a unit of it (snapshot.h) */
	ITEM_PACK,    /* to a joint pack: gradients of all its parameters */
	/* to the round, and the first five of them to the pace */
	ITEM_CUT, /* a checkpoint is to be cut, as soon as it may be */
	ITEM_JOIN,
	ITEM_PASS,
	ITEM_LEAVE,
	ITEM_RELEASE,  /* a release could not be written for lack of room: again */
	ITEM_LOSE,     /* a trainer's connection was lost */
	ITEM_GIVE_UP,  /* a lost rank is no longer waited for */
	ITEM_OVER,     /* the server ends: nobody is waited for any more */
	ITEM_LOOK,     /* control wants to know whom the step waits for */
	ITEM_GO,       /* what a step's end waited for may be there */
	ITEM_MEASURED, /* every global parameter's gradient was measured */
	ITEM_SETTLED,  /* every unit of the step is settled (round.h) */
};

struct actor;

struct item {
	struct queue_node node; /* first: a queue's node is an item */
	struct actor *home;     /* where it goes back to after it was parked */
	struct item *next;      /* parked (session.h) */
	enum item_kind kind;
};

/* What trainers send, and what answers it: about one block or one push. */
static inline bool item_from_trainer(enum item_kind kind)
{
	return kind <= ITEM_RATE;
}

struct actor {
	struct queue queue;
	_Atomic uint32_t pending;
	bool at_once; /* run by whoever posts, never by a worker */
	bool busy;    /* its holder's: it is in handle */
	_Atomic(struct turn *) holder; /* whose poller keeps it to the end of its turn (sched.h) */
	struct turn_cost cost;
	void (*handle)(struct actor *actor, struct item *item);
	void (*rest)(struct actor *actor); /* after the last item of a run; NULL: nothing */
};

void actor_init(struct actor *actor, void (*handle)(struct actor *, struct item *), bool at_once);
/* True: the caller owes the actor a run. */
bool actor_post(struct actor *actor, struct item *item);
/* Items that are there. */
static inline uint32_t actor_pending(const struct actor *actor)
{
	return atomic_load_explicit(&actor->pending, memory_order_relaxed);
}
/* Without an item: if it is idle it becomes the caller's, who owes it actor_let_go. */
bool actor_hold(struct actor *actor);
/* True: items came meanwhile, a run is owed. */
bool actor_let_go(struct actor *actor);
/* Handles up to `max` items. True: more are there, a run is still owed. */
bool actor_run(struct actor *actor, uint32_t max);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Who runs an actor that is owed a run: the poster itself at once (the round; and every parameter when
 * there are no workers); a poller, where that is sooner (turn.h); or the first free worker.
 */
#ifndef GS_SERVER_SCHED_H
#define GS_SERVER_SCHED_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/actor.h"
#include "server/runq.h"
#include "server/turn.h"

struct sched {
	uint32_t workers;
	struct runq *_Atomic runq; /* NULL until the parameters are known; nothing is posted before */
	_Atomic bool stop;
	_Atomic uint32_t sleepers __attribute__((aligned(64)));
	_Atomic uint32_t awake; /* workers that look for work */
	sem_t wake;
};

void sched_init(struct sched *s, uint32_t workers);
void sched_fini(struct sched *s);
/* Makes the run queue for this many actors. -ENOMEM. Before the first post, once. */
int sched_set_actors(struct sched *s, uint32_t actors);

/* Posts, and sees to it that the actor runs. Any thread, no blocking. */
void sched_post(struct sched *s, struct actor *actor, struct item *item);

/* From here on the calling thread is a poller: what it posts to an idle actor and can do itself it does
 * at once, and holds the actor to the end of its turn, so that more of the same costs no queue. It must
 * call sched_turn before it waits. */
void sched_take_turns(struct sched *s, struct turn *turn);
/* A turn of this thread is over: it lets go of what it holds. */
void sched_turn(struct sched *s);
/* Behind its last turn: this thread is no poller any more, and `turn` is the caller's again. */
void sched_end_turns(void);

/* A poller's short cut past an actor's queue, for what a trainer sent. True: the actor was idle, this turn
 * has room for it, and until it is let go of it is the caller's, to do the work of one item at once. */
bool sched_hold(struct actor *actor);
/* Whatever came meanwhile is run, or handed on. */
void sched_let_go(struct sched *s, struct actor *actor);

/* A worker's life, until sched_stop: takes actors; when there are none spins for `spin_us` at most
 * (base/spin.h), sleeps. */
void sched_work(struct sched *s, int32_t spin_us);
/* Workers finish what is queued and return. */
void sched_stop(struct sched *s);

#endif

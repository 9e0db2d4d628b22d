/* SPDX-License-Identifier: Apache-2.0
 *
 * The run queue: actors that are owed a run, for any worker to take. A bounded lock-free ring
 * of any number of producers and consumers; an actor is in it at most once, so a ring of as many
 * places as there are actors never fills.
 */
#ifndef GS_SERVER_RUNQ_H
#define GS_SERVER_RUNQ_H

#include <stdint.h>

struct runq;
struct actor;

/* Room for `actors` at once. NULL when out of memory. */
struct runq *runq_create(uint32_t actors);
void runq_destroy(struct runq *q);
void runq_push(struct runq *q, struct actor *actor);
/* NULL when it is empty. */
struct actor *runq_pop(struct runq *q);

#endif

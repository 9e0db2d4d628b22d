/* SPDX-License-Identifier: Apache-2.0
 *
 * The run queue: a ring of cells, each with a turn of its own (Vyukov's bounded queue).
 *
 * A cell's turn says whose it is: `pos` that of the producer at pos, `pos + 1` that of the consumer
 * at pos. Nobody waits for whoever came before: a producer that lost its CPU half way leaves its
 * own cell unfinished, which consumers take for an empty queue until it looks for sleepers after
 * its push. (A ring whose producers finish in the order in which they began makes all of them wait
 * for that one; with more threads than CPUs it comes to a few hundred pushes a second.)
 */
#include "server/runq.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/line.h"

struct cell {
	_Atomic uint32_t turn;
	struct actor *actor;
};

struct runq {
	_Atomic uint32_t tail LINE_BEGINS; /* producers' */
	_Atomic uint32_t head LINE_BEGINS; /* consumers' */
	uint32_t mask LINE_BEGINS;
	struct cell *cell;
};

struct runq *runq_create(uint32_t actors)
{
	uint32_t size = 4;
	struct runq *q;

	while (size < actors)
		size *= 2;
	q = line_alloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->cell = line_alloc(size, sizeof(*q->cell));
	if (!q->cell) {
		free(q);
		return NULL;
	}
	for (uint32_t i = 0; i < size; i++)
		atomic_init(&q->cell[i].turn, i);
	atomic_init(&q->tail, 0);
	atomic_init(&q->head, 0);
	q->mask = size - 1;
	return q;
}

void runq_destroy(struct runq *q)
{
	if (!q)
		return;
	free(q->cell);
	free(q);
}

void runq_push(struct runq *q, struct actor *actor)
{
	uint32_t pos = atomic_load_explicit(&q->tail, memory_order_relaxed);
	struct cell *cell;

	for (;;) {
		int32_t ahead;

		cell = &q->cell[pos & q->mask];
		ahead = (int32_t)(atomic_load_explicit(&cell->turn, memory_order_acquire) - pos);
		if (ahead == 0 && atomic_compare_exchange_weak_explicit(&q->tail, &pos, pos + 1,
									memory_order_relaxed,
									memory_order_relaxed))
			break;
		/* There are as many cells as actors, so it is not full: a consumer took this one a
		 * whole round ago and has yet to give it back. */
		if (ahead < 0)
			sched_yield();
		if (ahead != 0)
			pos = atomic_load_explicit(&q->tail, memory_order_relaxed);
	}
	cell->actor = actor;
	/* Release: the consumer sees the actor. */
	atomic_store_explicit(&cell->turn, pos + 1, memory_order_release);
}

struct actor *runq_pop(struct runq *q)
{
	uint32_t pos = atomic_load_explicit(&q->head, memory_order_relaxed);
	struct actor *actor;
	struct cell *cell;

	for (;;) {
		int32_t ahead;

		cell = &q->cell[pos & q->mask];
		ahead =
		    (int32_t)(atomic_load_explicit(&cell->turn, memory_order_acquire) - (pos + 1));
		if (ahead < 0)
			return NULL;
		if (ahead == 0 && atomic_compare_exchange_weak_explicit(&q->head, &pos, pos + 1,
									memory_order_relaxed,
									memory_order_relaxed))
			break;
		if (ahead != 0)
			pos = atomic_load_explicit(&q->head, memory_order_relaxed);
	}
	actor = cell->actor;
	/* Release: it was read before the next producer overwrites it. */
	atomic_store_explicit(&cell->turn, pos + q->mask + 1, memory_order_release);
	return actor;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The run queue over ck_ring.
 */
#include "server/runq.h"

#include <ck_ring.h>
#include <stdlib.h>

#include "base/clock.h"

struct runq {
	ck_ring_t ring;
	ck_ring_buffer_t *places;
};

struct runq *runq_create(uint32_t actors)
{
	uint32_t size = 4; /* a power of two, with one place that ck_ring keeps empty */
	struct runq *q;

	while (size < actors + 1)
		size *= 2;
	q = aligned_alloc(64, (sizeof(*q) + 63) / 64 * 64);
	if (!q)
		return NULL;
	q->places = calloc(size, sizeof(*q->places));
	if (!q->places) {
		free(q);
		return NULL;
	}
	ck_ring_init(&q->ring, size);
	return q;
}

void runq_destroy(struct runq *q)
{
	if (!q)
		return;
	free(q->places);
	free(q);
}

void runq_push(struct runq *q, struct actor *actor)
{
	/* The ring looks full for an instant while a consumer is between taking a place and
	 * giving it back. */
	while (!ck_ring_enqueue_mpmc(&q->ring, q->places, actor))
		cpu_relax();
}

struct actor *runq_pop(struct runq *q)
{
	struct actor *actor;

	return ck_ring_dequeue_mpmc(&q->ring, q->places, &actor) ? actor : NULL;
}

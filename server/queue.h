/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter's queue: any number of producers, one consumer at a time, first in first out, nodes
 * owned by whoever puts them in (no allocation). It is liburcu's wait-free concurrent queue.
 *
 * Invariants: 1. a node is in one queue at a time; 2. queue_pop is called by one thread at a time,
 * and only when a push is known to have ended (the actor's counter says so).
 */
#ifndef GS_SERVER_QUEUE_H
#define GS_SERVER_QUEUE_H

#include <stdbool.h>
#include <urcu/wfcqueue.h>

struct queue_node {
	struct cds_wfcq_node link;
};

struct queue {
	struct __cds_wfcq_head head __attribute__((aligned(64))); /* the consumer's line */
	struct cds_wfcq_tail tail __attribute__((aligned(64)));   /* the producers' line */
};

void queue_init(struct queue *q);
/* Wait-free. What the caller wrote before is seen by whoever pops the node. */
void queue_push(struct queue *q, struct queue_node *node);
/* Waits for a producer that is half way through its push. */
struct queue_node *queue_pop(struct queue *q);
/* By who may pop. A push that is half way through counts: the tail is what it moves first. */
static inline bool queue_is_empty(const struct queue *q)
{
	return __atomic_load_n(&q->tail.p, __ATOMIC_ACQUIRE) == &q->head.node;
}

#endif

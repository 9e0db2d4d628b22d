/* SPDX-License-Identifier: Apache-2.0
 *
 * liburcu's wait-free queue, called out of line, with its hand-over told to ThreadSanitizer (the
 * library's atomics are assembly that the sanitizer can't see).
 */
#include "server/queue.h"

#include <sched.h>

#include "base/clock.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define HANDOVER_RELEASE(p) __tsan_release(p)
#define HANDOVER_ACQUIRE(p) __tsan_acquire(p)
#else
#define HANDOVER_RELEASE(p) ((void)(p))
#define HANDOVER_ACQUIRE(p) ((void)(p))
#endif

enum { SPINS_BEFORE_YIELD = 128 };

void queue_init(struct queue *q)
{
	__cds_wfcq_init(&q->head, &q->tail);
}

void queue_push(struct queue *q, struct queue_node *node)
{
	cds_wfcq_node_init(&node->link);
	HANDOVER_RELEASE(node);
	cds_wfcq_enqueue(&q->head, &q->tail, &node->link);
}

struct queue_node *queue_pop(struct queue *q)
{
	for (unsigned spins = 0;; spins++) {
		struct cds_wfcq_node *n = __cds_wfcq_dequeue_nonblocking(&q->head, &q->tail);

		if (n && n != CDS_WFCQ_WOULDBLOCK) {
			HANDOVER_ACQUIRE(n);
			return (struct queue_node *)n;
		}
		/* A producer swapped the tail and has yet to link its node: a store away, unless
		 * it lost its CPU just there. */
		if (spins < SPINS_BEFORE_YIELD)
			cpu_relax();
		else
			sched_yield();
	}
}

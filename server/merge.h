/* SPDX-License-Identifier: Apache-2.0
 *
 * From what several trainers pushed to the gradients that are merged, and their factors.
 */
#ifndef GS_SERVER_MERGE_H
#define GS_SERVER_MERGE_H

#include "kernels/kern.h"
#include "server/server.h"
#include "server/session.h"

struct merge {
	struct kern_grads grads;
	enum wire_reduce reduce;
	bool scaled;    /* some factor is not 1 */
	double weights; /* their sum */
	const void *data[SRV_MAX_TRAINERS];
	float factor[SRV_MAX_TRAINERS];
};

/* An empty one; then the gradients in rank order, of so many samples and so many times too large;
 * then merge.grads holds if any were added. */
void merge_begin(struct merge *m, enum wire_reduce reduce, enum kern_dtype dtype);
void merge_add(struct merge *m, const void *data, float weight, float scale);
void merge_end(struct merge *m);

static inline void merge_slot(struct merge *m, const struct slot *slot)
{
	merge_add(m, slot->data, slot->weight, slot->scale);
}

#endif

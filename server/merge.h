/* SPDX-License-Identifier: Apache-2.0
 *
 * From what several trainers pushed to the gradients that are merged, and their factors. Here and not
 * in a file of its own, for it is done for every gradient.
 */
#ifndef GS_SERVER_MERGE_H
#define GS_SERVER_MERGE_H

#include <string.h>

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
static inline void merge_begin(struct merge *m, enum wire_reduce reduce, enum kern_dtype dtype)
{
	m->grads = (struct kern_grads){.data = m->data, .dtype = dtype};
	m->reduce = reduce;
	m->scaled = false;
	m->weights = 0;
}

/* Of the bits: nearly always they are. */
static inline bool merge_is_one(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits == 0x3f800000;
}

static inline void merge_add(struct merge *m, const void *data, float weight, float scale)
{
	double samples = 1;
	float factor = 1;

	if (__builtin_expect(!merge_is_one(weight) || !merge_is_one(scale), false)) {
		if (m->reduce == WIRE_WEIGHTED)
			samples = (double)weight;
		factor = (float)(samples / (double)scale);
		m->scaled |= factor != 1;
	}
	m->data[m->grads.n] = data;
	m->factor[m->grads.n] = factor;
	m->weights += samples;
	m->grads.n++;
}

static inline void merge_end(struct merge *m)
{
	m->grads.factor = m->scaled ? m->factor : NULL;
	if (m->reduce == WIRE_SUM)
		m->grads.scale = 1;
	else if (m->reduce == WIRE_MEAN)
		m->grads.scale = 1.0f / (float)m->grads.n;
	else
		m->grads.scale = (float)(1 / m->weights);
}

static inline void merge_slot(struct merge *m, const struct slot *slot)
{
	merge_add(m, slot->data, slot->weight, slot->scale);
}

#endif

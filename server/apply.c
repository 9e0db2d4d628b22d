/* SPDX-License-Identifier: Apache-2.0
 *
 * Updating a block in place, under its version word.
 */
#include "server/apply.h"

#include <string.h>

/* Readers look at the version word before and after what they read (a sequence lock): odd, or
 * changed, means that they may have seen parts of two versions. */
static void publish_begin(struct block *b)
{
	uint64_t v = atomic_load_explicit(b->version, memory_order_relaxed);

	atomic_store_explicit(b->version, v + 1, memory_order_relaxed);
	/* The odd word is seen before any new weight is. */
	atomic_thread_fence(memory_order_release);
}

static void publish_end(struct block *b)
{
	uint64_t v = atomic_load_explicit(b->version, memory_order_relaxed);

	/* Release: all new weights are seen before the even word is. */
	atomic_store_explicit(b->version, v + 1, memory_order_release);
}

void apply_gradients(struct block *b, const float *const *grads, uint32_t n)
{
	struct param *p = b->param;
	float *state[TABLE_MAX_STATE];

	for (unsigned i = 0; i < kern_opt_arrays(&p->opt); i++)
		state[i] = p->state[i] + b->first;
	publish_begin(b);
	kern_apply(&p->opt, p->weights + b->first, state, grads, n, b->elems);
	publish_end(b);
}

void apply_values(struct block *b, const float *values)
{
	/* Not an update: nobody reads weights before they are all there. */
	memcpy(b->param->weights + b->first, values, block_bytes(b));
}

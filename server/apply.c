/* SPDX-License-Identifier: Apache-2.0
 *
 * Updating a block in place, under its version word.
 */
#include "server/apply.h"

#include <string.h>

/* Readers look at the version word before and after what they read (a sequence lock): odd, or
 * changed, means that they may have seen parts of two versions. */
void apply_begin(struct block *b)
{
	uint64_t v = atomic_load_explicit(b->version, memory_order_relaxed);

	if (__builtin_expect(b->param->snapshot.active, false))
		snapshot_block(b);
	atomic_store_explicit(b->version, v + 1, memory_order_relaxed);
	/* The odd word is seen before any new weight is. */
	atomic_thread_fence(memory_order_release);
}

void apply_end(struct block *b)
{
	uint64_t v = atomic_load_explicit(b->version, memory_order_relaxed);

	/* Release: all new weights are seen before the even word is. */
	atomic_store_explicit(b->version, v + 1, memory_order_release);
}

bool apply_gradients(struct block *b, struct kern_step *step, const struct kern_grads *g)
{
	struct param *p = b->param;
	float *state[KERN_STATE_MAX];
	bool nonfinite;

	for (unsigned i = 0; i < p->arrays; i++)
		state[i] = p->state[i] + b->first;
	apply_begin(b);
	nonfinite = kern_apply(&p->opt, step, g, p->weights + b->first, state, b->elems);
	apply_end(b);
	return nonfinite;
}

bool apply_neighbours(struct block *first, uint32_t n, uint64_t elems, struct kern_step *step,
		      const struct kern_grads *g)
{
	_Atomic uint64_t *version = first->version;
	struct param *p = first->param;
	uint64_t v = atomic_load_explicit(version, memory_order_relaxed);
	bool nonfinite;

	/* As apply_begin and apply_end, which are of one. */
	for (uint32_t i = 0; i < n; i++)
		atomic_store_explicit(&version[i], v + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	nonfinite = kern_apply(&p->opt, step, g, p->weights, p->state, elems);
	for (uint32_t i = 0; i < n; i++)
		atomic_store_explicit(&version[i], v + 2, memory_order_release);
	return nonfinite;
}

static void take_plane(float *w, enum apply_plane plane, const uint16_t *half, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits = 0;

		if (plane == APPLY_LOWER)
			memcpy(&bits, &w[i], sizeof(bits));
		bits |= plane == APPLY_LOWER ? half[i] : (uint32_t)half[i] << 16;
		memcpy(&w[i], &bits, sizeof(bits));
	}
}

void apply_values(struct block *b, enum apply_plane plane, const void *values)
{
	float *w = b->param->weights + b->first;

	/* Not an update: nobody reads weights before they are all there. */
	if (plane == APPLY_ALL)
		memcpy(w, values, b->elems * sizeof(float));
	else
		take_plane(w, plane, values, b->elems);
	if (param_has_copy(b->param))
		kern_narrow(param_weight_type(b->param), w, block_published(b), b->elems);
}

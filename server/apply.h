/* SPDX-License-Identifier: Apache-2.0
 *
 * Updating a block in place, under its version word. Only the parameter's actor calls these.
 */
#ifndef GS_SERVER_APPLY_H
#define GS_SERVER_APPLY_H

#include "server/table.h"

/* The next step of some weights, at the rate that holds at this clock (kernels/schedule.h): update number
 * t of them, whose copy for trainers is `published`. */
static inline struct kern_step apply_step_of(const struct param *p, uint64_t t, uint64_t clock,
					     void *published)
{
	return (struct kern_step){
	    .t = t,
	    .lr = (float)(p->steady ? schedule_bounded(p->lr)
				    : schedule_rate(&p->schedule, p->lr, clock)),
	    .clip = 1,
	    .ratio = 1,
	    .copy_dtype = param_weight_type(p),
	    .copy = param_has_copy(p) ? published : NULL,
	};
}

/* The same of a block. */
static inline struct kern_step apply_step(const struct block *b, uint64_t clock)
{
	return apply_step_of(b->param, block_updates(b) + 1, clock, block_published(b));
}

/* Takes it, with gradients whose element 0 is the block's first. True: they came to an infinity or
 * a NaN somewhere. */
bool apply_gradients(struct block *b, struct kern_step *step, const struct kern_grads *g);

/* The same of n parameters of one block each, which have seen as many updates: of `elems` elements in
 * all, which lie one behind the other, as do the gradients. Nothing of them is left to be copied for a
 * snapshot. */
bool apply_neighbours(struct block *first, uint32_t n, uint64_t elems, struct kern_step *step,
		      const struct kern_grads *g);

/* Parts of a block's initial weights: all of it, or the upper and then the lower halves of its
 * floats, which fit a slot of a 16-bit type. */
enum apply_plane { APPLY_ALL, APPLY_UPPER, APPLY_LOWER };
void apply_values(struct block *b, enum apply_plane plane, const void *values);

/* Around writing any of a block's weights. */
void apply_begin(struct block *b);
void apply_end(struct block *b);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A step on its way from the public calls to the loops of the instruction set in use: what is the
 * same for all of its tiles.
 */
#ifndef GS_KERNELS_STEP_H
#define GS_KERNELS_STEP_H

#include "kernels/isa.h"

struct work {
	const struct kern_loops *loops;
	const struct kern_rule *rule;
	const struct kern_opt *opt;
	const struct kern_step *step;
	kern_loop_fn *loop;
	unsigned arrays;
	bool adjusts; /* the gradient is changed before the rule sees it */
	float shrink; /* decoupled weight decay, of this step */
	float c[KERN_CONSTS_MAX];
};

void work_start(struct work *k, const struct kern_opt *opt, const struct kern_step *step);
/* Makes g, of w, what the rule sees; both begin with element `at` of the weights that the step's
 * backup goes with. */
void work_adjust(const struct work *k, size_t at, const float *w, float *g, size_t len);
/* The rule's loop over elements that begin so, and the copy of the new weights. True: g holds an
 * infinity or a NaN. */
bool work_update(const struct work *k, size_t at, float *w, float *const *state, const float *g,
		 size_t len);

/* The lanes' sum. */
double lanes_sum(const double lane[KERN_LANES]);

#endif

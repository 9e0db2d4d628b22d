/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_step_pull and gs_step_view under way: what the two ways, through mapped memory and over a network,
 * share. All with the lock held.
 */
#ifndef GS_TRAINER_STEP_PULL_H
#define GS_TRAINER_STEP_PULL_H

#include "trainer/trainer.h"

struct step_pull {
	gs_trainer *t;
	struct pull pull; /* of a view without destinations */
	gs_view_fn *view; /* NULL: they are copied */
	void *ctx;
	uint64_t step;       /* that ends */
	uint32_t first;      /* of the list: what is before it is here, or can't move */
	uint32_t at;         /* mapped: where the next look begins */
	uint32_t left;       /* mapped: parameters that are not here whole */
	uint64_t unmoved;    /* mapped: bytes that are not here */
	uint64_t idle_since; /* clock_ns(); 0: something has moved */
	uint32_t nap_us;
};

/* The step is released. A breach shows as the trainer's error. */
bool step_pull_over(struct step_pull *r);
/* A block has moved: waiting begins anew. */
void step_pull_moved(struct step_pull *r);
/* None has: polls for `ns` while it is still in its spin time, else sleeps. Ends early when the step is
 * over. Lets go of the lock meanwhile. */
int step_pull_pause(struct step_pull *r, uint64_t ns);
/* Some of its blocks are not here, and would be seen to move. */
bool step_pull_may_move(const struct step_pull *r, const gs_param *p);
/* Block i, whose version word is this, is as the step leaves it. */
bool step_pull_has_moved(const gs_param *p, uint32_t i, uint64_t word);
/* Moves `first` on. False: nothing that is left would be seen to move. */
bool step_pull_skip_done(struct step_pull *r);

/* Over a network: before the release; after it. */
int step_wire_ahead(struct step_pull *r);
int step_wire_rest(struct step_pull *r);

#endif

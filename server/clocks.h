/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounded staleness as a pure state machine (Ho et al., "More Effective Distributed ML via a Stale
 * Synchronous Parallel Parameter Server", NIPS 2013): each rank has a clock, the steps that it has
 * ended; none may begin a step while it is more than `bound` steps ahead of the slowest.
 *
 * Invariants: 1. `slowest` is the least clock of the members, and never falls; 2. with n steps
 * ended, a rank may go on when n - slowest <= bound: so all that it may go past is slowest + bound.
 */
#ifndef GS_SERVER_CLOCKS_H
#define GS_SERVER_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct clocks {
	uint32_t ranks, start_at, bound;
	bool begun; /* start_at ranks have come, once */
	uint32_t members;
	uint64_t slowest; /* of the members; with none, of the last one */
	uint64_t *ended;  /* of each member */
	bool *member;
};

/* `ranks` in all; nobody's first step begins before `start_at` have come. -ENOMEM. */
int clocks_init(struct clocks *c, uint32_t ranks, uint32_t start_at, uint32_t bound);
void clocks_fini(struct clocks *c);

/* Each returns 0, or -EINVAL when the rank's state does not allow it (nothing changed then). A rank
 * that joins is as far as the slowest. */
int clocks_join(struct clocks *c, uint32_t rank);
/* One that was there before goes on from its own clock, if that is ahead: then it may have to wait
 * before it goes on (clocks_released). */
int clocks_return(struct clocks *c, uint32_t rank);
int clocks_pass(struct clocks *c, uint32_t rank, uint64_t step);
int clocks_leave(struct clocks *c, uint32_t rank);

/* The last step that the rank may go past, of those that it has ended. */
uint64_t clocks_released(const struct clocks *c, uint32_t rank);

#endif

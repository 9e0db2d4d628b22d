/* SPDX-License-Identifier: Apache-2.0
 *
 * The pace: the actor that keeps trainers together in ssp mode. The decisions are clocks.h's; here
 * they meet sessions.
 *
 * Gradients are applied as they come, as in async mode. A trainer's step has ended when its barrier
 * came and all that it pushed before is in the weights: so who goes past step k sees every update
 * of the steps up to k - K, of everybody.
 */
#ifndef GS_SERVER_PACE_H
#define GS_SERVER_PACE_H

#include <stdatomic.h>

#include "server/actor.h"
#include "server/clocks.h"

struct srv;
struct session;

struct pace {
	struct actor actor; /* first */
	struct srv *srv;
	struct clocks clocks;
	struct session **session; /* by rank */
	_Atomic uint64_t slowest; /* clocks.slowest, for srv_get_stats */
};

int pace_init(struct pace *pace, struct srv *srv, uint32_t trainers, uint32_t staleness);
void pace_fini(struct pace *pace);

#endif

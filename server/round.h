/* SPDX-License-Identifier: Apache-2.0
 *
 * The round: the actor that makes sync mode's steps out of barriers. The decisions are barrier.h's;
 * here they meet sessions and parameters.
 *
 * A step ends when its barrier is complete and every unit is *settled* (updated from the gradients
 * that came, or left alone when none did). A unit is a block, or a parameter whose update takes all
 * of it at once: whole ones and tables. `open` counts what is missing: one for the barrier, one for
 * each unit, one for each parameter that is told to settle; whoever takes it to zero ends the step.
 * Units that every member delivered settle as they come; the rest when the barrier is complete,
 * global ones after all of them were measured.
 *
 * Invariant: step, expected and open are those of step k+1 before the first trainer is told that k
 * is over; so a gradient of k+1 never meets the bookkeeping of k.
 */
#ifndef GS_SERVER_ROUND_H
#define GS_SERVER_ROUND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/actor.h"
#include "server/barrier.h"

struct srv;
struct session;

struct round {
	struct actor actor; /* first */
	struct srv *srv;
	struct barrier barrier;
	struct session **session;      /* by rank */
	bool ending;                   /* the barrier is complete, units are being settled */
	bool left_gradients;           /* a trainer left the step with gradients in it */
	struct item settled, measured; /* ITEM_SETTLED, ITEM_MEASURED */

	/* Of all global parameters; set before they are settled: */
	float global_clip; /* what their gradients are multiplied by */
	bool skip;         /* one of them was not finite, and they say that it counts */

	_Atomic uint64_t step;      /* being made; 0: none yet. Pollers and parameters read it */
	_Atomic uint32_t expected;  /* members when the step began */
	_Atomic uint32_t measuring; /* global parameters whose gradient is being measured */
	_Atomic uint64_t open __attribute__((aligned(64)));
};

int round_init(struct round *round, struct srv *srv, uint32_t trainers);
void round_fini(struct round *round);

static inline uint64_t round_step(struct round *round)
{
	return atomic_load_explicit(&round->step, memory_order_acquire);
}

static inline uint32_t round_expected(struct round *round)
{
	return atomic_load_explicit(&round->expected, memory_order_acquire);
}

/* One of what `open` counts is done. Any thread. */
void round_done_one(struct round *round);
/* A global parameter's gradient was measured. */
void round_measured_one(struct round *round);

#endif

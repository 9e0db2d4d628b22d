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
 * One whose connection is lost keeps its place where the policy waits (server.h, srv_loss), though its
 * session is gone from here: `expected` counts it, so no unit settles without it, and what it had
 * delivered stays. Who takes its rank takes its place.
 *
 * Invariant: step, expected and open are those of step k+1 before the first trainer is told that k
 * is over; so a gradient of k+1 never meets the bookkeeping of k.
 */
#ifndef GS_SERVER_ROUND_H
#define GS_SERVER_ROUND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/line.h"
#include "server/actor.h"
#include "server/barrier.h"

struct srv;
struct session;

/* Whom the step waits for. */
struct round_look {
	uint64_t step, first_passed;
	uint8_t *rank; /* enum barrier_rank of each */
};

struct round {
	struct actor actor; /* first */
	struct srv *srv;
	struct barrier barrier;
	struct session **session;      /* by rank */
	bool ending;                   /* the barrier is complete, units are being settled */
	bool cut_wanted;               /* a checkpoint waits for the end of the step */
	bool held;                     /* the step is over but for its end: a cut is to come first */
	bool over;                     /* the server ends: who is lost is given up at once */
	bool left_gradients;           /* a trainer left the step with gradients in it */
	uint64_t *pushed;              /* by rank: the last step with a gradient of one who is gone */
	struct item *give_up;          /* by rank: ITEM_GIVE_UP */
	struct item look, end;         /* ITEM_LOOK, ITEM_OVER */
	struct round_look seen;        /* of the last one, from its note on until the next is posted */
	struct item settled, measured; /* ITEM_SETTLED, ITEM_MEASURED */

	/* Of all global parameters; set before they are settled: */
	float global_clip; /* what their gradients are multiplied by */
	bool skip;         /* one of them was not finite, and they say that it counts */

	_Atomic uint64_t first_passed; /* clock_ns() of the step's first barrier, or of a return to it
					* since: none is so late as it seems; 0: none came */
	_Atomic uint32_t measuring; /* global parameters whose gradient is being measured */

	/* Written once a step, before it is open; pollers and parameters read them for each gradient. */
	_Atomic uint64_t step LINE_BEGINS; /* being made; 0: none yet */
	_Atomic uint32_t expected; /* members when the step began */

	_Atomic uint64_t open LINE_BEGINS;
};
_Static_assert(offsetof(struct round, step) % LINE == 0 && offsetof(struct round, open) % LINE == 0 &&
		   offsetof(struct round, expected) < offsetof(struct round, open),
	       "what is read for each gradient lies in no line that is written for each");

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

/* So much of what `open` counts is done. Any thread. */
void round_done(struct round *round, uint32_t n);
/* The rank is no longer waited for. Control, once for each loss. */
void round_give_up(struct round *round, uint32_t rank);
/* Nobody is waited for from here on, so that what the step holds of the lost comes free. Control, once. */
void round_over(struct round *round);
/* Asks for a look at the barrier: NOTE_LOOKED follows. Control, one at a time. */
void round_ask(struct round *round);
/* A global parameter's gradient was measured. */
void round_measured_one(struct round *round);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Joint packs: in sync mode, packs of parameters of which no update has to know the whole gradient
 * first. Their parameters share a queue, and so a consumer: a parameter is worked on by one thread at
 * a time as ever, and who has one has all of its pack. So a gradient of all of them is one item, a
 * *delivery*, whatever their number; and what is alike and lies one behind the other in memory (slots,
 * weights, state) is updated in one pass.
 *
 * A step in which all who deliver push the pack as one settles it as one. If any of its parameters is
 * pushed by itself, the pack is *loose* until the step is over: deliveries are taken apart into the
 * slots that they stand for, and each parameter settles as if there were no pack.
 *
 * Invariants:
 *  1. A slot of a parameter is in use if its own state says so or that of the delivery over it; never
 *     both, but for the moment in which a delivery is taken apart: then its own does first.
 *  2. In a loose step `by_rank` is empty; in any other the parameters' blocks hold nothing.
 *  3. A delivery that is queued or waits has one reference of its session's.
 */
#ifndef GS_SERVER_JOINT_H
#define GS_SERVER_JOINT_H

#include "server/param.h"

/* The lane and the delivery over a slot; of joint packs. */
static inline struct lane *joint_lane(const struct session *s, const struct pack *k)
{
	return &s->lane[k->id];
}

/* Where `singles` says that there is one. */
static inline struct lane *joint_lane_of(const struct session *s, const struct slot *slot)
{
	return joint_lane(s, s->table->block[slot->block].param->joint);
}

static inline struct delivery *joint_delivery(const struct session *s, const struct pack *k,
					      uint32_t slot)
{
	return &s->delivery[(size_t)k->id * s->table->slots + slot];
}

static inline void delivery_set_state(struct delivery *d, enum slot_state state)
{
	/* Release: as slot_set_state. */
	atomic_store_explicit(&d->state, (uint8_t)state, memory_order_release);
}

static inline bool delivery_is_free(const struct delivery *d)
{
	return atomic_load_explicit(&d->state, memory_order_acquire) == SLOT_FREE;
}

static inline uint64_t delivery_step(const struct delivery *d)
{
	return atomic_load_explicit(&d->step, memory_order_relaxed);
}

/* Sync: the step whose gradient a slot of any block last held, whichever way it came. */
uint64_t joint_slot_step(const struct session *s, const struct block *b, uint32_t slot);

/* Makes the pack joint, if it can be: before weights and sessions are there. -ENOMEM. */
int joint_make(struct srv *srv, struct table *t, struct pack *k);
void joint_destroy(struct pack *k);
/* The pack's actor. */
void joint_handle(struct actor *actor, struct item *item);
/* Something that runs go by has changed. The pack's actor. */
static inline void joint_forget_runs(struct pack *k)
{
	k->runs_known = false;
}

#endif

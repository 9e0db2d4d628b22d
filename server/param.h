/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter's actor: what its files offer each other.
 *
 *  param.c  what comes, and where it goes         whole.c  gradients that are used whole
 *  block.c  gradients that are used block by block          rows.h   tables
 *  joint.h  those of whole packs
 *
 * All of it runs in the parameter's actor.
 */
#ifndef GS_SERVER_PARAM_H
#define GS_SERVER_PARAM_H

#include "server/apply.h"
#include "server/internal.h"

static inline struct block *slot_block(const struct slot *slot)
{
	return &slot->session->table->block[slot->block];
}

static inline struct block *param_block(const struct param *p, uint32_t i)
{
	return &p->block[i];
}

/* The clock of the parameter's schedule: rounds that are over in sync mode, else updates. */
uint64_t param_clock(const struct param *p, const struct block *b);

/* What the gradients of a pack come to that is counted once for all of them: units that settled, slots
 * of this session that were freed. */
struct tally {
	struct session *session;
	uint32_t units, slots;
};

static inline void tally_begin(struct tally *tally, struct session *s)
{
	*tally = (struct tally){.session = s};
}

static inline void tally_end(const struct tally *tally)
{
	if (tally->units)
		round_done(&tally->session->srv->round, tally->units);
	if (tally->slots)
		session_put_many(tally->session, tally->slots);
}

static inline void param_units_settled(_Atomic uint64_t *settled, uint32_t n)
{
	atomic_store_explicit(settled, atomic_load_explicit(settled, memory_order_relaxed) + n,
			      memory_order_release);
}

/* A unit of the step is in the weights, or was left alone. `tally` here and below: NULL, there is none. */
static inline void param_unit_settled(struct param *p, struct tally *tally)
{
	param_units_settled(p->joint ? &p->joint->settled : &p->settled, 1);
	if (tally)
		tally->units++;
	else
		round_done(&p->srv->round, 1);
}

static inline void param_free_slot(struct slot *slot, struct tally *tally)
{
	if (!tally || slot->session != tally->session) {
		session_free_slot(slot);
		return;
	}
	slot_free(slot);
	tally->slots++;
}

/* The block is done with what these trainers delivered for the step. Frees their slots. */
static inline void param_free_block(struct block *b, struct tally *tally)
{
	uint32_t left = b->delivered;

	b->delivered = 0;
	for (struct slot **slot = b->by_rank; left; slot++) {
		if (!*slot)
			continue;
		param_free_slot(*slot, tally);
		*slot = NULL;
		left--;
	}
}

/* The slot was used up: free it and return its credit. */
void param_credit(struct slot *slot);
/* The same of a gradient, in async and ssp mode. */
void param_applied(struct slot *slot);

/* The slot's gradient holds an infinity or a NaN: its trainer is told, once for each push. */
void param_blame(struct slot *slot);

/* How many updates the gradient missed. */
void param_note_age(struct param *p, const struct slot *slot);

/* The weights that the slot's gradient is of (dc_lambda); NULL: not known. */
const float *param_backup(const struct slot *slot);

/* Does what any item asks of the parameter. */
void param_item(struct param *p, struct item *item);

void block_gradient(struct param *p, struct slot *slot, struct tally *tally);
void block_settle(struct param *p);

void whole_gradient(struct param *p, struct slot *slot);
void whole_measure(struct param *p);
void whole_settle(struct param *p);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that are used whole: where an update needs something of all the gradient first (its
 * norm, or that no element of it is an infinity or a NaN), so that nothing is ever half applied.
 *
 * A slot's blocks lie one behind the other, so a whole gradient is one array, and what is summed
 * over it does not depend on how the parameter was cut.
 *
 * Sync: when every member delivered all blocks, or the barrier is complete. A gradient of which
 * blocks are missing by then (its trainer died) is left out. Those of a `global` parameter are
 * measured first, and applied once the round knows what all of them came to.
 */
#include "server/merge.h"
#include "server/param.h"
#include "server/rows.h"

static struct slot *first_slot(const struct slot *slot)
{
	const struct session *s = slot->session;
	uint32_t slots = srv_table(s->srv)->slots, index = (uint32_t)(slot - s->slot) % slots;

	return &s->slot[(size_t)slot_block(slot)->param->place.first_block * slots + index];
}

/* The slot of the first block, if this rank delivered all of them and into one slot. */
static struct slot *whole_of(const struct param *p, uint32_t rank)
{
	struct slot *first = param_block(p, 0)->by_rank[rank];

	for (uint32_t i = 1; first && i < p->cut.blocks; i++) {
		const struct slot *slot = param_block(p, i)->by_rank[rank];

		if (!slot || first_slot(slot) != first)
			return NULL;
	}
	return first;
}

static bool is_nonfinite(const struct param *p, const struct slot *first)
{
	return kern_nonfinite(param_grad_type(p), first->data, p->cut.elems);
}

static bool is_bad(const struct param *p, const struct slot *first)
{
	return p->decl.nonfinite != WIRE_NONFINITE_APPLY && is_nonfinite(p, first);
}

/* The gradients that count, in rank order. True: one made the policy skip the update. */
static bool gather(const struct param *p, struct merge *m)
{
	bool skip = false;

	merge_begin(m, p->decl.reduce, param_grad_type(p));
	for (uint32_t r = 0; r < p->srv->opt.trainers; r++) {
		struct slot *first = whole_of(p, r);
		bool bad = first && is_bad(p, first);

		if (bad)
			param_blame(first);
		skip |= bad && p->decl.nonfinite == WIRE_NONFINITE_SKIP;
		if (first && !bad)
			merge_slot(m, first);
	}
	if (m->grads.n)
		merge_end(m);
	return skip;
}

/* What clip_norm multiplies the merged gradient by. */
static float own_clip(const struct param *p, const struct kern_grads *all)
{
	float limit = p->opt.common.clip_norm;

	return limit > 0 ? kern_clip(kern_norm2(all, p->cut.elems), limit) : 1;
}

/* The gradients of one step, already merged in order, into all blocks. True: they came to an
 * infinity or a NaN somewhere. */
static bool update(struct param *p, const struct kern_grads *all, float clip, uint64_t clock,
		   const float *backup)
{
	struct block *b = param_block(p, 0);
	struct kern_step step = apply_step(b, clock);
	const void *data[SRV_MAX_TRAINERS];
	struct kern_grads part = *all;
	bool nonfinite = false;

	step.clip = clip;
	step.backup = backup;
	/* It may change the state of all blocks. */
	if (kern_opt_prepares(&p->opt) && p->snapshot.active)
		snapshot_all(p);
	if (kern_opt_prepares(&p->opt))
		kern_prepare(&p->opt, &step, all, p->weights, p->state, p->cut.elems);
	part.data = data;
	for (uint32_t i = 0; i < p->cut.blocks; i++) {
		b = param_block(p, i);
		for (unsigned k = 0; k < all->n; k++)
			data[k] = (const uint8_t *)all->data[k] + b->first * kern_size(all->dtype);
		if (step.copy)
			step.copy = block_published(b);
		step.backup = backup ? backup + b->first : NULL;
		nonfinite |= apply_gradients(b, &step, &part);
	}
	return nonfinite;
}

/* ---- sync ------------------------------------------------------------------------------------ */

static void finish(struct param *p)
{
	for (uint32_t i = 0; i < p->cut.blocks; i++) {
		struct block *b = param_block(p, i);

		param_free_block(b, NULL);
		b->settled_step = round_step(&p->srv->round);
	}
	p->full = 0;
	p->measured = false;
	param_unit_settled(p, NULL);
}

/* clip_global_norm is over what clip_norm left. */
static void measure_norm(struct param *p, const struct kern_grads *all)
{
	p->clip = own_clip(p, all);
	if (p->opt.common.clip_global_norm > 0)
		p->norm2 = kern_norm2(all, p->cut.elems) * (double)p->clip * (double)p->clip;
}

void whole_measure(struct param *p)
{
	struct merge m;

	if (p->measured)
		return;
	p->measured = true;
	p->nonfinite = gather(p, &m);
	p->clip = 1;
	p->norm2 = 0;
	if (m.grads.n)
		measure_norm(p, &m.grads);
}

/* The update held an infinity or a NaN: whose was it? Rare, so each is read again. */
static void blame(const struct param *p)
{
	for (uint32_t r = 0; r < p->srv->opt.trainers; r++) {
		struct slot *first = whole_of(p, r);

		if (first && is_nonfinite(p, first))
			param_blame(first);
	}
}

static float sync_clip(const struct param *p, const struct kern_grads *all)
{
	if (!p->global)
		return own_clip(p, all);
	return p->opt.common.clip_global_norm > 0 ? p->clip * p->srv->round.global_clip : p->clip;
}

void whole_settle(struct param *p)
{
	struct round *round = &p->srv->round;
	bool skip = p->decl.nonfinite == WIRE_NONFINITE_SKIP && round->skip;
	struct merge m;

	if (param_block(p, 0)->settled_step == round_step(round))
		return;
	if (!skip) {
		gather(p, &m);
		if (m.grads.n &&
		    update(p, &m.grads, sync_clip(p, &m.grads), round_step(round) - 1, NULL))
			blame(p);
	}
	finish(p);
}

/* What an older session of the rank delivered of a gradient is not all of it, else it would not come
 * again: nothing of it counts any more. Once, at the first gradient that comes. */
static void drop_older(struct param *p, const struct session *s)
{
	struct part *part = &s->part[p - srv_table(p->srv)->param];

	if (part->entered)
		return;
	part->entered = true;
	for (uint32_t i = 0; i < p->cut.blocks; i++) {
		struct block *b = param_block(p, i);
		struct slot **mine = &b->by_rank[s->rank];

		if (!*mine || (*mine)->session == s)
			continue;
		p->full -= b->delivered == round_expected(&p->srv->round);
		session_free_slot(*mine);
		*mine = NULL;
		b->delivered--;
	}
}

static void sync_gradient(struct param *p, struct slot *slot)
{
	struct block *b = slot_block(slot);

	drop_older(p, slot->session);
	b->by_rank[slot->session->rank] = slot;
	if (++b->delivered < round_expected(&p->srv->round) || ++p->full < p->cut.blocks)
		return;
	if (p->global)
		whole_measure(p);
	else
		whole_settle(p);
}

/* ---- async ----------------------------------------------------------------------------------- */

static void apply_whole(struct param *p, struct slot *first)
{
	struct merge m;

	param_note_age(p, first);
	if (is_bad(p, first)) {
		param_blame(first);
		return;
	}
	merge_begin(&m, WIRE_SUM, param_grad_type(p));
	merge_slot(&m, first);
	merge_end(&m);
	if (update(p, &m.grads, own_clip(p, &m.grads), param_clock(p, param_block(p, 0)),
		   param_backup(first)) &&
	    is_nonfinite(p, first))
		param_blame(first);
}

/* Until the last block of a push has come, the others wait without a reference to the session: who
 * dies in the midst of a push leaves nothing behind. Nor does their step wait for them: a push whose
 * end comes behind a barrier is the next step's. */
static void await_rest(struct session *s)
{
	if (s->srv->opt.mode == SRV_SSP)
		session_settled_one(s);
	session_put(s);
}

static void async_gradient(struct param *p, struct slot *slot)
{
	struct session *s = slot->session;
	struct slot *first = first_slot(slot);
	uint32_t slots = srv_table(s->srv)->slots;

	if (++first->arrived < p->cut.blocks) {
		await_rest(s);
		return;
	}
	first->arrived = 0;
	session_get(s);
	apply_whole(p, first);
	for (uint32_t i = 0; i < p->cut.blocks; i++)
		ledger_count(&p->srv->ledger, s->rank, param_block(p, i)->id);
	for (uint32_t i = 0; i < p->cut.blocks; i++) {
		struct slot *each = first + (size_t)i * slots;

		if (each == slot) {
			param_applied(each);
			continue;
		}
		session_get(s); /* which it gave back as it came */
		param_credit(each);
	}
	session_put(s);
}

void whole_gradient(struct param *p, struct slot *slot)
{
	if (p->srv->opt.mode == SRV_SYNC)
		sync_gradient(p, slot);
	else
		async_gradient(p, slot);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that are used block by block, as they come.
 *
 * Async: each is an optimizer step of its own. Sync: it waits in its block until every member of
 * the step delivered, or until the barrier is complete; then one pass over all of them, in rank
 * order, so that the result does not depend on the order in which they came.
 */
#include "server/merge.h"
#include "server/param.h"

/* The pass found an infinity or a NaN: whose was it? Rare, so each is read again. */
static void blame(const struct block *b, struct slot *const *slot, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (slot[i] && kern_nonfinite(param_grad_type(b->param), slot[i]->data, b->elems))
			param_blame(slot[i]);
}

/* Ends the step for a block: one update from those that delivered, or nothing when nobody did. */
static void settle(struct param *p, struct block *b, uint64_t step, struct tally *tally)
{
	if (b->delivered) {
		struct kern_step next = apply_step(b, step - 1);
		uint32_t left = b->delivered;
		struct merge m;

		merge_begin(&m, (enum wire_reduce)p->reduce, param_grad_type(p));
		for (struct slot **slot = b->by_rank; left; slot++)
			if (*slot) {
				merge_slot(&m, *slot);
				left--;
			}
		merge_end(&m);
		if (apply_gradients(b, &next, &m.grads))
			blame(b, b->by_rank, p->srv->opt.trainers);
	}
	param_free_block(b, tally);
	b->settled_step = step;
	param_unit_settled(p, tally);
}

static void sync_gradient(struct param *p, struct slot *slot, struct tally *tally)
{
	struct block *b = slot_block(slot);

	b->by_rank[slot->session->rank] = slot;
	if (++b->delivered == round_expected(&p->srv->round))
		settle(p, b, slot_step(slot), tally);
}

static void async_gradient(struct param *p, struct slot *slot)
{
	struct block *b = slot_block(slot);
	struct kern_step step = apply_step(b, param_clock(p, b));
	struct merge m;

	if (b->first == 0)
		param_note_age(p, slot);
	merge_begin(&m, WIRE_SUM, param_grad_type(p));
	merge_slot(&m, slot);
	merge_end(&m);
	step.backup = param_backup(slot);
	if (apply_gradients(b, &step, &m.grads))
		blame(b, &slot, 1);
	ledger_count(&p->srv->ledger, slot->session->rank, b->id);
	param_applied(slot);
}

void block_gradient(struct param *p, struct slot *slot, struct tally *tally)
{
	if (p->srv->opt.mode == SRV_SYNC)
		sync_gradient(p, slot, tally);
	else
		async_gradient(p, slot);
}

/* The barrier is complete: nothing more will come for this step. */
void block_settle(struct param *p)
{
	uint64_t step = round_step(&p->srv->round);

	for (uint32_t i = 0; i < p->cut.blocks; i++) {
		struct block *b = param_block(p, i);

		if (b->settled_step < step)
			settle(p, b, step, NULL);
	}
}

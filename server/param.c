/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter's actor: what happens to the gradients that come out of its queue.
 *
 * Async: each is an optimizer step of its own. Sync: it waits in its block until every member of
 * the step delivered, or until the barrier is complete; then one pass over all of them, in rank
 * order, so that the result does not depend on the order in which they came.
 */
#include "server/apply.h"
#include "server/internal.h"

static struct block *block_of(const struct slot *slot)
{
	return &srv_table(slot->session->srv)->block[slot->block];
}

static void param_settled(struct param *p, struct block *b, uint64_t step)
{
	b->settled_step = step;
	b->delivered = 0;
	atomic_store_explicit(&p->settled,
			      atomic_load_explicit(&p->settled, memory_order_relaxed) + 1,
			      memory_order_release);
	round_done_one(&p->srv->round);
}

/* Ends the step for a block: the mean over those that delivered, or nothing when nobody did. */
static void settle(struct param *p, struct block *b, uint64_t step)
{
	const float *grads[SRV_MAX_TRAINERS];
	uint32_t ranks = p->srv->opt.trainers, n = 0;

	for (uint32_t r = 0; b->delivered && r < ranks; r++)
		if (b->by_rank[r])
			grads[n++] = b->by_rank[r]->data;
	if (n)
		apply_gradients(b, grads, n);
	for (uint32_t r = 0; n && r < ranks; r++) {
		if (b->by_rank[r])
			session_free_slot(b->by_rank[r]);
		b->by_rank[r] = NULL;
	}
	param_settled(p, b, step);
}

static void sync_gradient(struct param *p, struct slot *slot)
{
	struct block *b = block_of(slot);

	b->by_rank[slot->session->rank] = slot;
	if (++b->delivered == round_expected(&p->srv->round))
		settle(p, b, slot->step);
}

static void async_gradient(struct slot *slot)
{
	struct session *s = slot->session;
	bool notify = slot->notify;

	apply_gradients(block_of(slot), &slot->data, 1);
	/* Free before the credit: with it the trainer may fill the slot again. */
	session_get(s);
	session_free_slot(slot);
	session_credit(s, slot->block, notify);
	session_put(s);
}

static void initial_values(struct slot *slot)
{
	struct session *s = slot->session;
	struct block *b = block_of(slot);
	bool notify = slot->notify;

	apply_values(b, slot->data);
	if (!b->initialised) {
		b->initialised = true;
		atomic_fetch_sub(&srv_table(s->srv)->init_left, 1);
	}
	session_get(s);
	session_free_slot(slot);
	session_credit(s, b->id, notify);
	session_put(s);
}

/* The barrier is complete: nothing more will come for this step. */
static void settle_open_blocks(struct param *p)
{
	struct table *t = srv_table(p->srv);
	uint64_t step = round_step(&p->srv->round);

	for (uint32_t i = 0; i < p->cut.blocks; i++) {
		struct block *b = &t->block[p->place.first_block + i];

		if (b->settled_step < step)
			settle(p, b, step);
	}
	round_done_one(&p->srv->round);
}

void param_handle(struct actor *actor, struct item *item)
{
	struct param *p = (struct param *)actor;

	switch (item->kind) {
	case ITEM_GRAD:
		if (p->srv->opt.mode == SRV_SYNC)
			sync_gradient(p, (struct slot *)item);
		else
			async_gradient((struct slot *)item);
		break;
	case ITEM_INIT:
		initial_values((struct slot *)item);
		break;
	case ITEM_PULL:
		session_answer_pull((struct pull *)item);
		break;
	case ITEM_CREDIT:
		session_retry_credit((struct credit *)item);
		break;
	case ITEM_SETTLE:
		settle_open_blocks(p);
		break;
	default: /* the round's kinds are never posted here */
		__builtin_unreachable();
	}
}

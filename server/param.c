/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter's actor: what comes out of its queue, and where it goes.
 */
#include "server/param.h"

#include <string.h>

#include "proto/imm.h"
#include "server/rows.h"

uint64_t param_clock(const struct param *p, const struct block *b)
{
	return p->srv->opt.mode == SRV_SYNC ? round_step(&p->srv->round) - 1 : block_updates(b);
}

/* Free before the credit: with it the trainer may fill the slot again. The slot's reference keeps the
 * session until the caller drops it. */
static void free_and_credit(struct slot *slot)
{
	struct param *p = slot_block(slot)->param;
	bool notify = slot->notify, packed = slot->packed;

	slot_free(slot);
	if (packed) {
		/* The block may be in it, and is not to be parked twice. */
		session_end_credits(&p->credits);
		session_credit_packed(slot->session, slot->block);
	} else {
		session_credit(slot->session, slot->block, notify, &p->credits, p->longest_run);
	}
}

void param_credit(struct slot *slot)
{
	struct session *s = slot->session;

	free_and_credit(slot);
	session_put(s);
}

void param_applied(struct slot *slot)
{
	struct session *s = slot->session;

	free_and_credit(slot);
	if (s->srv->opt.mode == SRV_SSP)
		session_settled_one(s);
	session_put(s);
}

void param_blame(struct slot *slot)
{
	const struct param *p = slot_block(slot)->param;
	struct slot *first;

	first = slot - (size_t)(slot->block - p->place.first_block) * srv_table(p->srv)->slots;
	if (first->blamed == slot->push)
		return;
	first->blamed = slot->push;
	session_count(slot->session, SESSION_NONFINITE);
}

/* ---- how old gradients are ------------------------------------------------------------------- */

void param_note_age(struct param *p, const struct slot *slot)
{
	uint64_t updates = block_updates(slot_block(slot));
	uint64_t seen = slot->seen ? slot->seen : slot->session->pull[slot->block].seen;

	if (!seen || seen - 1 > updates)
		return;
	ages_count(&p->ages, updates - (seen - 1));
	ages_count(&slot->session->ages, updates - (seen - 1));
}

const float *param_backup(const struct slot *slot)
{
	const struct session *s = slot->session;
	const struct block *b = slot_block(slot);

	/* The trainer pulled before it pushed, or there is nothing to compensate for. */
	if (!s->backup || b->param->opt.common.dc_lambda == 0 || !s->pull[slot->block].seen)
		return NULL;
	return (const float *)(const void *)(s->backup + b->param->backup_off) + b->first;
}

/* Before a pull is answered: this is what the trainer's next gradient is of. */
static void keep_backup(const struct pull *pull)
{
	const struct session *s = pull->session;
	const struct block *b = &srv_table(s->srv)->block[pull->block];
	const struct param *p = b->param;

	if (p->opt.common.dc_lambda > 0)
		memcpy((float *)(void *)(s->backup + p->backup_off) + b->first,
		       p->weights + b->first, b->elems * sizeof(float));
}

static void answer_pull(struct pull *pull)
{
	const struct block *b = &srv_table(pull->session->srv)->block[pull->block];

	if (is_table(b->param)) {
		rows_pull(b->param, pull);
		return;
	}
	session_end_credits(&b->param->credits);
	pull->seen = 1 + block_updates(b);
	keep_backup(pull);
	session_answer_pull(pull, &(struct answer){
				      .offset = b->param->place.landing_off +
						b->first * kern_size(param_weight_type(b->param)),
				      .len = block_weight_bytes(b),
				      .imm = imm_block(IMM_PULLED, b->id, 0, false),
				      .source = block_published(b),
				  });
}

/* ---- what else comes ------------------------------------------------------------------------- */

static void initial_values(struct slot *slot)
{
	struct session *s = slot->session;
	struct block *b = slot_block(slot);
	enum apply_plane plane = APPLY_ALL;

	if (b->param->decl.grad_type != WIRE_F32)
		plane = s->pull[b->id].planes++ % 2 ? APPLY_LOWER : APPLY_UPPER;
	apply_values(b, plane, slot->data);
	if (!b->initialised && plane != APPLY_UPPER) {
		b->initialised = true;
		atomic_fetch_sub(&srv_table(s->srv)->init_left, 1);
	}
	param_credit(slot);
}

static void set_rate(struct param *p, struct rate *rate)
{
	struct session *s = rate->session;

	p->lr = rate->lr;
	inbox_post(&s->srv->inbox, &s->rate_note); /* with the item's reference */
}

static void gradient(struct param *p, struct slot *slot)
{
	if (is_table(p))
		rows_gradient(p, slot);
	else if (p->whole)
		whole_gradient(p, slot);
	else
		block_gradient(p, slot, NULL);
}

static void settle(struct param *p)
{
	if (is_table(p))
		rows_settle(p);
	else if (p->whole)
		whole_settle(p);
	else
		block_settle(p);
	round_done(&p->srv->round, 1);
}

void param_handle(struct actor *actor, struct item *item)
{
	struct param *p = (struct param *)actor;

	if (__builtin_expect(item->kind == ITEM_GRAD, true))
		gradient(p, (struct slot *)item);
	else
		param_item(p, item);
}

void param_item(struct param *p, struct item *item)
{
	switch (item->kind) {
	case ITEM_GRAD:
		gradient(p, (struct slot *)item);
		break;
	case ITEM_INIT:
		initial_values((struct slot *)item);
		break;
	case ITEM_PULL:
		answer_pull((struct pull *)item);
		break;
	case ITEM_CREDIT:
		session_retry_credit((struct credit *)item);
		break;
	case ITEM_RATE:
		set_rate(p, (struct rate *)item);
		break;
	case ITEM_MEASURE:
		if (is_table(p))
			rows_measure(p);
		else
			whole_measure(p);
		round_measured_one(&p->srv->round);
		break;
	case ITEM_SETTLE:
		settle(p);
		break;
	case ITEM_SNAPSHOT:
		snapshot_item(p);
		break;
	default: /* the round's kinds are never posted here */
		__builtin_unreachable();
	}
}

void param_rest(struct actor *actor)
{
	session_end_credits(&((struct param *)actor)->credits);
}

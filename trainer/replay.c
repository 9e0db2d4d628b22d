/* SPDX-License-Identifier: Apache-2.0
 *
 * The server goes on with this trainer: what was pushed and had not arrived is sent again, out of
 * the slots of the connection that was lost. What is sent again is what the kept words lack; what
 * they have and this trainer did not make (the call failed) is left out when it is pushed again.
 *
 * Invariants:
 *  1. What may have to be sent again is in the old slots: a slot is used again only once the server
 *     is done with what was in it. Kept words that say otherwise are a breach.
 *     (A push that was lent lies in the program's memory, which stays as it is until the program
 *     heard that it is applied: lend.c. It is copied into the new slot.)
 *  2. Old slots and heads lie in the server's memory over shm: a head is copied, then checked.
 *  3. Nothing that it begins with is changed before all is sent, so that a connection that fails in
 * the midst of it can be followed by another.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

static bool same_layout(const gs_trainer *t)
{
	const struct grant *a = &t->old.grant, *b = &t->link.grant;

	if (a->n != b->n || a->slots != b->slots || a->blocks != b->blocks)
		return false;
	for (uint32_t i = 0; i < a->n; i++) {
		if (a->place[i].block_elems != b->place[i].block_elems)
			return false;
	}
	return true;
}

/* ---- what is to be sent again ---------------------------------------------------------------- */

static int check_most(const gs_param *p)
{
	const gs_trainer *t = p->t;

	for (uint32_t i = 0; i < param_words(p); i++) {
		uint32_t b = p->first_block + i;

		if (t->link.kept[b] > p->begun && t->link.kept[b] > t->old.kept[b])
			return err_set(EPROTO, "block %u: it has %llu pushes of %llu", b,
				       (unsigned long long)t->link.kept[b],
				       (unsigned long long)p->begun);
	}
	return 0;
}

static bool lacks_any(const gs_param *p)
{
	for (uint32_t i = 0; i < param_words(p); i++) {
		if (!p->t->link.skip[p->first_block + i])
			return true;
	}
	return false;
}

/* How many of the last pushes that were made. */
static uint64_t count_lacking(const gs_param *p)
{
	const gs_trainer *t = p->t;

	if (!trainer_is_sync(t))
		return p->made > p->out.base ? p->made - p->out.base : 0;
	return p->made_step == t->step && t->first_step == t->step && lacks_any(p);
}

/* Where the last n pushes that were made begin, in the numbers of the old connection. */
static int find_first(const gs_param *p, uint64_t n, uint64_t *out)
{
	const gs_trainer *t = p->t;
	uint64_t first = p->old.end;

	for (uint64_t i = 0; i < n; i++) {
		if (first <= p->old.inits || first - 1 + t->old.slots < p->old.pushes)
			return err_set(EPROTO,
				       "parameter \"%s\": the server lacks %llu pushes that it had",
				       p->wire.name, (unsigned long long)n);
		if (param_is_table(p))
			first = p->old.span[credits_slot(first - 1, t->old.slots)].first;
		else
			first--;
	}
	if (n > 0 && first + t->old.slots < p->old.pushes)
		return err_set(EPROTO, "parameter \"%s\": the server lacks a push that it had",
			       p->wire.name);
	/* What it was lent for may be anything by now. */
	if (n > 0 && first < p->old.told)
		return err_set(EPROTO,
			       "parameter \"%s\": the server lacks a push that it said was applied",
			       p->wire.name);
	*out = first;
	return 0;
}

/* ---- sending --------------------------------------------------------------------------------- */

static const void *old_slot(const gs_param *p, uint64_t push)
{
	uint32_t slot = push_slot_index(&p->old, push, p->t->old.slots);

	if (p->old.lent[slot].at)
		return p->old.lent[slot].at;
	return p->old.ring + slot * p->old.stride;
}

static int send_again(gs_param *p, uint64_t from)
{
	uint32_t slot = push_slot_index(&p->old, from, p->t->old.slots);
	struct layout_push_head head = *out_head(&p->old, slot);
	uint64_t push = p->out.pushes, row = param_is_table(p) ? param_dim(p) * p->grad_size : 0;

	atomic_signal_fence(memory_order_seq_cst); /* what is checked is the copy */
	if (param_is_table(p) && head.rows > p->wire.slot_rows)
		return err_set(EPROTO, "table \"%s\": a head of %u rows; a slot has %u at most",
			       p->wire.name, head.rows, p->wire.slot_rows);
	memcpy(push_slot(p, push), old_slot(p, from),
	       param_is_table(p) ? layout_slot_bytes(head.rows, row) : p->elems * p->grad_size);
	p->out.pushes++;
	return param_is_table(p) ? rows_post(p, push, &head) : push_again(p, push, &head);
}

/* Pieces belong together as they did. */
static void move_span(gs_param *p, uint64_t from, uint64_t first)
{
	gs_trainer *t = p->t;
	const struct span *old = &p->old.span[credits_slot(from, t->old.slots)];

	p->out.span[credits_slot(from - first, t->link.slots)] =
	    (struct span){old->first - first, old->end - first};
}

static int replay_param(gs_param *p)
{
	uint64_t first = 0, n;
	int rc = trainer_is_sync(p->t) ? 0 : check_most(p);

	if (rc < 0)
		return trainer_breach(p->t);
	n = count_lacking(p);
	if (find_first(p, n, &first) < 0)
		return trainer_breach(p->t);
	for (uint64_t from = first; rc == 0 && from < p->old.end; from++) {
		if (param_is_table(p))
			move_span(p, from, first);
		rc = send_again(p, from);
		if (rc == -EPROTO)
			rc = trainer_breach(p->t);
	}
	p->out.end = p->out.pushes;
	return rc;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* In ssp mode who comes back is as far as the slowest; in sync mode a step is made together. */
static int check_step(const gs_trainer *t)
{
	bool over = t->barrier && t->first_step == t->step + 1;

	if (!trainer_is_sync(t) || t->first_step == t->step || over)
		return 0;
	return err_set(EPROTO, "it goes on with step %llu; this trainer is in %llu",
		       (unsigned long long)t->first_step, (unsigned long long)t->step);
}

/* A step whose barrier was on its way may be over meanwhile: gs_step_wait has yet to say so. */
static void settle_step(gs_trainer *t)
{
	t->posted = t->goes_on = t->barrier;
	if (t->welcome.mode == WIRE_ASYNC || t->first_step == t->step)
		return;
	t->step = t->first_step - t->posted;
	t->released = t->posted ? t->step : 0;
}

int replay(gs_trainer *t)
{
	int rc = 0;

	if (!same_layout(t)) {
		err_set(EPROTO, "it goes on with this trainer, and with another layout");
		return trainer_breach(t);
	}
	if (check_step(t) < 0)
		return trainer_breach(t);
	for (uint32_t i = 0; rc == 0 && i < t->n_params; i++) {
		gs_param *p = t->param[i];

		p->push_step = p->made_step;
		rc = replay_param(p);
	}
	if (rc == 0 && t->barrier && t->first_step == t->step)
		rc = step_post_barrier(t);
	if (rc == 0)
		settle_step(t);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A table's actor: pieces of pushes become parts, complete parts become updates.
 *
 * Async, ssp: a complete part is an update of its own. Sync: it waits until every member of the
 * step delivered one, or until the barrier is complete; then all are merged in rank order, so that
 * the result does not depend on the order in which they came. A part of which pieces are missing by
 * then is left out.
 */
#include "server/rows.h"

#include <inttypes.h>
#include <string.h>

#include "server/merge.h"
#include "server/param.h"

static struct part *part_of(const struct slot *slot)
{
	struct session *s = slot->session;

	return &s->part[slot_block(slot)->param - srv_table(s->srv)->param];
}

static bool is_sync(const struct param *p)
{
	return p->srv->opt.mode == SRV_SYNC;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The first id that the table does not have; n when it has all. */
static uint32_t first_bad(const struct param *p, const int64_t *ids, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && row_exists(p, ids[i]))
		i++;
	return i;
}

/* What is left of a push of an earlier step is not continued. */
static void open_part(struct part *part, const struct slot *slot)
{
	if (part->step != slot_step(slot))
		rowset_clear(&part->set);
	part->step = slot_step(slot);
	part->weight = slot->weight;
	part->scale = slot->scale;
}

/* Merges a piece into its part, or nothing of it. */
static bool take_piece(struct param *p, struct part *part, const struct slot *slot)
{
	struct rows *r = p->rows;
	uint32_t n = slot->rows, bad;

	if (part->broken)
		return false;
	memcpy(r->ids, slot->data, n * sizeof(*r->ids));
	bad = first_bad(p, r->ids, n);
	if (bad < n) {
		part->broken = true;
		rowset_clear(&part->set);
		session_condemn(slot->session, WIRE_E_PROTOCOL,
				"table \"%s\": a gradient of row %" PRId64 "; it has %" PRIu64
				" rows",
				p->decl.name, r->ids[bad], p->decl.dim[0]);
		return false;
	}
	open_part(part, slot);
	rowset_add(&part->set, r->ids, n, param_grad_type(p),
		   (const uint8_t *)slot->data + n * sizeof(*r->ids), NULL);
	return true;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static bool is_nonfinite(const struct part *part)
{
	return kern_nonfinite(KERN_F32, part->set.value, part->set.n * part->set.dim);
}

/* The policy keeps it out of the weights. */
static bool is_rejected(const struct param *p, const struct part *part)
{
	if (p->decl.nonfinite == WIRE_NONFINITE_APPLY || !is_nonfinite(part))
		return false;
	session_count(part->session, SESSION_NONFINITE);
	return true;
}

int rows_touch(struct param *p, const int64_t *keys, uint32_t n, int64_t *refused)
{
	struct rows *r = p->rows;

	return keymap_touch(&r->keys, keys, n, r->updates, r->row, rows_begin_row, p, refused);
}

/* All its keys have rows, or are still to earn them. Refused, else, with its trainer told. */
static bool is_admitted(struct param *p, const struct part *part)
{
	int64_t key;

	if (!is_hashed(p) || rows_touch(p, part->set.id, part->set.n, &key) == 0)
		return true;
	session_refuse(part->session, (uint32_t)(p - srv_table(p->srv)->param), key);
	return false;
}

/* ---- async and ssp --------------------------------------------------------------------------- */

static void apply_part(struct param *p, struct part *part)
{
	if (part->set.n == 0 || is_rejected(p, part) || !is_admitted(p, part))
		return;
	if (part->scale != 1)
		rowset_scale(&part->set, (float)(1 / (double)part->scale));
	if (rows_update(p, &part->set, rows_own_clip(p, &part->set), p->rows->updates))
		session_count(part->session, SESSION_NONFINITE);
}

static void async_piece(struct param *p, struct slot *slot)
{
	struct part *part = part_of(slot);

	if (!slot->more) {
		apply_part(p, part);
		rowset_clear(&part->set);
		ledger_count(&p->srv->ledger, slot->session->rank, slot->block);
	}
	param_applied(slot);
}

/* ---- sync ------------------------------------------------------------------------------------ */

/* The parts that count, in rank order. True: one made the policy skip the update. */
static bool choose(struct param *p, struct merge *m)
{
	const struct rows *r = p->rows;
	bool skip = false;

	merge_begin(m, p->decl.reduce, KERN_F32);
	for (uint32_t rank = 0; rank < p->srv->opt.trainers; rank++) {
		const struct part *part = r->by_rank[rank];

		if (!part || part->set.n == 0)
			continue;
		if (is_rejected(p, part))
			skip |= p->decl.nonfinite == WIRE_NONFINITE_SKIP;
		else if (is_admitted(p, part))
			merge_add(m, &part->set, part->weight, part->scale);
	}
	if (m->grads.n)
		merge_end(m);
	return skip;
}

/* One part that is taken as it is need not be copied. */
static const struct rowset *merge_chosen(struct rows *r, const struct merge *m)
{
	if (m->grads.n == 0)
		return NULL;
	if (m->grads.n == 1 && !m->scaled && m->grads.scale == 1)
		return m->data[0];
	for (unsigned i = 0; i < m->grads.n; i++)
		rowset_merge(&r->total, m->data[i], m->factor[i]);
	if (m->grads.scale != 1)
		rowset_scale(&r->total, m->grads.scale);
	return &r->total;
}

/* The update of the step, as far as it is known; once a step. clip_global_norm is over what
 * clip_norm left. */
void rows_measure(struct param *p)
{
	const struct rowset *due;
	struct merge m;

	if (p->measured)
		return;
	p->measured = true;
	p->nonfinite = choose(p, &m);
	p->rows->due = due = merge_chosen(p->rows, &m);
	p->clip = due ? rows_own_clip(p, due) : 1;
	p->norm2 = 0;
	if (due && p->opt.common.clip_global_norm > 0)
		p->norm2 = rows_norm2(due) * (double)p->clip * (double)p->clip;
}

/* The update came to an infinity or a NaN, and is made: whose was it? */
static void blame(const struct param *p)
{
	for (uint32_t rank = 0; rank < p->srv->opt.trainers; rank++) {
		const struct part *part = p->rows->by_rank[rank];

		if (part && is_nonfinite(part))
			session_count(part->session, SESSION_NONFINITE);
	}
}

static void finish(struct param *p)
{
	struct rows *r = p->rows;

	for (uint32_t rank = 0; r->delivered && rank < p->srv->opt.trainers; rank++) {
		if (!r->by_rank[rank])
			continue;
		session_put(r->by_rank[rank]->session);
		r->by_rank[rank] = NULL;
	}
	rowset_clear(&r->total);
	r->delivered = 0;
	r->due = NULL;
	r->settled_step = round_step(&p->srv->round);
	p->measured = false;
	param_unit_settled(p, NULL);
}

void rows_settle(struct param *p)
{
	struct round *round = &p->srv->round;
	bool skip = p->decl.nonfinite == WIRE_NONFINITE_SKIP && round->skip;
	struct rows *r = p->rows;
	float clip;

	if (r->settled_step == round_step(round))
		return;
	rows_measure(p);
	clip = p->opt.common.clip_global_norm > 0 ? p->clip * round->global_clip : p->clip;
	if (r->due && !skip && rows_update(p, r->due, clip, round_step(round) - 1))
		blame(p);
	finish(p);
}

static void deliver(struct param *p, struct part *part)
{
	struct rows *r = p->rows;

	session_get(part->session);
	r->by_rank[part->session->rank] = part;
	if (++r->delivered < round_expected(&p->srv->round))
		return;
	if (p->global)
		rows_measure(p);
	else
		rows_settle(p);
}

static void sync_piece(struct param *p, struct slot *slot)
{
	struct part *part = part_of(slot);
	struct session *s = slot->session;
	bool last = !slot->more;

	/* Merged is as good as used: the slot is free before the step is over. */
	session_get(s);
	param_credit(slot);
	if (last)
		deliver(p, part);
	session_put(s);
}

void rows_gradient(struct param *p, struct slot *slot)
{
	if (!take_piece(p, part_of(slot), slot))
		session_free_slot(slot); /* its session ends: no credit */
	else if (is_sync(p))
		sync_piece(p, slot);
	else
		async_piece(p, slot);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of whole packs.
 */
#include "server/joint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "server/merge.h"

static struct table *table_of(const struct pack *k)
{
	return srv_table(k->first->srv);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool same_update(const struct param *a, const struct param *b)
{
	return kern_opt_same(&a->opt, &b->opt) && a->lr == b->lr &&
	       strcmp(a->decl.schedule, b->decl.schedule) == 0 && a->grad_type == b->grad_type &&
	       a->weight_type == b->weight_type && a->reduce == b->reduce;
}

/* So many elements behind, everywhere: then what pads one array pads all, and may be updated, too. */
static bool lies_behind(const struct param *a, const struct param *b)
{
	ptrdiff_t n = b->weights - a->weights;
	bool behind = b->place.slots_off - a->place.slots_off ==
			      (uint64_t)n * kern_size(param_grad_type(a)) &&
		      (uint8_t *)b->published - (uint8_t *)a->published ==
			      n * (ptrdiff_t)kern_size(param_weight_type(a));

	for (unsigned i = 0; i < a->arrays; i++)
		behind &= b->state[i] - a->state[i] == n;
	return behind;
}

static void find_runs(struct pack *k)
{
	k->runs_known = true;
	k->run_end[k->n - 1] = (uint16_t)k->n;
	for (uint32_t i = k->n - 1; i-- > 0;) {
		const struct param *a = &k->first[i], *b = &k->first[i + 1];

		k->run_end[i] = same_update(a, b) && lies_behind(a, b) ? k->run_end[i + 1]
								       : (uint16_t)(i + 1);
	}
}

/* Behind the last that parameter i's update takes along: of a run, those that have seen as many. */
static uint32_t end_of_run(const struct pack *k, uint32_t i)
{
	const _Atomic uint64_t *version = k->first->block->version;
	uint64_t v = atomic_load_explicit(&version[i], memory_order_relaxed);
	uint32_t end = i + 1;

	while (end < k->run_end[i] &&
	       atomic_load_explicit(&version[end], memory_order_relaxed) == v)
		end++;
	return end;
}

/* ---- updates --------------------------------------------------------------------------------- */

/* Of the first parameter's gradient to parameter i's. */
static uint64_t data_off(const struct pack *k, uint32_t i)
{
	return k->first[i].place.slots_off - k->first->place.slots_off;
}

static void merge_delivered(const struct pack *k, uint32_t i, struct merge *m)
{
	const struct param *p = &k->first[i];
	struct delivery **end = k->by_rank + p->srv->opt.trainers;

	merge_begin(m, (enum wire_reduce)p->reduce, param_grad_type(p));
	for (struct delivery **d = k->by_rank; m->grads.n < k->delivered && d < end; d++)
		if (*d)
			merge_add(m, (*d)->data + data_off(k, i), (*d)->weight, (*d)->scale);
	merge_end(m);
}

/* The pass found an infinity or a NaN: whose was it, and of which parameters? */
static void blame(const struct pack *k, uint32_t i, uint32_t end)
{
	uint32_t ranks = k->first->srv->opt.trainers;

	for (uint32_t r = 0; r < ranks; r++)
		for (uint32_t at = i; k->by_rank[r] && at < end; at++)
			if (kern_nonfinite(param_grad_type(&k->first[at]),
					   k->by_rank[r]->data + data_off(k, at),
					   k->first[at].cut.elems))
				session_count(k->by_rank[r]->session, SESSION_NONFINITE);
}

static void update_run(struct pack *k, uint32_t i, uint32_t end, uint64_t step)
{
	const struct param *last = &k->first[end - 1];
	struct block *b = k->first[i].block;
	struct kern_step next = apply_step(b, step - 1);
	uint64_t elems = (uint64_t)(last->weights - b->param->weights) + last->cut.elems;
	struct merge m;

	merge_delivered(k, i, &m);
	if (apply_neighbours(b, end - i, elems, &next, &m.grads))
		blame(k, i, end);
}

static void update(struct pack *k, uint64_t step)
{
	if (!k->runs_known)
		find_runs(k);
	for (uint32_t i = 0; k->snapshots && i < k->n; i++)
		if (k->first[i].snapshot.active)
			snapshot_block(k->first[i].block);
	for (uint32_t i = 0, end; i < k->n; i = end) {
		end = end_of_run(k, i);
		update_run(k, i, end, step);
	}
}

/* ---- as one ---------------------------------------------------------------------------------- */

static void free_deliveries(struct pack *k)
{
	struct delivery **end = k->by_rank + k->first->srv->opt.trainers;

	for (struct delivery **d = k->by_rank; k->delivered && d < end; d++) {
		if (!*d)
			continue;
		delivery_set_state(*d, SLOT_FREE);
		session_put((*d)->session);
		*d = NULL;
		k->delivered--;
	}
}

static void settle_as_one(struct pack *k, uint64_t step)
{
	if (k->delivered)
		update(k, step);
	free_deliveries(k);
	k->settled_step = step;
	param_units_settled(&k->settled, k->n);
	round_done(&k->first->srv->round, k->n);
}

/* ---- one by one ------------------------------------------------------------------------------ */

static void take_apart(struct pack *k, struct delivery *d)
{
	struct session *s = d->session;
	uint32_t slots = s->table->slots;
	uint32_t at = (uint32_t)(d - joint_delivery(s, k, 0));
	struct tally tally;

	session_get_many(s, k->n);
	atomic_fetch_add_explicit(&joint_lane(s, k)->singles, k->n, memory_order_relaxed);
	for (uint32_t i = 0; i < k->n; i++) {
		struct slot *slot = &s->slot[(size_t)(k->block + i) * slots + at];

		slot->weight = d->weight;
		slot->scale = d->scale;
		slot->push = delivery_step(d);
		slot->packed = true;
		atomic_store_explicit(&slot->step, slot->push, memory_order_relaxed);
		slot_set_state(slot, SLOT_QUEUED);
	}
	delivery_set_state(d, SLOT_FREE);
	tally_begin(&tally, s);
	for (uint32_t i = 0; i < k->n; i++)
		block_gradient(&k->first[i], &s->slot[(size_t)(k->block + i) * slots + at], &tally);
	tally_end(&tally);
	session_put(s);
}

/* What came as one is as if it had come one by one. */
static void loosen(struct pack *k, uint64_t step)
{
	struct delivery **end = k->by_rank + k->first->srv->opt.trainers;

	if (k->loose_step == step)
		return;
	k->loose_step = step;
	for (struct delivery **at = k->by_rank; k->delivered && at < end; at++) {
		struct delivery *d = *at;

		if (!d)
			continue;
		*at = NULL;
		k->delivered--;
		take_apart(k, d);
	}
}

/* ---- what comes ------------------------------------------------------------------------------ */

static void deliver(struct pack *k, struct delivery *d)
{
	uint64_t step = delivery_step(d);

	if (k->loose_step == step) {
		take_apart(k, d);
		return;
	}
	k->by_rank[d->session->rank] = d;
	if (++k->delivered == round_expected(&k->first->srv->round))
		settle_as_one(k, step);
}

/* The barrier is complete: nothing more will come for this step. */
static void settle(struct pack *k)
{
	struct round *r = &k->first->srv->round;
	uint64_t step = round_step(r);

	if (k->loose_step == step)
		for (uint32_t i = 0; i < k->n; i++)
			block_settle(&k->first[i]);
	else if (k->settled_step < step)
		settle_as_one(k, step);
	round_done(r, 1);
}

static struct param *param_of(const struct pack *k, struct item *item)
{
	switch (item->kind) {
	case ITEM_GRAD:
	case ITEM_INIT:
		return slot_block((struct slot *)item)->param;
	case ITEM_PULL:
		return table_of(k)->block[((struct pull *)item)->block].param;
	case ITEM_CREDIT:
		return table_of(k)->block[((struct credit *)item)->block].param;
	case ITEM_RATE:
		return &table_of(k)->param[((struct rate *)item)->param];
	case ITEM_SNAPSHOT:
		return (struct param *)(void *)((char *)item - offsetof(struct param, snapshot.item));
	default: /* nothing else is posted to one of a joint pack's */
		__builtin_unreachable();
	}
}

void joint_handle(struct actor *actor, struct item *item)
{
	struct pack *k = (struct pack *)actor;

	if (item->kind == ITEM_PACK) {
		deliver(k, (struct delivery *)item);
	} else if (item->kind == ITEM_SETTLE) {
		settle(k);
	} else {
		struct param *p = param_of(k, item);
		bool rate = item->kind == ITEM_RATE;

		if (item->kind == ITEM_GRAD)
			loosen(k, slot_step((struct slot *)item));
		param_item(p, item); /* the item may be gone with its session */
		if (rate)
			joint_forget_runs(k);
	}
}

/* ---- who looks on ---------------------------------------------------------------------------- */

uint64_t joint_slot_step(const struct session *s, const struct block *b, uint32_t i)
{
	uint64_t own = slot_step(&s->slot[(size_t)b->id * s->table->slots + i]), with = 0;

	if (b->param->joint)
		with = delivery_step(joint_delivery(s, b->param->joint, i));
	return own > with ? own : with;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What one gradient of all of them costs, and the last one, with which all trainers' are read. */
static struct turn_cost cost_of(const struct pack *k)
{
	struct turn_cost cost = {.pack = k->bytes,
				 .whole = turn_times(k->bytes, k->first->srv->opt.trainers)};

	for (uint32_t i = 0; i < k->n; i++) {
		const struct turn_cost *one = &k->first[i].actor.cost;

		cost.most = one->most > cost.most ? one->most : cost.most;
		cost.each = one->each > cost.each ? one->each : cost.each;
	}
	return cost;
}

int joint_make(struct srv *srv, struct table *t, struct pack *k)
{
	for (uint32_t i = 0; i < k->n; i++)
		if (!srv_is_sync(srv) || k->first[i].whole)
			return 0;
	k->run_end = calloc(k->n, sizeof(*k->run_end));
	k->by_rank = calloc(t->ranks, sizeof(*k->by_rank));
	if (!k->run_end || !k->by_rank)
		return err_set(ENOMEM, "no memory for packs of %u trainers", t->ranks);
	k->joint = true;
	actor_init(&k->actor, joint_handle, false);
	k->actor.cost = cost_of(k);
	k->settle = (struct item){.kind = ITEM_SETTLE, .home = &k->actor};
	for (uint32_t i = 0; i < k->n; i++) {
		struct param *p = &k->first[i];

		p->joint = k;
		p->home = &k->actor;
		p->longest_run = 1; /* nobody's rest: no credit is put off */
	}
	return 0;
}

void joint_destroy(struct pack *k)
{
	free(k->run_end);
	free(k->by_rank);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs as pollers take them.
 */
#include "server/packs.h"

#include "server/joint.h"

enum {
	/* Parameters of a pack. */
	AHEAD_SLOT = 16,
	AHEAD_HEAD = 8,
	AHEAD_PARAM = 4,
	AHEAD_DATA = 1,
	FETCH_BYTES = 1024, /* of each array: the processor finds the rest by itself */
};

/* ---- parameter by parameter ------------------------------------------------------------------ */

/* A pack's parameters lie far apart, and each has little to do: what the one after the next few will
 * need is on its way meanwhile. */
static void fetch_slot(const struct slot *slot)
{
	__builtin_prefetch(slot, 1);
	__builtin_prefetch((const char *)slot + 64, 1);
}

static void fetch_param(const struct param *p, const struct block *b)
{
	for (size_t off = offsetof(struct actor, pending); off < offsetof(struct param, place);
	     off += 64)
		__builtin_prefetch((const char *)p + off, 1);
	__builtin_prefetch(&p->snapshot.active);
	__builtin_prefetch(b, 1);
}

static void fetch_data(const struct param *p, const struct block *b, const struct slot *slot)
{
	uint64_t bytes = b->elems * sizeof(float);

	if (bytes > FETCH_BYTES)
		bytes = FETCH_BYTES;
	for (uint64_t at = 0; at < bytes; at += 64) {
		__builtin_prefetch((const char *)slot->data + at);
		__builtin_prefetch((const char *)p->weights + at, 1);
	}
	for (unsigned i = 0; i < p->arrays; i++)
		for (uint64_t at = 0; at < bytes; at += 64)
			__builtin_prefetch((const char *)p->state[i] + at, 1);
}

/* The slots of all of a pack, or none of them. */
static bool claim(struct session *s, const struct pack *pack, const struct imm *imm)
{
	const struct table *t = s->table;
	struct imm each = *imm;

	for (uint32_t i = 0; i < pack->n; i++) {
		struct slot *slot;

		if (i + AHEAD_SLOT < pack->n)
			fetch_slot(&s->slot[(size_t)(pack->block + i + AHEAD_SLOT) * t->slots +
					    imm->slot]);
		if (i + AHEAD_HEAD < pack->n)
			__builtin_prefetch(s->slot[(size_t)(pack->block + i + AHEAD_HEAD) * t->slots +
						   imm->slot].head);
		each.block = pack->block + i;
		slot = poller_slot(s, &each);
		if (!slot || !poller_head(s, slot))
			return false;
		if (srv_is_sync(s->srv) && !poller_is_first(s, slot))
			return false;
	}
	return true;
}

/* One of a pack's. Mostly its parameter is idle: then nothing goes through its queue. */
static void take_packed(struct session *s, struct param *p, struct slot *slot, struct tally *tally)
{
	if (p->whole || !sched_hold(&p->actor)) {
		poller_take_gradient(s, slot, true, false);
		return;
	}
	poller_mark_taken(s, slot, true);
	slot->notify = false;
	slot_set_state(slot, SLOT_QUEUED);
	block_gradient(p, slot, tally);
	sched_let_go(&s->srv->sched, &p->actor);
}

void packs_take(struct session *s, const struct pack *pack, const struct imm *imm)
{
	const struct table *t = s->table;
	struct tally tally;

	if (!claim(s, pack, imm))
		return;
	poller_count_taken(s, pack->n);
	session_get_many(s, pack->n);
	tally_begin(&tally, s);
	for (uint32_t i = 0; i < pack->n; i++) {
		size_t at = (size_t)(pack->block + i) * t->slots + imm->slot;

		if (i + AHEAD_PARAM < pack->n)
			fetch_param(&t->param[pack->param + i + AHEAD_PARAM],
				    &t->block[pack->block + i + AHEAD_PARAM]);
		if (i + AHEAD_DATA < pack->n)
			fetch_data(&t->param[pack->param + i + AHEAD_DATA],
				   &t->block[pack->block + i + AHEAD_DATA],
				   &s->slot[at + AHEAD_DATA * t->slots]);
		take_packed(s, &t->param[pack->param + i], &s->slot[at], &tally);
	}
	tally_end(&tally);
}

/* ---- as one ---------------------------------------------------------------------------------- */

/* Some of its parameters' slots are in use, or one came by itself: which, is to be told. */
static bool claim_each(struct session *s, const struct pack *pack, const struct imm *imm)
{
	struct imm each = *imm;
	struct slot *slot;

	for (uint32_t i = 0; i < pack->n; i++) {
		each.block = pack->block + i;
		slot = poller_slot(s, &each);
		if (!slot || !poller_is_first(s, slot))
			return false;
	}
	return true;
}

/* All of its slots, looking at each only where it may be in use. */
static struct delivery *claim_joint(struct session *s, const struct pack *pack, const struct imm *imm)
{
	const struct lane *lane = joint_lane(s, pack);
	struct imm first = *imm;
	struct delivery *d;
	struct slot *slot;

	first.block = pack->block;
	slot = poller_slot(s, &first);
	if (!slot || !poller_is_first(s, slot))
		return NULL;
	d = joint_delivery(s, pack, imm->slot);
	if ((lane->singles_step == s->posting ||
	     atomic_load_explicit(&lane->singles, memory_order_acquire)) &&
	    !claim_each(s, pack, imm))
		return NULL;
	return poller_factors(s, d->head, pack->block, &d->weight, &d->scale) ? d : NULL;
}

void packs_take_joint(struct session *s, const struct pack *pack, const struct imm *imm)
{
	struct delivery *d = claim_joint(s, pack, imm);

	if (!d)
		return;
	poller_count_taken(s, pack->n);
	session_get(s);
	joint_lane(s, pack)->step = s->posting;
	atomic_store_explicit(&d->step, s->posting, memory_order_relaxed);
	delivery_set_state(d, SLOT_QUEUED);
	srv_post(s->srv, d->item.home, &d->item);
}

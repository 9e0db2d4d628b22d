/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of several parameters in one call. Where the list has all of a pack one behind the other, in
 * any order, they go as one: their slots lie together, so one WRITE carries them (over shm, none), with
 * one immediate for the pack.
 *
 * A pack goes as one only if its parameters are in step with one another: the same slot is next for all
 * of them, and none has to be left out because the server has it from a connection before. Else each
 * goes by itself, as gs_push would send it.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

struct batch {
	gs_trainer *t;
	struct pack *pack;
	gs_param *const *param; /* pack->n of them */
	const void *const *grad;
	uint32_t slot;
};

/* ---- the list -------------------------------------------------------------------------------- */

static struct pack *pack_of(const gs_param *p)
{
	return p->pack ? &p->t->link.pack[p->pack - 1] : NULL;
}

/* The list goes on with all of a pack, as they were declared. */
static bool lists_pack(const gs_trainer *t, const struct pack *k, gs_param *const *p, uint32_t n)
{
	return k && k->n <= n && memcmp(p, &t->param[k->first], k->n * sizeof(gs_param *)) == 0;
}

/* Sync: nothing that was done in this step concerns some of the pack's parameters only. (In a connection's
 * first step something may have been done before.) */
static bool is_in_step(const gs_trainer *t, const struct pack *k)
{
	return trainer_is_sync(t) && t->step != t->first_step && k->apart != t->step;
}

static int check_one(gs_trainer *t, gs_param *p, const void *grad, uint32_t i)
{
	struct pack *k;

	if (!p || p->t != t)
		return err_set(EINVAL, "parameter %u is not one of this trainer's", i);
	if (!grad)
		return err_set(EINVAL, "no gradient of parameter %u (NULL)", i);
	k = pack_of(p);
	if (p->listed == t->lists || (k && k->listed == t->lists))
		return err_set(EINVAL, "parameter \"%s\" is in the list twice", p->wire.name);
	p->listed = t->lists;
	if (k)
		k->listed_apart = t->lists;
	return push_may(t, p);
}

/* All that begins the list and can be checked as one: how many those are. */
static uint32_t check_pack(gs_trainer *t, gs_param *const *p, const void *const *grad, uint32_t n)
{
	struct pack *k = *p && (*p)->t == t ? pack_of(*p) : NULL;

	if (!lists_pack(t, k, p, n) || !is_in_step(t, k) || t->posted || k->as_one == t->step ||
	    k->listed == t->lists || k->listed_apart == t->lists)
		return 0;
	for (uint32_t i = 0; i < k->n; i++)
		if (!grad[i])
			return 0;
	k->listed = t->lists;
	return k->n;
}

static int check_list(gs_trainer *t, gs_param *const *p, const void *const *grad, uint32_t n)
{
	uint32_t some;
	int rc = 0;

	t->lists++;
	for (uint32_t i = 0; rc == 0 && i < n; i += some) {
		some = check_pack(t, p + i, grad + i, n - i);
		if (some)
			continue;
		param_fetch(p, i, n);
		rc = check_one(t, p[i], grad[i], i);
		some = 1;
	}
	return rc;
}

/* Whether the list goes on with all of a pack: they are all different. */
static bool has_pack(gs_trainer *t, gs_param *const *p, uint32_t n, struct pack **out)
{
	struct pack *pack = pack_of(p[0]);

	if (!pack || pack->n > n)
		return false;
	for (uint32_t i = 1; i < pack->n && !lists_pack(t, pack, p, n); i++) {
		if (p[i]->pack != p[0]->pack)
			return false;
	}
	*out = pack;
	return true;
}

/* ---- a pack ---------------------------------------------------------------------------------- */

/* The server has it from a connection before. */
static bool is_in(const gs_trainer *t, const gs_param *p, uint64_t push)
{
	uint8_t skip = t->link.skip[p->first_block];

	return trainer_is_sync(t) ? skip && t->step == t->first_step
				  : push < skip || p->made < p->out.base;
}

/* They go as one, into b->slot. */
static bool goes_as_one(struct batch *b)
{
	gs_trainer *t = b->t;

	b->slot = push_slot_index(&b->param[0]->out, push_next(b->param[0]), t->link.slots);
	if (is_in_step(t, b->pack))
		return !b->pack->sums;
	for (uint32_t i = 0; i < b->pack->n; i++) {
		const gs_param *p = b->param[i];
		uint64_t push = push_next(p);

		if (p->accumulate > 1 || is_in(t, p, push) ||
		    push_slot_index(&p->out, push, t->link.slots) != b->slot)
			return false;
	}
	return true;
}

static bool has_credit(const struct batch *b)
{
	const gs_trainer *t = b->t;

	for (uint32_t i = 0; !trainer_is_sync(t) && i < b->pack->n; i++) {
		gs_param *p = b->param[i];

		if (!push_credited(p, credits_needed(push_next(p), t->link.slots)))
			return false;
	}
	return true;
}

/* The slot is free in all of them. The lock is let go of meanwhile, so another thread may push: then
 * they may no longer be in step. */
static int wait_for_credit(const struct batch *b)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < b->pack->n; i++) {
		gs_param *p = b->param[i];

		rc = push_wait_for(p, credits_needed(push_next(p), b->t->link.slots));
	}
	return rc;
}

static uint8_t *slot_of(const struct batch *b, uint32_t i)
{
	return b->param[i]->out.ring + b->slot * b->param[i]->out.stride;
}

/* From here on the slot is this call's. True: some gradients are elsewhere. */
static bool begin(const struct batch *b)
{
	bool elsewhere = false;

	b->pack->as_one = b->t->step;
	for (uint32_t i = 0; i < b->pack->n; i++) {
		gs_param *p = b->param[i];

		param_fetch(b->param, i, b->pack->n);
		p->out.pushes = push_next(p) + 1;
		if (b->t->lends)
			p->out.lent[b->slot] = (struct lent){NULL, NULL};
		push_begin(p);
		elsewhere |= b->grad[i] != slot_of(b, i);
	}
	return elsewhere;
}

static void copy(const struct batch *b)
{
	for (uint32_t i = 0; i < b->pack->n; i++) {
		const gs_param *p = b->param[i];

		if (b->grad[i] != slot_of(b, i))
			memcpy(slot_of(b, i), b->grad[i], p->elems * p->grad_size);
	}
}

/* Those that changed, and what is between them. */
static int post_heads(const struct batch *b, struct chain *chain)
{
	gs_trainer *t = b->t;
	struct layout_push_head head = push_head(b->param[0], 0, 0);
	uint32_t first = UINT32_MAX, end = 0, bit = 1u << b->slot;

	if (b->pack->alike & bit &&
	    memcmp(out_head(&b->param[0]->out, b->slot), &head, sizeof(head)) == 0)
		return 0;
	for (uint32_t i = 0; i < b->pack->n; i++) {
		gs_param *p = b->param[i];

		head.seen = trainer_is_sync(t) ? 0 : p->seen;
		if (!push_head_changes(p, b->slot, &head))
			continue;
		first = p->index < first ? p->index : first;
		end = p->index + 1 > end ? p->index + 1 : end;
	}
	if (trainer_is_sync(t)) /* where each says what it was of, they differ */
		b->pack->alike |= bit;
	if (end == 0 || !t->link.local)
		return 0;
	gs_param *p = t->param[first];
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .local = out_head(&p->out, b->slot),
	    .region = t->link.local_region,
	    .remote = t->link.slot_mem,
	    .offset = p->heads_off + b->slot * p->heads_stride,
	    .len = (end - first) * sizeof(head),
	    .rail = trainer_rail(t, p->first_block),
	};
	return chain_add(chain, &op);
}

static int post(const struct batch *b)
{
	gs_trainer *t = b->t;
	const gs_param *p = t->param[b->pack->first];
	struct chain chain;
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = TP_F_IMM,
	    .imm = imm_block(IMM_GRAD, t->link.blocks + p->pack - 1, b->slot,
			     push_wants_answer(p, IMM_GRAD)),
	    .local = p->out.ring + b->slot * p->out.stride,
	    .region = t->link.local_region,
	    .remote = t->link.slot_mem,
	    .offset = p->slots_off + b->slot * p->slots_stride,
	    .len = b->pack->bytes,
	    .rail = trainer_rail(t, p->first_block),
	};
	chain_begin(&chain, t);
	int rc = post_heads(b, &chain);

	if (rc == 0)
		rc = chain_add(&chain, &op);
	return rc < 0 ? rc : chain_flush(&chain);
}

static int send(const struct batch *b)
{
	gs_trainer *t = b->t;

	if (begin(b)) {
		pthread_mutex_unlock(&t->lock);
		copy(b);
		pthread_mutex_lock(&t->lock);
	}
	int rc = post(b);
	for (uint32_t i = 0; rc == 0 && i < b->pack->n; i++)
		push_made(b->param[i]);
	return rc;
}

/* 1: sent; 0: its parameters go one by one. */
static int push_pack(struct batch *b)
{
	if (!goes_as_one(b))
		return 0;
	if (!has_credit(b)) {
		int rc = wait_for_credit(b);

		if (rc < 0)
			return rc;
		if (!goes_as_one(b) || !has_credit(b))
			return 0;
	}
	int rc = send(b);
	return rc < 0 ? rc : 1;
}

/* ---- the API --------------------------------------------------------------------------------- */

/* Pushes the first of the list, or the pack that it begins with: how many those were. */
static int push_some(gs_trainer *t, gs_param *const *p, const void *const *grad, uint32_t n)
{
	struct batch b = {.t = t, .param = p, .grad = grad};
	uint32_t some = 1;
	int rc = 0;

	if (has_pack(t, p, n, &b.pack)) {
		some = b.pack->n;
		rc = push_pack(&b);
		if (rc != 0)
			return rc < 0 ? rc : (int)some;
	}
	for (uint32_t i = 0; rc == 0 && i < some; i++)
		rc = push_alone(p[i], grad[i]);
	return rc < 0 ? rc : (int)some;
}

int gs_push_many(gs_trainer *t, gs_param *const *p, const void *const *grad, uint32_t n)
{
	if (n > 0 && (!p || !grad))
		return err_set(EINVAL, "gs_push_many: NULL");
	int rc = trainer_enter_working(t);
	if (rc < 0)
		return rc;
	rc = check_list(t, p, grad, n);
	if (rc < 0)
		err_wrap(rc, "gs_push_many: nothing was sent");
	for (uint32_t i = 0; rc >= 0 && i < n; i += (uint32_t)rc) {
		rc = push_some(t, p + i, grad + i, n - i);
		if (rc < 0)
			err_wrap(rc, "gs_push_many: behind the first %u of %u", i, n);
	}
	trainer_exit(t);
	return rc < 0 ? rc : 0;
}

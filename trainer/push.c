/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients on their way out.
 *
 * A push belongs to one thread from the moment that it counts itself in p->out.pushes.
 * Its slot is then nobody else's until the credits have passed it, so filling and sending it needs
 * no lock but for the posts.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/err.h"
#include "trainer/sum.h"

/* Copied before it is sent: long enough that a copy is worth a post, short enough that the server
 * is at work on the first piece while the next one is copied. */
#define PIECE_BYTES (512u << 10)
/* Into mapped slots, stores of so long a gradient go past the caches (perf/METHOD.md). */
#define PUSH_LARGE (UINT64_C(16) << 20)

/* ---- credits --------------------------------------------------------------------------------- */

bool push_credited(gs_param *p, uint64_t wanted)
{
	gs_trainer *t = p->t;

	for (uint32_t i = 0; wanted > 0 && i < param_words(p); i++) {
		uint32_t block = p->first_block + i;
		uint64_t credit = word_acquire(t->link.mail, layout_credit_off(block));
		uint64_t lead = trainer_is_sync(t) ? 0 : t->link.skip[block];

		if (!credits_plausible(credit, p->out.pushes) && credit > lead) {
			err_set(EPROTO, "block %u: credit for %llu pushes of %llu", block,
				(unsigned long long)credit, (unsigned long long)p->out.pushes);
			trainer_breach(t);
			return false;
		}
		if (credit < wanted && lead < wanted) {
			t->lacks = (const uint64_t *)(const void *)(t->link.mail +
								    layout_credit_off(block));
			t->lacks_was = credit;
			return false;
		}
	}
	return true;
}

bool push_all_credited(gs_trainer *t, void *arg)
{
	for (uint32_t i = 0; i < t->n_params; i++) {
		if (!push_credited(t->param[i], t->param[i]->out.pushes))
			return false;
	}
	return true;
}

struct wanted {
	gs_param *p;
	uint64_t pushes;
};

static bool is_credited(gs_trainer *t, void *arg)
{
	struct wanted *w = arg;

	return push_credited(w->p, w->pushes);
}

int push_wait_for(gs_param *p, uint64_t pushes)
{
	struct wanted w = {p, pushes};

	return pushes == 0 ? 0 : trainer_wait(p->t, is_credited, &w, 0, "a free slot");
}

/* In sync mode a step's gradients are in the weights when it is released, and not before. */
int push_await_rails(gs_param *p)
{
	return p->t->link.rails == 1 || trainer_is_sync(p->t) ? 0 : push_wait_for(p, p->out.pushes);
}

/* The slot of the next push. In sync mode the release of a step is the credit for all of it, and a
 * step is pushed only once the one before it is released: the slot is free. */
static int wait_for_slot(gs_trainer *t, gs_param *p)
{
	return trainer_is_sync(t) ? 0
				  : push_wait_for(p, credits_needed(p->out.pushes, t->link.slots));
}

/* ---- sending --------------------------------------------------------------------------------- */

bool push_is_in(const gs_param *p, uint32_t i, uint64_t push)
{
	const gs_trainer *t = p->t;
	uint8_t skip = t->link.skip[p->first_block + i];

	return trainer_is_sync(t) ? skip && p->push_step == t->first_step : push < skip;
}

/* Blocks of a push by the rail that they take; those that are to be sent. */
struct route {
	uint32_t rails;                /* bits of those that carry any */
	uint32_t end[TP_RAILS_MAX];    /* behind the last one that a rail carries */
};

static void find_route(const gs_param *p, uint64_t push, struct route *route)
{
	const gs_trainer *t = p->t;
	uint32_t all = (1u << t->link.rails) - 1;

	route->rails = 0;
	for (uint32_t i = p->blocks; i > 0 && route->rails != all; i--) {
		uint8_t rail = trainer_rail(t, p->first_block + i - 1);

		if ((route->rails >> rail & 1) || push_is_in(p, i - 1, push))
			continue;
		route->rails |= 1u << rail;
		route->end[rail] = i;
	}
}

/* How many rails carry some of it; 0: there is nothing to send. */
static unsigned count_rails(const gs_param *p, uint64_t push)
{
	struct route route;

	find_route(p, push, &route);
	return (unsigned)__builtin_popcount(route.rails);
}

/* Async: one answer a push and rail, when the last block that it carries is applied (by another it may
 * be applied later); none to who never sleeps, and so sees the credits themselves. Sync: the release
 * answers. Initial weights are answered in both. */
bool push_wants_answer(const gs_param *p, enum imm_kind kind)
{
	return kind == IMM_INIT || (!trainer_is_sync(p->t) && trainer_sleeps(p->t));
}

struct layout_push_head push_head(const gs_param *p, uint32_t rows, uint32_t flags)
{
	const gs_trainer *t = p->t;
	float scale = p->accumulate > 1 ? p->sum_scale : t->grad_scale;

	return (struct layout_push_head){
	    .weight = t->samples == 1 ? 0 : t->samples,
	    .scale = scale == 1 ? 0 : scale,
	    .seen = trainer_is_sync(t) ? 0 : p->seen,
	    .rows = rows,
	    .flags = flags,
	};
}

bool push_head_changes(gs_param *p, uint32_t slot, const struct layout_push_head *head)
{
	struct layout_push_head *at = out_head(&p->out, slot);

	if (memcmp(at, head, sizeof(*head)) == 0)
		return false;
	*at = *head;
	if (p->pack)
		p->t->link.pack[p->pack - 1].alike &= ~(1u << slot);
	return true;
}

/* If it is anything that the server was not told for this slot before. Over shm the head is the
 * server's memory; over a network its copy is sent ahead, by each of the rails. (One that carries
 * nothing of the push is left out: nobody would know when what went there has arrived.) */
int push_head_post(struct chain *chain, gs_param *p, uint32_t slot,
		   const struct layout_push_head *head, uint32_t rails)
{
	int rc = 0;
	gs_trainer *t = p->t;
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .local = out_head(&p->out, slot),
	    .region = t->link.local_region,
	    .remote = t->link.slot_mem,
	    .offset = p->heads_off + slot * p->heads_stride,
	    .len = sizeof(*head),
	};

	if (!push_head_changes(p, slot, head))
		return 0;
	for (; t->link.local && rc == 0 && rails; rails &= rails - 1) {
		op.rail = (uint8_t)__builtin_ctz(rails);
		rc = chain_add(chain, &op);
	}
	return rc;
}

/* Where it is sent from. */
static const uint8_t *push_source(const gs_param *p, uint64_t push)
{
	const struct lent *lent = &p->out.lent[push_slot_index(&p->out, push, p->t->link.slots)];

	return lent->at ? lent->at : push_slot(p, push);
}

struct batch {
	enum imm_kind kind;
	uint64_t push;
	uint32_t first, end; /* blocks */
	bool led;            /* the first goes with the push head before it */
};

/* The head need not be sent by itself: it lies before the first block on both sides. */
static bool head_may_lead(const gs_param *p, const struct batch *b, const struct route *route)
{
	const gs_trainer *t = p->t;
	bool one_rail = (route->rails & (route->rails - 1)) == 0;

	return t->link.local && param_head_leads(p) && b->first == 0 && one_rail &&
	       !push_is_in(p, 0, b->push) &&
	       !p->out.lent[push_slot_index(&p->out, b->push, t->link.slots)].at;
}

static int post_block(struct chain *chain, gs_param *p, const struct batch *b, uint32_t i, bool last)
{
	gs_trainer *t = p->t;
	uint32_t slot = push_slot_index(&p->out, b->push, t->link.slots);
	const struct lent *lent = &p->out.lent[slot];
	uint64_t at = block_first_elem(p, i) * p->grad_size;
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = TP_F_IMM,
	    .imm = imm_block(b->kind, p->first_block + i, slot, last && push_wants_answer(p, b->kind)),
	    .local = (uint8_t *)(uintptr_t)push_source(p, b->push) + at,
	    .region = lent->at ? lent->region : t->link.local_region,
	    .remote = t->link.slot_mem,
	    .offset = p->slots_off + slot * p->slots_stride + at,
	    .len = block_elems(p, i) * p->grad_size,
	    .rail = trainer_rail(t, p->first_block + i),
	};

	if (i == 0 && b->led) {
		op.local = (uint8_t *)op.local - sizeof(struct layout_push_head);
		op.offset -= sizeof(struct layout_push_head);
		op.len += sizeof(struct layout_push_head);
	}
	if (lent->at && last) { /* of its rail */
		op.flags |= TP_F_SIGNAL;
		op.cookie = lend_cookie(lent);
	}
	return push_is_in(p, i, b->push) ? 0 : chain_add(chain, &op);
}

/* From the ring or what was lent, but the blocks that the server has; rail by rail, so that each gets its
 * own as one chain. */
static int post_blocks(gs_param *p, struct batch *b, const struct layout_push_head *head)
{
	gs_trainer *t = p->t;
	uint32_t slot = push_slot_index(&p->out, b->push, t->link.slots);
	struct chain chain;
	struct route route;
	int rc = 0;

	chain_begin(&chain, t);
	find_route(p, b->push, &route);
	if (head && head_may_lead(p, b, &route))
		b->led = push_head_changes(p, slot, head);
	else if (head && route.rails)
		rc = push_head_post(&chain, p, slot, head, route.rails);
	for (uint32_t k = 0; k < t->link.rails && b->first + k < b->end; k++) {
		uint8_t rail = trainer_rail(t, p->first_block + b->first + k);

		for (uint32_t i = b->first + k; rc == 0 && i < b->end; i += t->link.rails)
			rc = post_block(&chain, p, b, i, i + 1 == route.end[rail]);
	}
	return rc < 0 ? rc : chain_flush(&chain);
}

int push_again(gs_param *p, uint64_t push, const struct layout_push_head *head)
{
	struct batch all = {IMM_GRAD, push, 0, p->blocks, false};

	return post_blocks(p, &all, head);
}

static uint32_t end_of_piece(const gs_param *p, uint32_t first)
{
	uint64_t blocks = PIECE_BYTES / (p->grad_size * p->block_elems);

	if (blocks < 1)
		blocks = 1;
	if (blocks > CHAIN_MAX)
		blocks = CHAIN_MAX;
	return blocks < p->blocks - first ? first + (uint32_t)blocks : p->blocks;
}

/* Blocks first .. end-1 of src into the slot. */
static void copy_piece(const gs_param *p, uint8_t *slot, const uint8_t *src, uint32_t first,
		       uint32_t end)
{
	uint64_t at = block_first_elem(p, first) * p->grad_size;
	uint64_t to = (block_first_elem(p, end - 1) + block_elems(p, end - 1)) * p->grad_size;

	if (!p->t->link.local && p->elems * p->grad_size >= PUSH_LARGE)
		copy_streaming(slot + at, src + at, to - at);
	else
		memcpy(slot + at, src + at, to - at);
}

static int send_from(gs_param *p, enum imm_kind kind, uint64_t push, const void *src)
{
	gs_trainer *t = p->t;
	uint8_t *slot = push_slot(p, push);
	const uint8_t *from = push_source(p, push);
	int rc = 0;

	for (uint32_t first = 0, end; rc == 0 && first < p->blocks; first = end) {
		end = src == from ? p->blocks : end_of_piece(p, first);
		if (src != from)
			copy_piece(p, slot, src, first, end);
		pthread_mutex_lock(&t->lock);
		struct layout_push_head head = push_head(p, 0, 0);
		struct batch b = {kind, push, first, end, false};
		rc = post_blocks(p, &b, first == 0 && kind == IMM_GRAD ? &head : NULL);
		pthread_mutex_unlock(&t->lock);
	}
	return rc;
}

/* ---- initial weights ------------------------------------------------------------------------- */

/* The upper or the lower halves of the floats: they fit the slot of a 16-bit gradient. */
static int send_halves(gs_param *p, unsigned shift)
{
	gs_trainer *t = p->t;

	pthread_mutex_lock(&t->lock);
	int rc = push_wait_for(p, credits_needed(p->out.pushes, t->link.slots));
	uint64_t push = p->out.pushes;
	p->out.pushes += rc == 0;
	pthread_mutex_unlock(&t->lock);
	uint8_t *slot = push_slot(p, push);
	for (uint64_t i = 0; rc == 0 && i < p->elems; i++) {
		uint32_t bits;
		uint16_t half;

		memcpy(&bits, &p->init_data[i], sizeof(bits));
		half = (uint16_t)(bits >> shift);
		memcpy(slot + i * sizeof(half), &half, sizeof(half));
	}
	return rc < 0 ? rc : send_from(p, IMM_INIT, push, slot);
}

int push_initial(gs_param *p)
{
	if (p->wire.grad_type != WIRE_F32) {
		int rc = send_halves(p, 16);

		return rc < 0 ? rc : send_halves(p, 0);
	}
	pthread_mutex_lock(&p->t->lock);
	uint64_t push = p->out.pushes++;
	pthread_mutex_unlock(&p->t->lock);
	return send_from(p, IMM_INIT, push, p->init_data);
}

/* ---- the API --------------------------------------------------------------------------------- */

int push_allowed(const gs_trainer *t, const gs_param *p)
{
	if (t->welcome.mode == WIRE_ASYNC)
		return 0;
	if (t->posted)
		return err_set(
		    EALREADY,
		    "the barrier of step %llu was posted already; call gs_step_wait first",
		    (unsigned long long)t->step);
	if (trainer_is_sync(t) && p->push_step == t->step)
		return err_set(EALREADY, "parameter \"%s\" was pushed in step %llu already",
			       p->wire.name, (unsigned long long)t->step);
	return 0;
}

/* Of a trainer that was entered with rc. */
static int check_owner(gs_trainer *t, const gs_param *p, int rc)
{
	if (rc < 0 || (p && p->t == t))
		return rc;
	trainer_exit(t);
	return err_set(EINVAL, "the parameter is not one of this trainer's");
}

int push_enter(gs_trainer *t, const gs_param *p)
{
	return check_owner(t, p, trainer_enter_working(t));
}

int push_may(const gs_trainer *t, const gs_param *p)
{
	if (param_is_table(p))
		return err_set(EINVAL, "parameter \"%s\" is a table: call gs_push_rows",
			       p->wire.name);
	return push_allowed(t, p);
}

/* p may be pushed, and its slot is free where one is used. With the lock, which it lets go of if it
 * fails. */
static int check_push(gs_trainer *t, gs_param *p)
{
	int rc = push_may(t, p);

	if (rc == 0 && p->accumulate == 1)
		rc = wait_for_slot(t, p);
	if (rc < 0)
		trainer_exit(t);
	return rc;
}

int gs_grad_buffer(gs_trainer *t, gs_param *p, void **out)
{
	if (!out)
		return err_set(EINVAL, "gs_grad_buffer: NULL");
	int rc = check_owner(t, p, trainer_enter_briefly(t));
	if (rc == 0)
		rc = check_push(t, p);
	if (rc < 0)
		return rc;
	*out = p->accumulate > 1 ? p->addend : push_slot(p, push_next(p));
	trainer_exit(t);
	return 0;
}

/* The next push, its slot being free: of `grad`, which may be lent; where pushes are accumulated, of the
 * sum, and `grad` (unless it is NULL) on top. What is in the sum stays there if it fails. With the lock,
 * which it lets go of meanwhile. */
static int make_push(gs_param *p, const void *grad, float scale, bool lend)
{
	gs_trainer *t = p->t;
	uint64_t push = push_next(p);
	bool sends = push_begin(p);
	uint8_t *slot = push_slot(p, push);
	int rc = 0;

	if (p->pack)
		t->link.pack[p->pack - 1].apart = t->step;
	if (sends)
		p->out.pushes = push + 1;
	pthread_mutex_unlock(&t->lock);
	if (sends)
		p->out.lent[push_slot_index(&p->out, push, t->link.slots)] = (struct lent){NULL, NULL};
	if (sends && p->accumulate > 1) {
		sum_write(p, grad, scale, slot);
		grad = slot;
	} else if (sends && lend) {
		lend_push(p, push, grad, count_rails(p, push));
	}
	if (sends)
		rc = send_from(p, IMM_GRAD, push, grad);
	pthread_mutex_lock(&t->lock);
	if (rc < 0)
		return rc;
	push_made(p);
	p->accumulated = 0;
	return 0;
}

int push_flush(gs_param *p)
{
	if (p->accumulated == 0)
		return 0;
	int rc = wait_for_slot(p->t, p);
	return rc < 0 ? rc : make_push(p, NULL, 1, false);
}

/* With the lock. */
static int push_accumulated(gs_param *p, const void *grad)
{
	gs_trainer *t = p->t;
	float scale = t->grad_scale;

	if (p->accumulated + 1 < p->accumulate) {
		pthread_mutex_unlock(&t->lock);
		sum_add(p, grad, scale);
		pthread_mutex_lock(&t->lock);
		return 0;
	}
	int rc = wait_for_slot(t, p);
	return rc < 0 ? rc : make_push(p, grad, scale, false);
}

/* With the lock; p may be pushed. */
static int push_one(gs_param *p, const void *grad, bool lend)
{
	return p->accumulate > 1 ? push_accumulated(p, grad) : make_push(p, grad, 1, lend);
}

static int push(gs_trainer *t, gs_param *p, const void *grad, bool lend)
{
	if (!grad)
		return err_set(EINVAL, "gs_push: no gradient (NULL)");
	int rc = push_enter(t, p);
	if (rc == 0)
		rc = check_push(t, p);
	if (rc < 0)
		return rc;
	rc = push_one(p, grad, lend);
	trainer_exit(t);
	return rc;
}

int gs_push(gs_trainer *t, gs_param *p, const void *grad)
{
	return push(t, p, grad, false);
}

int gs_push_zcopy(gs_trainer *t, gs_param *p, const void *grad)
{
	return push(t, p, grad, true);
}

int push_alone(gs_param *p, const void *grad)
{
	int rc = p->accumulate > 1 ? 0 : wait_for_slot(p->t, p);

	return rc < 0 ? rc : push_one(p, grad, false);
}

int gs_pushes(gs_trainer *t, gs_param *p, uint64_t *out)
{
	if (!out)
		return err_set(EINVAL, "gs_pushes: NULL");
	int rc = push_enter(t, p);
	if (rc < 0)
		return rc;
	if (!trainer_is_sync(t))
		*out = p->made;
	else
		*out = p->made_step > p->kept_step ? p->made_step : p->kept_step;
	trainer_exit(t);
	return 0;
}

static int wait_applied(gs_trainer *t, gs_param *p)
{
	if (!trainer_is_sync(t)) {
		int rc = push_flush(p);
		struct wanted w = {p, p->out.pushes};

		if (rc == 0)
			rc = trainer_wait(t, is_credited, &w, 0, "gradients to be applied");
		if (rc == 0)
			lend_told(p, w.pushes);
		return rc;
	}
	uint64_t step = p->accumulated ? t->step : p->push_step;
	if (step < t->step)
		return 0;
	if (!t->posted)
		return err_set(
		    EDEADLK,
		    "step %llu has no barrier yet: nothing of it is applied before; call "
		    "gs_step_post first",
		    (unsigned long long)step);
	uint64_t pushes = p->out.end;
	int rc = step_wait_released(t, step);
	if (rc == 0)
		lend_told(p, pushes);
	return rc;
}

int gs_wait_applied(gs_trainer *t, gs_param *p)
{
	int rc = push_enter(t, p);

	if (rc < 0)
		return rc;
	rc = wait_applied(t, p);
	if (rc == 0)
		rc = trainer_refused(t);
	trainer_exit(t);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients on their way out.
 *
 * A push belongs to one thread from the moment that it counts itself in p->pushes. Its slot is then
 * nobody else's until the credits have passed it, so filling and sending it needs no lock but for
 * the posts.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "trainer/sum.h"

/* Copied before it is sent: long enough that a copy is worth a post, short enough that the server
 * is at work on the first piece while the next one is copied. */
#define PIECE_BYTES (512u << 10)

uint8_t *push_slot(const gs_param *p, uint64_t push)
{
	return p->ring + credits_slot(push, p->t->slots) * p->ring_stride;
}

/* ---- credits --------------------------------------------------------------------------------- */

bool push_credited(gs_param *p, uint64_t wanted)
{
	gs_trainer *t = p->t;
	uint32_t blocks = param_is_table(p) ? 1 : p->blocks; /* a table's credits are its first's */

	for (uint32_t i = 0; wanted > 0 && i < blocks; i++) {
		uint32_t block = p->first_block + i;
		uint64_t credit = word_acquire(t->mail, layout_credit_off(block));

		if (!credits_plausible(credit, p->pushes)) {
			err_set(EPROTO, "block %u: credit for %llu pushes of %llu", block,
				(unsigned long long)credit, (unsigned long long)p->pushes);
			trainer_breach(t);
			return false;
		}
		if (credit < wanted)
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

int push_wait_credited(gs_trainer *t, gs_param *p)
{
	struct wanted w = {p, credits_needed(p->pushes, t->slots)};

	return w.pushes == 0 ? 0 : trainer_wait(t, is_credited, &w, 0, "a free slot");
}

/* The slot of the next push. In sync mode the release of a step is the credit for all of it, and a
 * step is pushed only once the one before it is released: the slot is free. */
static int wait_for_slot(gs_trainer *t, gs_param *p)
{
	return trainer_is_sync(t) ? 0 : push_wait_credited(t, p);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Async: one answer a push, when its last block is applied. Sync: the release answers. Initial
 * weights are answered in both. */
static bool wants_answer(const gs_param *p, enum imm_kind kind, uint32_t i)
{
	if (kind == IMM_GRAD && trainer_is_sync(p->t))
		return false;
	return i + 1 == p->blocks;
}

/* What the server has to know about the push, if it is anything that it was not told for this slot
 * before. Over shm the head is the server's memory; over a network its copy is sent ahead. */
int push_head(struct chain *chain, gs_param *p, uint32_t slot, uint32_t rows, uint32_t flags)
{
	gs_trainer *t = p->t;
	float scale = p->accumulate > 1 ? p->sum_scale : t->grad_scale;
	struct layout_push_head head = {
	    .weight = t->samples == 1 ? 0 : t->samples,
	    .scale = scale == 1 ? 0 : scale,
	    .seen = trainer_is_sync(t) ? 0 : p->seen,
	    .rows = rows,
	    .flags = flags,
	};
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .local = &p->heads[slot],
	    .region = t->local_region,
	    .remote = t->slot_mem,
	    .offset = p->heads_off + slot * sizeof(head),
	    .len = sizeof(head),
	};

	if (memcmp(&p->heads[slot], &head, sizeof(head)) == 0)
		return 0;
	p->heads[slot] = head;
	return t->local ? chain_add(chain, &op) : 0;
}

/* Blocks first .. end-1, from the ring; with the lock held. */
static int post_blocks(gs_param *p, enum imm_kind kind, uint64_t push, uint32_t first, uint32_t end)
{
	gs_trainer *t = p->t;
	uint32_t slot = credits_slot(push, t->slots);
	struct chain chain = {.t = t};
	int rc = first == 0 && kind == IMM_GRAD ? push_head(&chain, p, slot, 0, 0) : 0;

	for (uint32_t i = first; rc == 0 && i < end; i++) {
		uint64_t at = block_first_elem(p, i) * p->grad_size;
		struct tp_op op = {
		    .kind = TP_OP_WRITE,
		    .flags = TP_F_IMM,
		    .imm = imm_block(kind, p->first_block + i, slot, wants_answer(p, kind, i)),
		    .local = push_slot(p, push) + at,
		    .region = t->local_region,
		    .remote = t->slot_mem,
		    .offset = p->slots_off + slot * p->slots_stride + at,
		    .len = block_elems(p, i) * p->grad_size,
		};

		rc = chain_add(&chain, &op);
	}
	return rc < 0 ? rc : chain_flush(&chain);
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

static int send_from(gs_param *p, enum imm_kind kind, uint64_t push, const void *src)
{
	gs_trainer *t = p->t;
	uint8_t *slot = push_slot(p, push);
	int rc = 0;

	for (uint32_t first = 0, end; rc == 0 && first < p->blocks; first = end) {
		end = src == slot ? p->blocks : end_of_piece(p, first);
		if (src != slot) {
			uint64_t at = block_first_elem(p, first);
			uint64_t n = block_first_elem(p, end - 1) + block_elems(p, end - 1) - at;

			memcpy(slot + at * p->grad_size, (const uint8_t *)src + at * p->grad_size,
			       n * p->grad_size);
		}
		pthread_mutex_lock(&t->lock);
		rc = post_blocks(p, kind, push, first, end);
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
	int rc = push_wait_credited(t, p);
	uint64_t push = p->pushes;
	p->pushes += rc == 0;
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
	uint64_t push = p->pushes++;
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

int push_enter(gs_trainer *t, const gs_param *p)
{
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	if (p && p->t == t)
		return 0;
	trainer_exit(t);
	return err_set(EINVAL, "the parameter is not one of this trainer's");
}

/* Enters with the right to the next push of p, and its slot free where one is used. */
static int enter_push(gs_trainer *t, gs_param *p)
{
	int rc = push_enter(t, p);

	if (rc < 0)
		return rc;
	if (param_is_table(p))
		rc =
		    err_set(EINVAL, "parameter \"%s\" is a table: call gs_push_rows", p->wire.name);
	if (rc == 0)
		rc = push_allowed(t, p);
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
	int rc = enter_push(t, p);
	if (rc < 0)
		return rc;
	*out = p->accumulate > 1 ? p->addend : push_slot(p, p->pushes);
	trainer_exit(t);
	return 0;
}

/* With the lock: the number of the next push, which is the caller's. */
static uint64_t begin_push(gs_trainer *t, gs_param *p)
{
	p->push_step = t->step;
	return p->pushes++;
}

int push_flush(gs_param *p)
{
	gs_trainer *t = p->t;

	if (p->accumulated == 0)
		return 0;
	int rc = wait_for_slot(t, p);
	if (rc < 0)
		return rc;
	uint64_t push = begin_push(t, p);
	pthread_mutex_unlock(&t->lock);
	sum_take(p, push_slot(p, push));
	rc = send_from(p, IMM_GRAD, push, push_slot(p, push));
	pthread_mutex_lock(&t->lock);
	return rc;
}

static int push_accumulated(gs_trainer *t, gs_param *p, const void *grad, float scale)
{
	sum_add(p, grad, scale);
	if (p->accumulated < p->accumulate)
		return 0;
	int rc = trainer_enter_working(t);
	if (rc < 0)
		return rc;
	rc = push_flush(p);
	trainer_exit(t);
	return rc;
}

int gs_push(gs_trainer *t, gs_param *p, const void *grad)
{
	if (!grad)
		return err_set(EINVAL, "gs_push: no gradient (NULL)");
	int rc = enter_push(t, p);
	if (rc < 0)
		return rc;
	if (p->accumulate > 1) {
		float scale = t->grad_scale;

		trainer_exit(t);
		return push_accumulated(t, p, grad, scale);
	}
	uint64_t push = begin_push(t, p);
	trainer_exit(t);
	return send_from(p, IMM_GRAD, push, grad);
}

static int wait_applied(gs_trainer *t, gs_param *p)
{
	if (!trainer_is_sync(t)) {
		int rc = push_flush(p);
		struct wanted w = {p, p->pushes};

		return rc < 0 ? rc : trainer_wait(t, is_credited, &w, 0, "gradients to be applied");
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
	return step_wait_released(t, step);
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

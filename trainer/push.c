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
#include <string.h>

#include "base/err.h"

/* Copied before it is sent: long enough that a copy is worth a post, short enough that the server
 * is at work on the first piece while the next one is copied. */
#define PIECE_BYTES (512u << 10)

static float *slot_of(const gs_param *p, uint64_t push)
{
	uint64_t off = credits_slot(push, p->t->slots) * p->ring_stride;

	return (float *)(void *)((uint8_t *)p->ring + off);
}

/* ---- credits --------------------------------------------------------------------------------- */

bool push_credited(gs_param *p, uint64_t wanted)
{
	gs_trainer *t = p->t;

	for (uint32_t i = 0; i < p->blocks; i++) {
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

/* The slot of the next push. In sync mode the release of a step is the credit for all of it, and a
 * step is pushed only once the one before it is released: the slot is free. */
static int wait_for_slot(gs_trainer *t, gs_param *p)
{
	struct wanted w = {p, credits_needed(p->pushes, t->slots)};

	if (t->welcome.mode == WIRE_SYNC || w.pushes == 0)
		return 0;
	return trainer_wait(t, is_credited, &w, 0, "a free slot");
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Async: one answer a push, when its last block is applied. Sync: the release answers. Initial
 * weights are answered in both. */
static bool wants_answer(const gs_param *p, enum imm_kind kind, uint32_t i)
{
	if (kind == IMM_GRAD && p->t->welcome.mode == WIRE_SYNC)
		return false;
	return i + 1 == p->blocks;
}

/* Blocks first .. end-1, from the ring; with the lock held. */
static int post_blocks(gs_param *p, enum imm_kind kind, uint64_t push, uint32_t first, uint32_t end)
{
	gs_trainer *t = p->t;
	uint32_t slot = credits_slot(push, t->slots);
	struct chain chain = {.t = t};
	int rc = 0;

	for (uint32_t i = first; rc == 0 && i < end; i++) {
		uint64_t at = block_first_elem(p, i);
		struct tp_op op = {
		    .kind = TP_OP_WRITE,
		    .flags = TP_F_IMM,
		    .imm = imm_block(kind, p->first_block + i, slot, wants_answer(p, kind, i)),
		    .local = slot_of(p, push) + at,
		    .region = t->local_region,
		    .remote = t->slot_mem,
		    .offset = p->slots_off + slot * p->slots_stride + 4 * at,
		    .len = 4 * block_elems(p, i),
		};

		rc = chain_add(&chain, &op);
	}
	return rc < 0 ? rc : chain_flush(&chain);
}

static uint32_t end_of_piece(const gs_param *p, uint32_t first)
{
	uint64_t blocks = PIECE_BYTES / (4 * p->block_elems);

	if (blocks < 1)
		blocks = 1;
	if (blocks > CHAIN_MAX)
		blocks = CHAIN_MAX;
	return blocks < p->blocks - first ? first + (uint32_t)blocks : p->blocks;
}

static int send_from(gs_param *p, enum imm_kind kind, uint64_t push, const float *src)
{
	gs_trainer *t = p->t;
	float *slot = slot_of(p, push);
	int rc = 0;

	for (uint32_t first = 0, end; rc == 0 && first < p->blocks; first = end) {
		end = src == slot ? p->blocks : end_of_piece(p, first);
		if (src != slot) {
			uint64_t at = block_first_elem(p, first);
			uint64_t n = block_first_elem(p, end - 1) + block_elems(p, end - 1) - at;

			memcpy(slot + at, src + at, 4 * n);
		}
		pthread_mutex_lock(&t->lock);
		rc = post_blocks(p, kind, push, first, end);
		pthread_mutex_unlock(&t->lock);
	}
	return rc;
}

int push_tensor(gs_param *p, enum imm_kind kind, const float *src)
{
	pthread_mutex_lock(&p->t->lock);
	uint64_t push = p->pushes++;
	pthread_mutex_unlock(&p->t->lock);
	return send_from(p, kind, push, src);
}

/* ---- the API --------------------------------------------------------------------------------- */

static int may_push(const gs_trainer *t, const gs_param *p)
{
	if (t->welcome.mode != WIRE_SYNC)
		return 0;
	if (t->posted)
		return err_set(
		    EALREADY,
		    "the barrier of step %llu was posted already; call gs_step_wait first",
		    (unsigned long long)t->step);
	if (p->push_step == t->step)
		return err_set(EALREADY, "parameter \"%s\" was pushed in step %llu already",
			       p->wire.name, (unsigned long long)t->step);
	return 0;
}

static int enter_param(gs_trainer *t, const gs_param *p)
{
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	if (p && p->t == t)
		return 0;
	trainer_exit(t);
	return err_set(EINVAL, "the parameter is not one of this trainer's");
}

/* Enters with the right to the next push of p, and its slot free. */
static int enter_push(gs_trainer *t, gs_param *p)
{
	int rc = enter_param(t, p);

	if (rc < 0)
		return rc;
	rc = may_push(t, p);
	if (rc == 0)
		rc = wait_for_slot(t, p);
	if (rc < 0)
		trainer_exit(t);
	return rc;
}

int gs_grad_buffer(gs_trainer *t, gs_param *p, float **out)
{
	if (!out)
		return err_set(EINVAL, "gs_grad_buffer: NULL");
	int rc = enter_push(t, p);
	if (rc < 0)
		return rc;
	*out = slot_of(p, p->pushes);
	trainer_exit(t);
	return 0;
}

int gs_push(gs_trainer *t, gs_param *p, const float *grad)
{
	if (!grad)
		return err_set(EINVAL, "gs_push: no gradient (NULL)");
	int rc = enter_push(t, p);
	if (rc < 0)
		return rc;
	uint64_t push = p->pushes++;
	p->push_step = t->step;
	trainer_exit(t);
	return send_from(p, IMM_GRAD, push, grad);
}

static int wait_applied(gs_trainer *t, gs_param *p)
{
	if (t->welcome.mode == WIRE_ASYNC) {
		struct wanted w = {p, p->pushes};

		return trainer_wait(t, is_credited, &w, 0, "gradients to be applied");
	}
	uint64_t step = p->push_step;
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
	int rc = enter_param(t, p);

	if (rc < 0)
		return rc;
	rc = wait_applied(t, p);
	trainer_exit(t);
	return rc;
}

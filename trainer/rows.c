/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of tables on their way out, and the memory that tables take.
 *
 * A push goes in pieces of slot_rows rows, a slot each; the server gives a slot back once it has
 * merged the piece, in every mode. What says how many rows are in a slot, and whether the push goes
 * on in the next, goes ahead of it in the same chain.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

/* ---- memory ---------------------------------------------------------------------------------- */

struct grant_need rows_need(const gs_param *p)
{
	return (struct grant_need){
	    .elems = p->elems,
	    .row = param_dim(p),
	    .weights = p->elems * p->weight_size,
	    .slot = layout_slot_bytes(p->wire.slot_rows, param_dim(p) * p->grad_size),
	    .request = layout_request_bytes(p->wire.pull_rows),
	    .landing = layout_landing_bytes(p->wire.pull_rows, param_row_bytes(p)),
	};
}

static uint64_t request_span(const gs_param *p)
{
	return layout_align(layout_request_bytes(p->wire.pull_rows), LAYOUT_ALIGN);
}

uint64_t rows_local_bytes(const gs_param *p)
{
	uint64_t versions = 2 * sizeof(uint64_t) * (uint64_t)p->wire.pull_rows;

	return param_is_table(p) ? request_span(p) + layout_align(versions, LAYOUT_ALIGN) : 0;
}

void rows_place_local(gs_param *p, uint8_t *at)
{
	p->request = (struct layout_request_head *)(void *)at;
	p->row_versions = (uint64_t *)(void *)(at + request_span(p));
}

/* ---- pieces ---------------------------------------------------------------------------------- */

struct rows {
	const int64_t *ids;
	const uint8_t *values;
	uint32_t n;
};

static void fill_slot(gs_param *p, uint64_t push, const struct rows *piece)
{
	uint64_t ids = piece->n * sizeof(int64_t);
	uint8_t *slot = push_slot(p, push);

	if (piece->n == 0) {
		memset(slot, 0, sizeof(int64_t)); /* some networks drop empty messages */
		return;
	}
	memcpy(slot, piece->ids, ids);
	memcpy(slot + ids, piece->values, piece->n * param_dim(p) * p->grad_size);
}

/* With the lock. Each piece asks for an answer: the next ones wait for its slot. */
static int post_piece(gs_param *p, uint64_t push, uint32_t n, bool more)
{
	gs_trainer *t = p->t;
	uint32_t slot = credits_slot(push, t->slots);
	struct chain chain = {.t = t};
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = TP_F_IMM,
	    .imm = imm_block(IMM_GRAD, p->first_block, slot, true),
	    .local = push_slot(p, push),
	    .region = t->local_region,
	    .remote = t->slot_mem,
	    .offset = p->slots_off + slot * p->slots_stride,
	    .len = layout_slot_bytes(n, param_dim(p) * p->grad_size),
	};
	int rc = push_head(&chain, p, slot, n, more ? LAYOUT_MORE_ROWS : 0);

	if (rc == 0)
		rc = chain_add(&chain, &op);
	return rc < 0 ? rc : chain_flush(&chain);
}

static int send_piece(gs_param *p, const struct rows *piece, bool more)
{
	gs_trainer *t = p->t;

	pthread_mutex_lock(&t->lock);
	int rc = push_wait_credited(t, p);
	uint64_t push = p->pushes;
	p->pushes += rc == 0;
	pthread_mutex_unlock(&t->lock);
	if (rc < 0)
		return rc;
	fill_slot(p, push, piece);
	pthread_mutex_lock(&t->lock);
	rc = post_piece(p, push, piece->n, more);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

static int send_rows(gs_param *p, const struct rows *all)
{
	uint64_t row = param_dim(p) * p->grad_size;
	uint32_t at = 0;
	int rc;

	do {
		uint32_t left = all->n - at,
			 n = p->wire.slot_rows < left ? p->wire.slot_rows : left;
		struct rows piece = {all->ids + at, all->values + at * row, n};

		rc = send_piece(p, &piece, n < left);
		at += n;
	} while (rc == 0 && at < all->n);
	return rc;
}

/* ---- the API --------------------------------------------------------------------------------- */

int rows_check_ids(const gs_param *p, const int64_t *ids, size_t n)
{
	for (size_t i = 0; p->wire.storage == WIRE_TABLE && i < n; i++) {
		if ((uint64_t)ids[i] >= p->wire.dim[0])
			return err_set(
			    ERANGE,
			    "row %lld, at place %zu of %zu; table \"%s\" has rows 0 to %llu",
			    (long long)ids[i], i, n, p->wire.name,
			    (unsigned long long)p->wire.dim[0] - 1);
	}
	return 0;
}

static int check_push(const gs_param *p, const int64_t *ids, const void *values, size_t n)
{
	if (!param_is_table(p))
		return err_set(EINVAL, "parameter \"%s\" is not a table: call gs_push",
			       p->wire.name);
	if (n > p->wire.push_rows)
		return err_set(EMSGSIZE,
			       "%zu rows; a push of table \"%s\" has %u at most (push_rows)", n,
			       p->wire.name, p->wire.push_rows);
	if (n > 0 && (!ids || !values))
		return err_set(EINVAL, "gs_push_rows: NULL");
	return rows_check_ids(p, ids, n);
}

int gs_push_rows(gs_trainer *t, gs_param *p, const int64_t *ids, const void *values, size_t n)
{
	struct rows all = {ids, values, (uint32_t)n};
	int rc = push_enter(t, p);

	if (rc < 0)
		return rc;
	trainer_exit(t);
	rc = check_push(p, ids, values, n);
	if (rc < 0)
		return rc;
	rc = trainer_enter_working(t);
	if (rc < 0)
		return rc;
	rc = push_allowed(t, p);
	if (rc == 0)
		p->push_step = t->step;
	trainer_exit(t);
	return rc < 0 ? rc : send_rows(p, &all);
}

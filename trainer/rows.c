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
int rows_post(gs_param *p, uint64_t push, const struct layout_push_head *head)
{
	gs_trainer *t = p->t;
	uint32_t slot = credits_slot(push, t->link.slots);
	struct chain chain = {.t = t};
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = TP_F_IMM,
	    .imm = imm_block(IMM_GRAD, p->first_block, slot, true),
	    .local = push_slot(p, push),
	    .region = t->link.local_region,
	    .remote = t->link.slot_mem,
	    .offset = p->slots_off + slot * p->slots_stride,
	    .len = layout_slot_bytes(head->rows, param_dim(p) * p->grad_size),
	    .rail = trainer_rail(t, p->first_block),
	};
	int rc = push_head_post(&chain, p, slot, head, 1u << op.rail);

	if (rc == 0)
		rc = chain_add(&chain, &op);
	return rc < 0 ? rc : chain_flush(&chain);
}

/* A piece's slot is free when it is merged; but as long as not all of its push is, what came of it
 * goes with the connection, so all of it is kept here. (Not of the push that is under way:
 * wait_if_long.) */
static int wait_for_slot(gs_param *p, const struct span *push)
{
	struct span *last = &p->out.span[credits_slot(p->out.pushes, p->t->link.slots)];
	uint64_t whole = last->first == push->first ? 0 : last->end;
	uint64_t merged = credits_needed(p->out.pushes, p->t->link.slots);

	return push_wait_for(p, whole > merged ? whole : merged);
}

/* The number of the next piece, with the lock let go of meanwhile. */
static int begin_piece(gs_param *p, const struct span *push, uint64_t *out)
{
	int rc = wait_for_slot(p, push);

	if (rc < 0)
		return rc;
	*out = p->out.pushes++;
	p->out.span[credits_slot(*out, p->t->link.slots)] = *push;
	return 0;
}

static int send_piece(gs_param *p, const struct span *push, const struct rows *piece, bool more)
{
	gs_trainer *t = p->t;
	uint64_t number;
	int rc = begin_piece(p, push, &number);

	if (rc < 0)
		return rc;
	pthread_mutex_unlock(&t->lock);
	fill_slot(p, number, piece);
	pthread_mutex_lock(&t->lock);
	struct layout_push_head head = push_head(p, piece->n, more ? LAYOUT_MORE_ROWS : 0);
	return rows_post(p, number, &head);
}

/* A push that is longer than the slots can't be sent again from them: it is made when all of it is
 * merged. */
static int wait_if_long(gs_param *p, const struct span *push)
{
	return push->end - push->first > p->t->link.slots ? push_wait_for(p, push->end) : 0;
}

/* With the lock, let go of meanwhile. */
static int send_rows(gs_param *p, const struct rows *all)
{
	uint64_t row = param_dim(p) * p->grad_size, first = p->out.pushes;
	uint32_t slot_rows = p->wire.slot_rows, at = 0;
	struct span push = {first, first + (all->n ? (all->n - 1) / slot_rows + 1 : 1)};
	int rc;

	do {
		uint32_t left = all->n - at, n = slot_rows < left ? slot_rows : left;
		struct rows piece = {all->ids + at, all->values + at * row, n};

		rc = send_piece(p, &push, &piece, n < left);
		at += n;
	} while (rc == 0 && at < all->n);
	return rc < 0 ? rc : wait_if_long(p, &push);
}

static int make_push(gs_param *p, const struct rows *all)
{
	bool sends = push_begin(p);
	int rc = 0;

	if (sends && !push_is_in(p, 0, p->out.pushes))
		rc = send_rows(p, all);
	if (rc == 0)
		push_made(p);
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
		rc = make_push(p, &all);
	trainer_exit(t);
	return rc;
}

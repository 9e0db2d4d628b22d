/* SPDX-License-Identifier: Apache-2.0
 *
 * What tables take: stated before, reserved once, and touched as rows come. So a table is charged
 * for its longest push, and holds what its pushes need.
 */
#include "server/rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/err.h"
#include "proto/layout.h"
#include "server/internal.h"

/* Rows of one step, over all trainers: as many as they can push, and no more than there are. */
static uint64_t step_rows(const struct param *p, uint32_t ranks)
{
	uint64_t pushed = (uint64_t)ranks * p->decl.push_rows;

	return is_hashed(p) || pushed < p->decl.dim[0] ? pushed : p->decl.dim[0];
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int check_rule(const struct param *p)
{
	if (!kern_opt_by_rows(&p->opt))
		return err_set(EINVAL,
			       "optimizer \"%s\" needs the whole tensor: a table is updated "
			       "by rows",
			       p->decl.rule);
	if (p->opt.common.dc_lambda > 0)
		return err_set(EINVAL, "dc_lambda is %g: delays are not compensated in tables",
			       (double)p->opt.common.dc_lambda);
	return 0;
}

/* A slot and an answer are one write each. */
static int check_lengths(const struct param *p)
{
	uint64_t slot = layout_slot_bytes(p->decl.slot_rows, row_grad_bytes(p));
	uint64_t answer = layout_landing_bytes(p->decl.pull_rows, row_weight_bytes(p));

	if (slot > GEOMETRY_MAX_BLOCK_BYTES)
		return err_set(EINVAL,
			       "slot_rows is %u: a slot of %" PRIu64 " bytes, the limit is "
			       "%llu",
			       p->decl.slot_rows, slot, GEOMETRY_MAX_BLOCK_BYTES);
	if (answer > GEOMETRY_MAX_BLOCK_BYTES)
		return err_set(EINVAL,
			       "pull_rows is %u: %" PRIu64 " bytes at once, the limit is "
			       "%llu",
			       p->decl.pull_rows, answer, GEOMETRY_MAX_BLOCK_BYTES);
	return 0;
}

static int check_counts(const struct param *p)
{
	uint64_t rows = step_rows(p, p->srv->opt.trainers);

	if (rows > ROWSET_MAX)
		return err_set(EINVAL,
			       "push_rows is %u: %u trainers push %" PRIu64 " rows in a step, "
			       "the limit is %d",
			       p->decl.push_rows, p->srv->opt.trainers, rows, ROWSET_MAX);
	if (is_hashed(p) && p->decl.dim[0] > KEYMAP_MAX)
		return err_set(EINVAL,
			       "a capacity of %" PRIu64 " rows; the limit of a hashed table is "
			       "%d",
			       p->decl.dim[0], KEYMAP_MAX);
	if (p->decl.admit_after > KEYMAP_ADMIT_MAX)
		return err_set(EINVAL, "admit_after is %u; the limit is %d", p->decl.admit_after,
			       KEYMAP_ADMIT_MAX);
	return 0;
}

int rows_check(const struct param *p)
{
	int rc = check_rule(p);

	if (!rc)
		rc = check_lengths(p);
	return rc ? rc : check_counts(p);
}

/* How many ids an item holds, and how many different keys it can be about (a piece may be the last
 * of a push). */
static uint64_t item_ids(const struct param *p)
{
	return most(p->decl.slot_rows, p->decl.pull_rows);
}

static uint64_t item_keys(const struct param *p)
{
	return most(p->decl.push_rows, p->decl.pull_rows);
}

uint64_t rows_bytes(const struct param *p, uint32_t ranks)
{
	uint64_t bytes = sizeof(struct rows) + ranks * sizeof(struct part *) +
			 item_ids(p) * sizeof(int64_t) + ROWS_BATCH * table_dim(p) * sizeof(float);

	if (p->srv->opt.mode == SRV_SYNC)
		bytes = memory_plus(bytes, rowset_bytes(step_rows(p, ranks), table_dim(p)));
	if (!is_hashed(p))
		return bytes;
	bytes += item_keys(p) * sizeof(uint64_t) + p->decl.pull_rows * sizeof(uint32_t);
	bytes = memory_plus(bytes, rowset_bytes(p->decl.pull_rows, 0));
	return memory_plus(bytes, keymap_bytes(p->decl.dim[0], p->decl.admit_after));
}

uint64_t rows_part_bytes(const struct param *p)
{
	return rowset_bytes(p->decl.push_rows, table_dim(p));
}

static int create_hashed(struct param *p, struct rows *r)
{
	int rc = keymap_create((uint32_t)p->decl.dim[0], p->decl.admit_after, p->decl.evict_after,
			       &r->keys);

	if (!rc)
		rc = rowset_create(p->decl.pull_rows, 0, &r->wanted);
	if (rc)
		return rc;
	r->row = calloc(item_keys(p), sizeof(*r->row));
	r->position = calloc(p->decl.pull_rows, sizeof(*r->position));
	return r->row && r->position ? 0 : err_set(ENOMEM, "no memory for the keys of pulls");
}

int rows_create(struct param *p, uint32_t ranks)
{
	struct rows *r = calloc(1, sizeof(*r));
	int rc = 0;

	if (!r)
		return err_set(ENOMEM, "no memory for table \"%s\"", p->decl.name);
	p->rows = r;
	r->dim = table_dim(p);
	r->ids = calloc(item_ids(p), sizeof(*r->ids));
	r->batch = calloc(ROWS_BATCH * r->dim, sizeof(*r->batch));
	r->by_rank = calloc(ranks, sizeof(struct part *));
	if (!r->ids || !r->batch || !r->by_rank)
		rc = err_set(ENOMEM, "no memory for %" PRIu64 " rows", item_ids(p));
	if (!rc && p->srv->opt.mode == SRV_SYNC)
		rc = rowset_create((uint32_t)step_rows(p, ranks), r->dim, &r->total);
	if (!rc && is_hashed(p))
		rc = create_hashed(p, r);
	return rc ? err_wrap(rc, "table \"%s\"", p->decl.name) : 0;
}

void rows_destroy(struct rows *r)
{
	if (!r)
		return;
	rowset_destroy(&r->total);
	rowset_destroy(&r->wanted);
	keymap_destroy(&r->keys);
	free(r->by_rank);
	free(r->ids);
	free(r->row);
	free(r->position);
	free(r->batch);
	free(r);
}

int rows_create_parts(struct session *s)
{
	const struct table *t = srv_table(s->srv);
	int rc = 0;

	s->part = calloc(t->params, sizeof(*s->part));
	s->claim = calloc(t->params, sizeof(*s->claim));
	if (!s->part || !s->claim)
		return err_set(ENOMEM, "no memory for a trainer's part in %u parameters",
			       t->params);
	for (uint32_t i = 0; i < t->params && !rc; i++) {
		const struct param *p = &t->param[i];

		s->part[i].session = s;
		if (is_table(p))
			rc = rowset_create(p->decl.push_rows, table_dim(p), &s->part[i].set);
	}
	return rc;
}

void rows_destroy_parts(struct session *s)
{
	for (uint32_t i = 0; s->part && i < srv_table(s->srv)->params; i++)
		rowset_destroy(&s->part[i].set);
	free(s->part);
	free(s->claim);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Updating rows in place. Rows go to the kernel some at a time, with the version words of their
 * blocks odd meanwhile: a reader waits for a few rows, not for the push.
 */
#include "server/rows.h"

#include <string.h>

#include "server/param.h"

static struct block *block_of_row(const struct param *p, uint64_t row)
{
	return param_block(p, (uint32_t)(row * p->rows->dim / p->cut.block_elems));
}

static bool is_open(const struct block *b)
{
	return atomic_load_explicit(b->version, memory_order_relaxed) % 2;
}

/* A table is larger than any cache: what a batch is about is on its way while the rest of the batch
 * is looked up. */
static void fetch_row(const struct param *p, uint64_t row)
{
	__builtin_prefetch(p->weights + row * p->rows->dim, 1);
	for (unsigned i = 0; i < kern_opt_arrays(&p->opt); i++)
		__builtin_prefetch(p->state[i] + row * kern_opt_row_state(&p->opt, i, p->rows->dim),
				   1);
}

/* Several of the rows may lie in one block: its word moves once. */
static bool apply_batch(struct param *p, const struct kern_step *step, const uint64_t *row,
			const float *values, uint32_t n)
{
	struct block *open[ROWS_BATCH];
	uint32_t opened = 0;
	bool nonfinite;

	for (uint32_t i = 0; i < n; i++) {
		struct block *b = block_of_row(p, row[i]);

		if (is_open(b))
			continue;
		apply_begin(b);
		open[opened++] = b;
	}
	nonfinite =
	    kern_apply_rows(&p->opt, step, row, values, n, p->rows->dim, p->weights, p->state);
	while (opened)
		apply_end(open[--opened]);
	return nonfinite;
}

static uint64_t row_of(const struct param *p, int64_t id)
{
	return is_hashed(p) ? keymap_find(&p->rows->keys, id) : (uint64_t)id;
}

/* The rows that are named; a key that was not let in has none. */
static bool apply_named(struct param *p, const struct kern_step *step, const struct rowset *set)
{
	bool nonfinite = false;

	for (uint32_t at = 0; at < set->n;) {
		uint64_t row[ROWS_BATCH];
		uint32_t n = 0;

		while (n < ROWS_BATCH && at + n < set->n &&
		       (row[n] = row_of(p, set->id[at + n])) != KEYMAP_NONE)
			fetch_row(p, row[n++]);
		if (n)
			nonfinite |= apply_batch(p, step, row, rowset_value(set, at), n);
		at += n ? n : 1;
	}
	return nonfinite;
}

static const float *gradient_of_row(const struct param *p, const struct rowset *set, uint64_t row)
{
	bool hashed = is_hashed(p);
	uint32_t at = rowset_find(set, hashed ? p->rows->keys.row[row].key : (int64_t)row);

	return at == ROWSET_NONE ? NULL : rowset_value(set, at);
}

/* All rows that there are, with a gradient of zero where none came. */
static bool apply_all(struct param *p, const struct kern_step *step, const struct rowset *set)
{
	struct rows *r = p->rows;
	uint64_t rows = is_hashed(p) ? r->keys.used : p->decl.dim[0];
	bool nonfinite = false;

	for (uint64_t first = 0; first < rows; first += ROWS_BATCH) {
		uint64_t row[ROWS_BATCH];
		uint32_t n = 0;

		for (; n < ROWS_BATCH && first + n < rows; n++) {
			const float *from = gradient_of_row(p, set, first + n);
			float *to = r->batch + n * r->dim;

			row[n] = first + n;
			if (from)
				memcpy(to, from, r->dim * sizeof(float));
			else
				memset(to, 0, r->dim * sizeof(float));
		}
		nonfinite |= apply_batch(p, step, row, r->batch, n);
	}
	return nonfinite;
}

double rows_norm2(const struct rowset *set)
{
	return kern_norm2_rows(set->value, set->n, set->dim);
}

float rows_own_clip(const struct param *p, const struct rowset *set)
{
	float limit = p->opt.common.clip_norm;

	return limit > 0 ? kern_clip(rows_norm2(set), limit) : 1;
}

bool rows_update(struct param *p, const struct rowset *set, float clip, uint64_t clock)
{
	struct kern_step step = apply_step_of(p, ++p->rows->updates, clock, p->published);

	step.clip = clip;
	return p->lazy ? apply_named(p, &step, set) : apply_all(p, &step, set);
}

/* ---- hashed: rows that begin -------------------------------------------------------------------
 */

/* As if the table had a row for each of the 2^64 keys: key k has elements k·dim and on. What does
 * not fit the elements' number goes into the seed. */
void rows_initial(const struct param *p, int64_t key, float *out)
{
	unsigned __int128 first = (unsigned __int128)(uint64_t)key * p->rows->dim;
	uint64_t lap = (uint64_t)(first >> 64);

	table_initial(p, p->decl.init_seed + lap * 0x9e3779b97f4a7c15u, (uint64_t)first, out,
		      p->rows->dim);
}

void rows_begin_row(void *param, int64_t key, uint64_t row)
{
	struct param *p = param;
	uint64_t dim = p->rows->dim;
	float *w = p->weights + row * dim;

	if (p->snapshot.active)
		snapshot_block(block_of_row(p, row));
	rows_initial(p, key, w);
	if (param_has_copy(p))
		kern_narrow(param_weight_type(p), w,
			    (uint8_t *)p->published + row * row_weight_bytes(p), dim);
	for (unsigned i = 0; i < kern_opt_arrays(&p->opt); i++) {
		size_t n = kern_opt_row_state(&p->opt, i, dim);

		memset(p->state[i] + row * n, 0, n * sizeof(float));
	}
}

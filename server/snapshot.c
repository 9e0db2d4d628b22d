/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying a parameter out, unit by unit.
 */
#include "server/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "server/param.h"
#include "server/rows.h"

/* Of a unit: rows of a map, counters of a sketch. */
enum { MAP_ROWS = 4096, SKETCH_COUNTERS = 32768 };

/* ---- units ----------------------------------------------------------------------------------- */

static uint32_t parts(uint64_t n, uint64_t each)
{
	return (uint32_t)((n + each - 1) / each);
}

static uint32_t map_units(const struct param *p)
{
	return is_hashed(p) ? parts(p->decl.dim[0], MAP_ROWS) : 0;
}

uint32_t snapshot_units(const struct param *p)
{
	uint64_t counters = is_hashed(p) ? keymap_counters(p->decl.dim[0], p->decl.admit_after) : 0;

	return p->cut.blocks + map_units(p) + parts(counters, SKETCH_COUNTERS);
}

/* How many of a rank's pushes of a block are in the weights. */
static uint64_t applied(const struct param *p, uint32_t rank, uint32_t block)
{
	return ledger_look(&p->srv->ledger, rank, p->place.first_block + block);
}

static void copy_applied(const struct param *p, uint32_t block, uint64_t *to)
{
	uint32_t ranks = srv_table(p->srv)->ranks, blocks = param_words(p);

	for (uint32_t r = 0; to && r < ranks; r++)
		to[(size_t)r * blocks + block] = applied(p, r, block);
}

static void copy_dense(const struct param *p, const struct block *b, uint32_t i)
{
	const struct snapshot_to *to = &p->snapshot.to;

	memcpy(to->weights + b->first, p->weights + b->first, b->elems * sizeof(float));
	for (unsigned k = 0; k < kern_opt_arrays(&p->opt); k++)
		memcpy(to->state[k] + b->first, p->state[k] + b->first, b->elems * sizeof(float));
	to->updates[i] = block_updates(b);
	copy_applied(p, i, to->applied);
}

/* Rows that no key has yet hold nothing. */
static void copy_rows(const struct param *p, const struct block *b)
{
	const struct snapshot_to *to = &p->snapshot.to;
	uint64_t dim = table_dim(p), row = b->first / dim, n = b->elems / dim;

	if (is_hashed(p) && row + n > to->map[SNAPSHOT_USED])
		n = row < to->map[SNAPSHOT_USED] ? to->map[SNAPSHOT_USED] - row : 0;
	memcpy(to->weights + row * dim, p->weights + row * dim, n * dim * sizeof(float));
	for (unsigned k = 0; k < kern_opt_arrays(&p->opt); k++) {
		uint64_t each = kern_opt_row_state(&p->opt, k, dim);

		memcpy(to->state[k] + row * each, p->state[k] + row * each,
		       n * each * sizeof(float));
	}
}

static void copy_map(const struct param *p, uint32_t i)
{
	const struct snapshot_to *to = &p->snapshot.to;
	const struct keymap *map = &p->rows->keys;
	uint64_t end = (uint64_t)(i + 1) * MAP_ROWS;

	if (end > map->capacity)
		end = map->capacity;
	for (uint64_t r = (uint64_t)i * MAP_ROWS; r < end; r++) {
		to->keys[r] = map->row[r].key;
		to->touched[r] = map->row[r].touched;
		to->newer[r] = map->row[r].newer;
		to->older[r] = map->row[r].older;
	}
}

static void copy_sketch(const struct param *p, uint32_t i)
{
	const struct keymap *map = &p->rows->keys;
	uint64_t first = (uint64_t)i * SKETCH_COUNTERS, n = map->counts - first;

	if (n > SKETCH_COUNTERS)
		n = SKETCH_COUNTERS;
	memcpy(p->snapshot.to.sketch + first, map->count + first, n * sizeof(*map->count));
}

static void copy(struct param *p, uint32_t unit)
{
	struct snapshot *s = &p->snapshot;
	uint32_t blocks = p->cut.blocks, maps = map_units(p);

	if (unit >= blocks + maps)
		copy_sketch(p, unit - blocks - maps);
	else if (unit >= blocks)
		copy_map(p, unit - blocks);
	else if (is_table(p))
		copy_rows(p, param_block(p, unit));
	else
		copy_dense(p, param_block(p, unit), unit);
	s->copied[unit] = true;
	if (--s->left)
		return;
	s->active = false;
	if (p->joint)
		p->joint->snapshots--;
	if (is_hashed(p))
		p->rows->keys.watch = NULL;
	/* Release: whoever sees it sees the copies. */
	atomic_store_explicit(&s->complete, true, memory_order_release);
}

/* ---- before something changes ---------------------------------------------------------------- */

static void before(struct param *p, uint32_t unit)
{
	struct snapshot *s = &p->snapshot;

	if (!s->active || s->copied[unit])
		return;
	s->by_update++;
	copy(p, unit);
}

void snapshot_block(const struct block *b)
{
	before(b->param, b->id - b->param->place.first_block);
}

void snapshot_all(struct param *p)
{
	for (uint32_t i = 0; p->snapshot.active && i < p->snapshot.units; i++)
		before(p, i);
}

static void before_row(void *param, uint32_t row)
{
	struct param *p = param;

	before(p, p->cut.blocks + row / MAP_ROWS);
}

static void before_counter(void *param, uint64_t counter)
{
	struct param *p = param;

	before(p, p->cut.blocks + map_units(p) + (uint32_t)(counter / SKETCH_COUNTERS));
}

/* ---- the cut --------------------------------------------------------------------------------- */

static void cut_hashed(struct param *p)
{
	struct keymap *map = &p->rows->keys;
	uint64_t *to = p->snapshot.to.map;

	to[SNAPSHOT_USED] = map->used;
	to[SNAPSHOT_EVICTIONS] = map->evictions;
	to[SNAPSHOT_HAND] = map->hand;
	to[SNAPSHOT_NEWEST] = map->newest;
	to[SNAPSHOT_OLDEST] = map->oldest;
	map->watch = &p->rows->watch;
}

static void cut(struct param *p)
{
	struct snapshot *s = &p->snapshot;

	memset(s->copied, 0, s->units);
	s->left = s->units;
	s->next = 0;
	s->due = false;
	s->active = true;
	if (p->joint)
		p->joint->snapshots++;
	s->rate = p->lr;
	s->updates = is_table(p) ? p->rows->updates : block_updates(param_block(p, 0));
	if (is_table(p))
		copy_applied(p, 0, s->to.applied);
	if (is_hashed(p))
		cut_hashed(p);
}

static void copy_next(struct param *p)
{
	struct snapshot *s = &p->snapshot;

	while (s->copied[s->next])
		s->next++;
	copy(p, s->next);
}

void snapshot_item(struct param *p)
{
	struct snapshot *s = &p->snapshot;

	if (s->due)
		cut(p);
	else if (s->active)
		copy_next(p);
	saver_done_one(&p->srv->saver);
}

/* ---- memory ---------------------------------------------------------------------------------- */

int snapshot_create(struct param *p)
{
	struct snapshot *s = &p->snapshot;

	s->item = (struct item){.kind = ITEM_SNAPSHOT, .home = p->home};
	s->units = snapshot_units(p);
	s->copied = malloc(s->units);
	if (is_table(p))
		p->rows->watch = (struct keymap_watch){before_row, before_counter, p};
	return s->copied
		   ? 0
		   : err_set(ENOMEM, "no memory to keep what is copied of \"%s\"", p->decl.name);
}

void snapshot_destroy(struct param *p)
{
	free(p->snapshot.copied);
	p->snapshot.copied = NULL;
}

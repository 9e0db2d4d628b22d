/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots (server/snapshot.h): what is copied is what was there at the cut, and an update copies
 * no more than what it changes, once.
 */
#include "server/snapshot.h"

#include <stdlib.h>

#include "server/apply.h"
#include "server/internal.h"
#include "server/rows.h"
#include "suite.h"

enum { BLOCK = 256, BLOCKS = 5, ELEMS = (BLOCKS - 1) * BLOCK + 7, ROWS = 10000 };

static struct srv *srv;
static struct table *table;
static struct param *line, *keyed;
static struct snapshot_to to[2];

static void *room(size_t n, size_t each)
{
	void *p = calloc(n, each);

	ck_assert_ptr_nonnull(p);
	return p;
}

static void setup(void)
{
	struct wire_param p[2] = {
	    {.name = "line",
	     .ndim = 1,
	     .dim = {ELEMS},
	     .rule = "momentum",
	     .n_settings = 1,
	     .setting = {{"lr", 0.5}},
	     .init = WIRE_INIT_UNIFORM,
	     .init_b = 1},
	    {.name = "keyed",
	     .ndim = 2,
	     .dim = {ROWS, 1},
	     .rule = "adagrad",
	     .n_settings = 1,
	     .setting = {{"lr", 0.5}},
	     .init = WIRE_INIT_UNIFORM,
	     .init_b = 1,
	     .storage = WIRE_HASHED,
	     .slot_rows = 8,
	     .push_rows = 64,
	     .pull_rows = 8,
	     .admit_after = 2,
	     .evict_after = 1},
	};

	srv = aligned_alloc(64, (sizeof(*srv) + 63) / 64 * 64);
	memset(srv, 0, sizeof(*srv));
	srv->opt = srv_options_default();
	srv->opt.block_kib = 1;
	ck_assert_int_eq(table_create(srv, p, 2, &table), 0);
	ck_assert_int_eq(table_allocate(table), 0);
	srv->table = table;
	sem_init(&srv->saver.done, 0, 0);
	line = &table->param[0];
	keyed = &table->param[1];
	to[0] = (struct snapshot_to){
	    .weights = room(ELEMS, 4), .state = {room(ELEMS, 4)}, .updates = room(BLOCKS, 8)};
	to[1] = (struct snapshot_to){.weights = room(ROWS, 4),
				     .state = {room(ROWS, 4)},
				     .keys = room(ROWS, 8),
				     .touched = room(ROWS, 8),
				     .newer = room(ROWS, 4),
				     .older = room(ROWS, 4),
				     .map = room(SNAPSHOT_MAP, 8),
				     .sketch = room(keymap_counters(ROWS, 2), 2)};
}

static void teardown(void)
{
	for (int i = 0; i < 2; i++) {
		free(to[i].weights);
		free(to[i].state[0]);
		free(to[i].updates);
		free(to[i].keys);
		free(to[i].touched);
		free(to[i].newer);
		free(to[i].older);
		free(to[i].map);
		free(to[i].sketch);
	}
	sem_destroy(&srv->saver.done);
	table_destroy(table);
	free(srv);
}

/* As the saver asks for it, and waits. */
static void ask(struct param *p)
{
	atomic_store(&srv->saver.open, 1);
	snapshot_item(p);
	ck_assert_int_eq(sem_trywait(&srv->saver.done), 0);
}

static void begin(struct param *p, const struct snapshot_to *where)
{
	p->snapshot.to = *where;
	p->snapshot.due = true;
	atomic_store(&p->snapshot.complete, false);
	ask(p);
	ck_assert(p->snapshot.active && !atomic_load(&p->snapshot.complete));
}

static uint32_t finish(struct param *p)
{
	uint32_t asked = 0;

	for (; !atomic_load(&p->snapshot.complete); asked++)
		ask(p);
	ck_assert(!p->snapshot.active);
	return asked;
}

static void update(uint32_t block)
{
	struct block *b = &table->block[line->place.first_block + block];
	struct kern_step step = apply_step(b, 0);
	const void *data[1];
	float grad[BLOCK];

	for (uint32_t i = 0; i < BLOCK; i++)
		grad[i] = (float)(i + block);
	data[0] = grad;
	apply_gradients(b, &step,
			&(struct kern_grads){.data = data, .n = 1, .scale = 1, .dtype = KERN_F32});
}

/* ---- dense ----------------------------------------------------------------------------------- */

START_TEST(an_update_copies_its_block_once)
{
	float w[ELEMS], state[ELEMS];

	update(1);
	update(4);
	ck_assert_uint_eq(line->snapshot.by_update, 0);
	memcpy(w, line->weights, sizeof(w));
	memcpy(state, line->state[0], sizeof(state));
	begin(line, &to[0]);
	for (uint32_t i = 0; i < 3; i++) {
		update(2);
		ck_assert_uint_eq(line->snapshot.by_update, 1);
	}
	ask(line);
	update(0); /* copied by the item before */
	ck_assert_uint_eq(line->snapshot.by_update, 1);
	update(4);
	ck_assert_uint_eq(line->snapshot.by_update, 2);
	ck_assert_uint_eq(finish(line), BLOCKS - 3);
	ck_assert_mem_eq(to[0].weights, w, sizeof(w));
	ck_assert_mem_eq(to[0].state[0], state, sizeof(state));
	for (uint32_t i = 0; i < BLOCKS; i++)
		ck_assert_uint_eq(to[0].updates[i], i == 1 || i == 4);
	update(3);
	ck_assert_uint_eq(line->snapshot.by_update, 2);
}
END_TEST

/* One that comes when updates have copied all that was left changes nothing. */
START_TEST(an_item_too_many)
{
	begin(line, &to[0]);
	for (uint32_t i = 0; i < BLOCKS; i++)
		update(i);
	ck_assert(atomic_load(&line->snapshot.complete));
	to[0].weights[0] = line->snapshot.to.weights[0] = 77;
	ask(line);
	ck_assert(line->snapshot.to.weights[0] == 77 && !line->snapshot.active);
}
END_TEST

/* An update that needs all of it at once copies all that is left. */
START_TEST(all_at_once)
{
	begin(line, &to[0]);
	ask(line);
	snapshot_all(line);
	ck_assert_uint_eq(line->snapshot.by_update, BLOCKS - 1);
	ck_assert(atomic_load(&line->snapshot.complete));
}
END_TEST

/* ---- hashed ---------------------------------------------------------------------------------- */

static void touch(int64_t key, uint64_t clock)
{
	uint64_t row;
	int64_t refused;

	keymap_touch(&keyed->rows->keys, &key, 1, clock, &row, rows_begin_row, keyed, &refused);
}

static void touch_some(uint64_t *rng, uint32_t n, uint64_t clock)
{
	for (uint32_t i = 0; i < n; i++)
		touch((int64_t)rnd(rng, 3 * ROWS), clock + i / 100);
}

struct map_was {
	float w[ROWS];
	struct keymap_row row[ROWS];
	uint16_t sketch[1 << 16];
	struct keymap map;
};

static struct map_was *remember(void)
{
	struct map_was *was = malloc(sizeof(*was));
	const struct keymap *map = &keyed->rows->keys;

	ck_assert_uint_le(map->counts, 1 << 16);
	was->map = *map;
	memcpy(was->w, keyed->weights, sizeof(was->w));
	memcpy(was->row, map->row, sizeof(was->row));
	memcpy(was->sketch, map->count, map->counts * sizeof(*map->count));
	return was;
}

static void expect_copied(const struct map_was *was)
{
	uint32_t used = was->map.used;

	ck_assert_uint_eq(to[1].map[SNAPSHOT_USED], used);
	ck_assert_uint_eq(to[1].map[SNAPSHOT_HAND], was->map.hand);
	ck_assert_uint_eq(to[1].map[SNAPSHOT_NEWEST], was->map.newest);
	ck_assert_uint_eq(to[1].map[SNAPSHOT_OLDEST], was->map.oldest);
	ck_assert_mem_eq(to[1].weights, was->w, used * sizeof(float));
	ck_assert_mem_eq(to[1].sketch, was->sketch, was->map.counts * sizeof(uint16_t));
	for (uint32_t r = 0; r < used; r++) {
		ck_assert_int_eq(to[1].keys[r], was->row[r].key);
		ck_assert_uint_eq(to[1].touched[r], was->row[r].touched);
		ck_assert_uint_eq(to[1].newer[r], was->row[r].newer);
		ck_assert_uint_eq(to[1].older[r], was->row[r].older);
	}
}

/* Keys that come, are touched, go, and earn their rows, between the copies. */
START_TEST(a_map_as_it_was)
{
	uint64_t rng = 5 + (uint64_t)_i, before;
	struct map_was *was;

	touch_some(&rng, _i ? 8 * ROWS : ROWS, 1);
	was = remember();
	begin(keyed, &to[1]);
	while (!atomic_load(&keyed->snapshot.complete)) {
		for (uint32_t i = 0; i < 3; i++) {
			before = keyed->snapshot.by_update;
			touch((int64_t)rnd(&rng, 3 * ROWS), 2000 + i);
			/* Its own block and row, two neighbours on either side, and six counters.
			 */
			ck_assert_uint_le(keyed->snapshot.by_update - before, 8);
		}
		ask(keyed);
	}
	ck_assert_uint_gt(keyed->snapshot.by_update, 0);
	expect_copied(was);
	ck_assert_ptr_null(keyed->rows->keys.watch);
	free(was);
}
END_TEST

/* What was copied makes a map that goes on as the old one does. */
START_TEST(a_map_goes_on)
{
	uint64_t rng = 9, again;
	struct keymap map;
	struct keymap_saved saved;

	touch_some(&rng, 8 * ROWS, 1);
	begin(keyed, &to[1]);
	finish(keyed);
	saved = (struct keymap_saved){.used = to[1].map[SNAPSHOT_USED],
				      .evictions = to[1].map[SNAPSHOT_EVICTIONS],
				      .hand = to[1].map[SNAPSHOT_HAND],
				      .newest = to[1].map[SNAPSHOT_NEWEST],
				      .oldest = to[1].map[SNAPSHOT_OLDEST],
				      .keys = to[1].keys,
				      .touched = to[1].touched,
				      .newer = to[1].newer,
				      .older = to[1].older,
				      .sketch = to[1].sketch};
	ck_assert_int_eq(keymap_create(ROWS, 2, 1, &map), 0);
	ck_assert_int_eq(keymap_restore(&map, &saved), 0);
	again = rng;
	touch_some(&rng, 2 * ROWS, 2000);
	ck_assert_uint_gt(keyed->rows->keys.evictions, saved.evictions);
	struct keymap old = keyed->rows->keys;
	keyed->rows->keys = map;
	touch_some(&again, 2 * ROWS, 2000);
	map = keyed->rows->keys;
	keyed->rows->keys = old;
	ck_assert_uint_eq(map.used, old.used);
	ck_assert_uint_eq(map.evictions, old.evictions);
	for (uint32_t r = 0; r < map.used; r++) {
		ck_assert_int_eq(map.row[r].key, old.row[r].key);
		ck_assert_uint_eq(map.row[r].touched, old.row[r].touched);
	}
	ck_assert_mem_eq(map.count, old.count, map.counts * sizeof(*map.count));
	keymap_destroy(&map);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("snapshot");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, an_update_copies_its_block_once);
	tcase_add_test(t, an_item_too_many);
	tcase_add_test(t, all_at_once);
	tcase_add_loop_test(t, a_map_as_it_was, 0, 2);
	tcase_add_test(t, a_map_goes_on);
	return run_suite("snapshot", t);
}

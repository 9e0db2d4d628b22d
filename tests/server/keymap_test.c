/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and their rows (server/keymap.h), against a list that is looked through.
 */
#include "server/keymap.h"

#include <errno.h>
#include <stdbool.h>

#include "suite.h"

enum { MOST = 200 };

/* Who has each row now, and who was told so. */
struct owners {
	bool taken[MOST];
	int64_t key[MOST];
	uint32_t fresh;
};

static void on_fresh(void *arg, int64_t key, uint64_t row)
{
	struct owners *o = arg;

	ck_assert_uint_lt(row, MOST);
	o->taken[row] = true;
	o->key[row] = key;
	o->fresh++;
}

static int touch1(struct keymap *map, int64_t key, uint64_t clock, uint64_t *row, struct owners *o)
{
	int64_t refused = 0;
	int rc = keymap_touch(map, &key, 1, clock, row, on_fresh, o, &refused);

	if (rc)
		ck_assert_int_eq(refused, key);
	return rc;
}

START_TEST(rows_come_on_first_touch)
{
	struct owners o = {0};
	struct keymap map;
	uint64_t row;

	ck_assert_int_eq(keymap_create(3, 1, 0, &map), 0);
	ck_assert_uint_eq(keymap_find(&map, 0), KEYMAP_NONE);
	for (int64_t i = 0; i < 3; i++) {
		ck_assert_int_eq(touch1(&map, i - 1, 0, &row, &o), 0);
		ck_assert_uint_eq(row, i);
		ck_assert_int_eq(o.key[i], i - 1);
	}
	ck_assert_int_eq(touch1(&map, -1, 0, &row, &o), 0);
	ck_assert_uint_eq(row, 0);
	ck_assert_uint_eq(o.fresh, 3);
	ck_assert_int_eq(touch1(&map, INT64_MIN, 1000, &row, &o), -ENOSPC);
	ck_assert_uint_eq(keymap_find(&map, INT64_MIN), KEYMAP_NONE);
	keymap_destroy(&map);
}
END_TEST

START_TEST(all_new_keys_or_none)
{
	const int64_t keys[] = {7, 10, 11, 12, 13};
	struct owners o = {0};
	struct keymap map;
	uint64_t rows[5];
	int64_t refused = 0;

	ck_assert_int_eq(keymap_create(4, 1, 0, &map), 0);
	ck_assert_int_eq(keymap_touch(&map, keys, 2, 0, rows, on_fresh, &o, &refused), 0);
	ck_assert_int_eq(keymap_touch(&map, keys, 5, 0, rows, on_fresh, &o, &refused), -ENOSPC);
	ck_assert_int_eq(refused, 13); /* 11 and 12 would have had the last two rows */
	ck_assert_uint_eq(o.fresh, 2);
	ck_assert_uint_eq(keymap_find(&map, 11), KEYMAP_NONE);
	ck_assert_int_eq(keymap_touch(&map, keys, 4, 0, rows, on_fresh, &o, &refused), 0);
	for (uint64_t i = 0; i < 4; i++)
		ck_assert_uint_eq(rows[i], i);
	keymap_destroy(&map);
}
END_TEST

START_TEST(rows_come_after_so_many_touches)
{
	struct owners o = {0};
	struct keymap map;
	uint64_t row;

	ck_assert_int_eq(keymap_create(2, 4, 0, &map), 0);
	for (int i = 1; i <= 3; i++) {
		ck_assert_int_eq(touch1(&map, 42, 0, &row, &o), 0);
		ck_assert_uint_eq(row, KEYMAP_NONE);
	}
	ck_assert_int_eq(touch1(&map, 42, 0, &row, &o), 0);
	ck_assert_uint_eq(row, 0);
	/* Full tables don't refuse who would get no row anyway. */
	for (int i = 1; i <= 4; i++)
		ck_assert_int_eq(touch1(&map, 43, 0, &row, &o), 0);
	for (int i = 1; i <= 3; i++)
		ck_assert_int_eq(touch1(&map, 44, 0, &row, &o), 0);
	ck_assert_int_eq(touch1(&map, 44, 0, &row, &o), -ENOSPC);
	keymap_destroy(&map);
}
END_TEST

/* Keys that never come again must not, all together, let each other in. */
START_TEST(counts_fade)
{
	struct owners o = {0};
	struct keymap map;
	uint32_t let_in = 0;
	uint64_t row;

	ck_assert_int_eq(keymap_create(MOST, 3, 1, &map), 0);
	for (int64_t key = 0; key < 50000; key++) {
		ck_assert_int_eq(touch1(&map, key, (uint64_t)key * 10, &row, &o), 0);
		let_in += row != KEYMAP_NONE;
	}
	ck_assert_uint_lt(let_in, 500);
	ck_assert_uint_eq(o.fresh, let_in);
	keymap_destroy(&map);
}
END_TEST

START_TEST(the_oldest_goes_and_only_when_it_is_old)
{
	struct owners o = {0};
	struct keymap map;
	uint64_t row;

	ck_assert_int_eq(keymap_create(3, 1, 5, &map), 0);
	for (int64_t key = 0; key < 3; key++)
		ck_assert_int_eq(touch1(&map, key, (uint64_t)key, &row, &o), 0);
	ck_assert_int_eq(touch1(&map, 0, 4, &row, &o), 0);
	ck_assert_int_eq(touch1(&map, 9, 6, &row, &o), -ENOSPC); /* key 1 is 5 updates old */
	ck_assert_int_eq(touch1(&map, 9, 7, &row, &o), 0);
	ck_assert_uint_eq(row, 1);
	ck_assert_int_eq(o.key[1], 9);
	ck_assert_uint_eq(keymap_find(&map, 1), KEYMAP_NONE);
	ck_assert_uint_eq(keymap_find(&map, 0), 0);
	ck_assert_uint_eq(keymap_find(&map, 2), 2);
	ck_assert_uint_eq(map.evictions, 1);
	keymap_destroy(&map);
}
END_TEST

/* A key that is old, and named in the very call that wants room, stays. */
START_TEST(what_is_named_stays)
{
	const int64_t keys[] = {100, 0};
	struct owners o = {0};
	struct keymap map;
	uint64_t rows[2];
	int64_t refused = 0;

	ck_assert_int_eq(keymap_create(1, 1, 1, &map), 0);
	ck_assert_int_eq(touch1(&map, 0, 0, rows, &o), 0);
	ck_assert_int_eq(keymap_touch(&map, keys, 2, 50, rows, on_fresh, &o, &refused), -ENOSPC);
	ck_assert_int_eq(refused, 100);
	ck_assert_uint_eq(keymap_find(&map, 0), 0);
	ck_assert_int_eq(touch1(&map, 100, 99, rows, &o), 0);
	ck_assert_uint_eq(rows[0], 0);
	keymap_destroy(&map);
}
END_TEST

/* ---- against a model ---------------------------------------------------------------------------
 */

struct model {
	uint32_t capacity, used;
	uint64_t evict_after;
	int64_t key[MOST];
	uint64_t touched[MOST], order[MOST], calls; /* order: of the last touch */
};

static uint32_t model_find(const struct model *m, int64_t key)
{
	uint32_t r = 0;

	while (r < m->used && m->key[r] != key)
		r++;
	return r;
}

static uint32_t model_oldest(const struct model *m)
{
	uint32_t least = 0;

	for (uint32_t r = 1; r < m->used; r++)
		if (m->order[r] < m->order[least])
			least = r;
	return least;
}

static uint32_t model_room(const struct model *m, uint64_t clock)
{
	uint32_t room = m->capacity - m->used;

	for (uint32_t r = 0; r < m->used; r++)
		room += m->evict_after && clock - m->touched[r] > m->evict_after;
	return room;
}

/* True: all fit. */
static bool model_touch(struct model *m, const int64_t *keys, uint32_t n, uint64_t clock)
{
	uint32_t fresh = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t r = model_find(m, keys[i]);

		fresh += r == m->used;
		if (r < m->used) {
			m->touched[r] = clock;
			m->order[r] = ++m->calls;
		}
	}
	if (fresh > model_room(m, clock))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t r = model_find(m, keys[i]);

		if (r < m->used)
			continue;
		r = m->used < m->capacity ? m->used++ : model_oldest(m);
		m->key[r] = keys[i];
		m->touched[r] = clock;
		m->order[r] = ++m->calls;
	}
	return true;
}

static uint32_t draw_keys(uint64_t *seed, int64_t *keys, uint32_t most, uint32_t below)
{
	uint32_t n = 0;

	for (uint32_t tries = rnd(seed, most) + 1; tries; tries--) {
		int64_t key = (int64_t)((uint64_t)rnd(seed, below) << (below % 3 * 20)) - 50;
		uint32_t i = 0;

		while (i < n && keys[i] != key)
			i++;
		if (i == n)
			keys[n++] = key;
	}
	return n;
}

START_TEST(agrees_with_a_model)
{
	uint64_t seed = 5 + (uint64_t)_i, clock = 0;
	struct model m = {.capacity = 1 + rnd(&seed, MOST), .evict_after = (uint64_t)_i % 4};
	struct owners o = {0};
	struct keymap map;

	ck_assert_int_eq(keymap_create(m.capacity, 1, m.evict_after, &map), 0);
	for (int call = 0; call < 1000; call++) {
		int64_t keys[40], refused;
		uint64_t rows[40];
		uint32_t n = draw_keys(&seed, keys, 40, 2 * m.capacity + 1 + (uint32_t)_i % 3);
		bool fits = model_touch(&m, keys, n, clock);
		int rc = keymap_touch(&map, keys, n, clock, rows, on_fresh, &o, &refused);

		ck_assert_int_eq(rc, fits ? 0 : -ENOSPC);
		for (uint32_t i = 0; fits && i < n; i++) {
			ck_assert_uint_eq(rows[i], model_find(&m, keys[i]));
			ck_assert(o.taken[rows[i]] && o.key[rows[i]] == keys[i]);
		}
		ck_assert_uint_eq(map.used, m.used);
		for (uint32_t r = 0; r < m.used; r++)
			ck_assert_uint_eq(keymap_find(&map, m.key[r]), r);
		clock += rnd(&seed, 3);
	}
	keymap_destroy(&map);
}
END_TEST

START_TEST(states_its_memory)
{
	uint64_t rows = 1000 * sizeof(struct keymap_row), buckets = 2048 * 4;

	ck_assert_uint_eq(keymap_bytes(1000, 1), rows + buckets);
	ck_assert_uint_eq(keymap_bytes(1000, 2), rows + buckets + 4096 * 2);
}
END_TEST

/* ---- coming back ----------------------------------------------------------------------------- */

struct saved {
	int64_t key[4];
	uint64_t touched[4];
	uint32_t newer[4], older[4];
	struct keymap_saved all;
};

/* Rows 0 to 2 in the order 1, 0, 2. */
static void sound(struct saved *s)
{
	*s = (struct saved){.key = {10, 11, 12}, .touched = {5, 4, 5}, .newer = {2, 0, 99, 0},
			    .older = {1, 99, 0, 0}};
	s->all = (struct keymap_saved){.used = 3, .newest = 2, .oldest = 1, .evictions = 7,
				       .keys = s->key, .touched = s->touched, .newer = s->newer,
				       .older = s->older};
}

static int restore(const struct saved *s)
{
	struct owners o = {0};
	struct keymap map;
	uint64_t row;
	int rc;

	ck_assert_int_eq(keymap_create(3, 1, 2, &map), 0);
	rc = keymap_restore(&map, &s->all);
	if (rc == 0) {
		for (int64_t k = 0; k < 3; k++)
			ck_assert_uint_eq(keymap_find(&map, 10 + k), k);
		ck_assert_uint_eq(map.evictions, 7);
		ck_assert_int_eq(touch1(&map, 20, 8, &row, &o), 0);
		ck_assert_uint_eq(row, 1); /* the oldest */
	}
	keymap_destroy(&map);
	return rc;
}

START_TEST(what_was_saved_comes_back)
{
	struct keymap map;
	struct saved s;

	sound(&s);
	ck_assert_int_eq(restore(&s), 0);
	s.all.used = 0; /* the rest says nothing then */
	s.all.newest = 55;
	ck_assert_int_eq(keymap_create(3, 1, 2, &map), 0);
	ck_assert_int_eq(keymap_restore(&map, &s.all), 0);
	ck_assert_uint_eq(map.used, 0);
	keymap_destroy(&map);
}
END_TEST

START_TEST(what_contradicts_itself_is_refused)
{
	struct saved s;

	for (int i = 0; i < 12; i++) {
		sound(&s);
		switch (i) {
		case 0: s.all.used = 4; break;
		case 1: s.all.newest = 3; break;
		case 2: s.all.oldest = UINT64_MAX; break;
		case 3: s.key[2] = 10; break;         /* two rows */
		case 4: s.newer[0] = 1; s.older[1] = 0; break; /* round in circles */
		case 5: s.newer[0] = 3; break;
		case 6: s.newer[1] = UINT32_MAX; break;
		case 7: s.older[2] = 1; break;
		case 8: s.touched[0] = 6; break;      /* older, and touched later */
		case 9: s.all.newest = 0; break;      /* before the end */
		case 10: s.all.used = 2; break;
		case 11: s.newer[1] = 1; s.older[1] = 1; break;
		}
		ck_assert_msg(restore(&s) == -EINVAL, "case %d", i);
	}
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("keymap");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, rows_come_on_first_touch);
	tcase_add_test(t, all_new_keys_or_none);
	tcase_add_test(t, rows_come_after_so_many_touches);
	tcase_add_test(t, counts_fade);
	tcase_add_test(t, the_oldest_goes_and_only_when_it_is_old);
	tcase_add_test(t, what_is_named_stays);
	tcase_add_loop_test(t, agrees_with_a_model, 0, 8);
	tcase_add_test(t, states_its_memory);
	tcase_add_test(t, what_was_saved_comes_back);
	tcase_add_test(t, what_contradicts_itself_is_refused);
	return run_suite("keymap", t);
}

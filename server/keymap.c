/* SPDX-License-Identifier: Apache-2.0
 *
 * Which row a key has.
 */
#include "server/keymap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/err.h"
#include "server/mix.h"

/* A touch of a key without a row halves this many counters: a quarter of the table's, at four for
 * each row, once in `capacity` such touches. */
enum { HALVED = 4, COUNTS_MIN = 4096 };

#define DUE (KEYMAP_NONE - 1) /* a key that gets a row if all can */

static uint64_t buckets_of(uint64_t capacity)
{
	return pow2_at_least(2 * capacity);
}

static uint64_t counts_of(uint64_t capacity, uint32_t admit_after)
{
	if (admit_after <= 1)
		return 0;
	return 4 * capacity < COUNTS_MIN ? COUNTS_MIN : pow2_at_least(4 * capacity);
}

uint64_t keymap_bytes(uint64_t capacity, uint32_t admit_after)
{
	return capacity * sizeof(struct keymap_row) + buckets_of(capacity) * sizeof(uint32_t) +
	       counts_of(capacity, admit_after) * sizeof(uint16_t);
}

int keymap_create(uint32_t capacity, uint32_t admit_after, uint64_t evict_after, struct keymap *out)
{
	struct keymap map = {
	    .capacity = capacity,
	    .admit_after = admit_after,
	    .evict_after = evict_after,
	    .mask = buckets_of(capacity) - 1,
	    .secret = mix_key(),
	    .counts = counts_of(capacity, admit_after),
	};

	map.row = calloc(capacity, sizeof(*map.row));
	map.bucket = calloc(map.mask + 1, sizeof(*map.bucket));
	if (map.counts)
		map.count = calloc(map.counts, sizeof(*map.count));
	if (!map.row || !map.bucket || (map.counts && !map.count)) {
		keymap_destroy(&map);
		return err_set(ENOMEM, "no memory for the keys of %u rows", capacity);
	}
	*out = map;
	return 0;
}

void keymap_destroy(struct keymap *map)
{
	free(map->row);
	free(map->bucket);
	free(map->count);
	*map = (struct keymap){0};
}

/* ---- buckets --------------------------------------------------------------------------------- */

static uint64_t home_of(const struct keymap *map, int64_t key)
{
	return mix_keyed((uint64_t)key, map->secret) & map->mask;
}

static uint64_t bucket_of(const struct keymap *map, int64_t key)
{
	uint64_t b = home_of(map, key);

	while (map->bucket[b] && map->row[map->bucket[b] - 1].key != key)
		b = (b + 1) & map->mask;
	return b;
}

uint64_t keymap_find(const struct keymap *map, int64_t key)
{
	uint32_t entry = map->bucket[bucket_of(map, key)];

	return entry ? entry - 1 : KEYMAP_NONE;
}

/* Empties a bucket, and moves up those behind it that a probe would no longer reach. */
static void forget(struct keymap *map, int64_t key)
{
	uint64_t hole = bucket_of(map, key);

	for (uint64_t b = hole;;) {
		b = (b + 1) & map->mask;
		if (!map->bucket[b])
			break;
		uint64_t home = home_of(map, map->row[map->bucket[b] - 1].key);
		if (((b - home) & map->mask) >= ((b - hole) & map->mask)) {
			map->bucket[hole] = map->bucket[b];
			hole = b;
		}
	}
	map->bucket[hole] = 0;
}

/* ---- ages ------------------------------------------------------------------------------------ */

static void unlink_row(struct keymap *map, uint32_t r)
{
	struct keymap_row *row = &map->row[r];

	if (r == map->newest)
		map->newest = row->older;
	else
		map->row[row->newer].older = row->older;
	if (r == map->oldest)
		map->oldest = row->newer;
	else
		map->row[row->older].newer = row->newer;
}

static void link_newest(struct keymap *map, uint32_t r, bool first)
{
	if (first)
		map->oldest = r;
	else
		map->row[map->newest].newer = r;
	map->row[r].older = map->newest;
	map->newest = r;
}

static void renew(struct keymap *map, uint32_t r, uint64_t clock)
{
	map->row[r].touched = clock;
	if (r == map->newest)
		return;
	unlink_row(map, r);
	link_newest(map, r, false);
}

static bool may_go(const struct keymap *map, uint32_t r, uint64_t clock)
{
	/* What this call itself touched has the clock's age: none. */
	return map->evict_after && clock - map->row[r].touched > map->evict_after;
}

/* `wanted` rows can be had. */
static bool has_room(const struct keymap *map, uint32_t wanted, uint64_t clock, uint32_t *fit)
{
	*fit = map->capacity - map->used;
	for (uint32_t r = map->oldest, left = map->used; *fit < wanted; r = map->row[r].newer) {
		if (left-- == 0 || !may_go(map, r, clock))
			return false;
		++*fit;
	}
	return true;
}

/* A row for the key: one that was never used, or the oldest. There is one. */
static uint32_t take_row(struct keymap *map, int64_t key, uint64_t clock)
{
	uint32_t r = map->used;
	bool first = r == 0;

	if (map->used < map->capacity) {
		map->used++;
	} else {
		r = map->oldest;
		forget(map, map->row[r].key);
		unlink_row(map, r);
		map->evictions++;
		first = map->capacity == 1;
	}
	map->row[r].key = key;
	map->row[r].touched = clock;
	map->bucket[bucket_of(map, key)] = r + 1;
	link_newest(map, r, first);
	return r;
}

/* ---- admission ------------------------------------------------------------------------------- */

static void counters(const struct keymap *map, int64_t key, uint16_t **a, uint16_t **b)
{
	uint64_t h = mix64((uint64_t)key + 0x9e3779b97f4a7c15u);

	*a = &map->count[h & (map->counts - 1)];
	*b = &map->count[h >> 32 & (map->counts - 1)];
}

/* This touch is the one that a row is given for. */
static bool admits(const struct keymap *map, int64_t key)
{
	uint16_t *a, *b;

	if (!map->counts)
		return true;
	counters(map, key, &a, &b);
	return (*a < *b ? *a : *b) + 1u >= map->admit_after;
}

/* Only the smaller counter moves, or both: a larger one counts some other key as well. */
static void count_touch(struct keymap *map, int64_t key)
{
	uint16_t *a, *b, least;

	counters(map, key, &a, &b);
	least = *a < *b ? *a : *b;
	for (int i = 0; i < HALVED; i++) {
		map->count[map->hand] /= 2;
		map->hand = (map->hand + 1) & (map->counts - 1);
	}
	if (*a <= least)
		*a = (uint16_t)(least + 1);
	if (*b <= least)
		*b = (uint16_t)(least + 1);
}

/* ---- touching -------------------------------------------------------------------------------- */

/* Renews the rows that are there; how many new ones are due. */
static uint32_t look_up(struct keymap *map, const int64_t *keys, uint32_t n, uint64_t clock,
			uint64_t *rows)
{
	uint32_t due = 0;

	for (uint32_t i = 0; i < n; i++) {
		rows[i] = keymap_find(map, keys[i]);
		if (rows[i] != KEYMAP_NONE) {
			renew(map, (uint32_t)rows[i], clock);
		} else if (admits(map, keys[i])) {
			rows[i] = DUE;
			due++;
		}
	}
	return due;
}

static int64_t key_beyond(const int64_t *keys, const uint64_t *rows, uint32_t fit)
{
	for (uint32_t i = 0;; i++)
		if (rows[i] == DUE && fit-- == 0)
			return keys[i];
}

int keymap_touch(struct keymap *map, const int64_t *keys, uint32_t n, uint64_t clock,
		 uint64_t *rows, void (*fresh)(void *arg, int64_t key, uint64_t row), void *arg,
		 int64_t *refused)
{
	uint32_t due = look_up(map, keys, n, clock, rows), fit;

	if (!has_room(map, due, clock, &fit)) {
		*refused = key_beyond(keys, rows, fit);
		return -ENOSPC;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (rows[i] == DUE) {
			rows[i] = take_row(map, keys[i], clock);
			fresh(arg, keys[i], rows[i]);
		} else if (rows[i] == KEYMAP_NONE) {
			count_touch(map, keys[i]);
		}
	}
	return 0;
}

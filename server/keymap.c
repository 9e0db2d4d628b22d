/* SPDX-License-Identifier: Apache-2.0
 *
 * Which row a key has.
 */
#include "server/keymap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

uint64_t keymap_counters(uint64_t capacity, uint32_t admit_after)
{
	if (admit_after <= 1)
		return 0;
	return 4 * capacity < COUNTS_MIN ? COUNTS_MIN : pow2_at_least(4 * capacity);
}

uint64_t keymap_bytes(uint64_t capacity, uint32_t admit_after)
{
	return capacity * sizeof(struct keymap_row) + buckets_of(capacity) * sizeof(uint32_t) +
	       keymap_counters(capacity, admit_after) * sizeof(uint16_t);
}

int keymap_create(uint32_t capacity, uint32_t admit_after, uint64_t evict_after, struct keymap *out)
{
	struct keymap map = {
	    .capacity = capacity,
	    .admit_after = admit_after,
	    .evict_after = evict_after,
	    .mask = buckets_of(capacity) - 1,
	    .secret = mix_key(),
	    .counts = keymap_counters(capacity, admit_after),
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

static void changes(const struct keymap *map, uint32_t r)
{
	if (map->watch)
		map->watch->row(map->watch->arg, r);
}

static void unlink_row(struct keymap *map, uint32_t r)
{
	struct keymap_row *row = &map->row[r];

	if (r == map->newest) {
		map->newest = row->older;
	} else {
		changes(map, row->newer);
		map->row[row->newer].older = row->older;
	}
	if (r == map->oldest) {
		map->oldest = row->newer;
	} else {
		changes(map, row->older);
		map->row[row->older].newer = row->newer;
	}
}

static void link_newest(struct keymap *map, uint32_t r, bool first)
{
	changes(map, r);
	if (first) {
		map->oldest = r;
	} else {
		changes(map, map->newest);
		map->row[map->newest].newer = r;
	}
	map->row[r].older = map->newest;
	map->newest = r;
}

static void renew(struct keymap *map, uint32_t r, uint64_t clock)
{
	changes(map, r);
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
	changes(map, r);
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

static void counts(const struct keymap *map, const uint16_t *counter)
{
	if (map->watch)
		map->watch->counter(map->watch->arg, (uint64_t)(counter - map->count));
}

/* Only the smaller counter moves, or both: a larger one counts some other key as well. */
static void count_touch(struct keymap *map, int64_t key)
{
	uint16_t *a, *b, least;

	counters(map, key, &a, &b);
	counts(map, a);
	counts(map, b);
	least = *a < *b ? *a : *b;
	for (int i = 0; i < HALVED; i++) {
		counts(map, &map->count[map->hand]);
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

/* ---- coming back ----------------------------------------------------------------------------- */

static int check_numbers(const struct keymap *map, const struct keymap_saved *s)
{
	if (s->used > map->capacity)
		return err_set(EINVAL, "%llu rows are in use, there are %u",
			       (unsigned long long)s->used, map->capacity);
	if (s->used && (s->newest >= s->used || s->oldest >= s->used))
		return err_set(EINVAL, "the newest row is %llu, the oldest %llu; %llu are in use",
			       (unsigned long long)s->newest, (unsigned long long)s->oldest,
			       (unsigned long long)s->used);
	if (s->sketch && s->hand >= map->counts)
		return err_set(EINVAL, "counter %llu is the next, there are %llu",
			       (unsigned long long)s->hand, (unsigned long long)map->counts);
	return 0;
}

/* From the oldest to the newest: all rows that are used, each once, and none is older than the one
 * before it. */
static int take_order(struct keymap *map, const struct keymap_saved *s)
{
	uint64_t r = s->oldest, n = 1;

	for (;; n++) {
		uint64_t next = s->newer[r];

		map->row[r] = (struct keymap_row){.key = s->keys[r], .touched = s->touched[r],
						  .newer = s->newer[r], .older = s->older[r]};
		if (r == s->newest || n == s->used)
			break;
		if (next >= s->used || s->older[next] != r || s->touched[next] < s->touched[r])
			return err_set(EINVAL, "row %llu and the next newer one, %llu, contradict "
					       "one another",
				       (unsigned long long)r, (unsigned long long)next);
		r = next;
	}
	if (r != s->newest || n != s->used)
		return err_set(EINVAL, "the rows' order has %llu of %llu, and ends at %llu",
			       (unsigned long long)n, (unsigned long long)s->used,
			       (unsigned long long)r);
	return 0;
}

static int take_keys(struct keymap *map, uint64_t used)
{
	for (uint32_t r = 0; r < used; r++) {
		uint64_t b = bucket_of(map, map->row[r].key);

		if (map->bucket[b])
			return err_set(EINVAL, "key %lld has two rows",
				       (long long)map->row[r].key);
		map->bucket[b] = r + 1;
	}
	return 0;
}

int keymap_restore(struct keymap *map, const struct keymap_saved *s)
{
	int rc = check_numbers(map, s);

	if (!rc && s->used)
		rc = take_order(map, s);
	if (!rc)
		rc = take_keys(map, s->used);
	if (rc)
		return rc;
	map->used = (uint32_t)s->used;
	map->evictions = s->evictions;
	map->newest = (uint32_t)s->newest;
	map->oldest = (uint32_t)s->oldest;
	if (map->counts && s->sketch) {
		map->hand = s->hand;
		memcpy(map->count, s->sketch, map->counts * sizeof(*map->count));
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which row of a table a 64-bit key has. Rows are given out on first touch, lowest first, and never
 * come back but for another key: an eviction. Pure but for its memory, which is reserved when it is
 * made and never grows.
 *
 * The clock is the caller's: the number of updates that the table has seen. A touch is a key's
 * being named in a push or a pull.
 *
 *   unknown ──touch, the admit_after-th──▶ has a row ──untouched for evict_after updates, and
 *      ▲                                       │       another key needs a row──┐
 *      └───────────────────────────────────────┴────────────────────────────────┘
 *
 * Touches of keys without a row are counted in a sketch of fixed size (two counters for each key,
 * the smaller one counts): it may take a key for a more frequent one, never for a rarer one. So
 * that it can't fill up with keys that never come again, each such touch halves a few counters in
 * turn: touches that lie further apart than about as many others as the table has rows (1024 at
 * least) count half. It has no randomness: the same touches give the same answer.
 *
 * Invariants:
 *  1. bucket[b] is 0 (empty) or 1 + a row below `used`; each such row has one bucket.
 *  2. The list `newer`/`older` holds the rows below `used`, in the order of their last touch; their
 *     clocks fall along it.
 *  3. keymap_touch gives rows to all new keys or to none.
 */
#ifndef GS_SERVER_KEYMAP_H
#define GS_SERVER_KEYMAP_H

#include <stdint.h>

enum {
	KEYMAP_MAX = 1 << 30,     /* capacity */
	KEYMAP_ADMIT_MAX = 65535, /* admit_after */
};
#define KEYMAP_NONE UINT64_MAX

struct keymap_row {
	int64_t key;
	uint64_t touched; /* clock */
	uint32_t newer, older;
};

/* Who is told before a row, or a counter, changes. */
struct keymap_watch {
	void (*row)(void *arg, uint32_t row);
	void (*counter)(void *arg, uint64_t counter);
	void *arg;
};

struct keymap {
	uint32_t capacity, used;
	uint32_t admit_after;
	uint64_t evict_after, evictions;
	uint64_t mask, secret;
	struct keymap_row *row;
	uint32_t *bucket;
	uint32_t newest, oldest; /* rows; when used > 0 */
	uint16_t *count;         /* NULL: each key gets a row at once */
	uint64_t counts, hand;   /* power of two; the next to be halved */
	const struct keymap_watch *watch; /* NULL: nobody */
};

/* What a map of that size may come to, in bytes. */
uint64_t keymap_bytes(uint64_t capacity, uint32_t admit_after);
/* Counters of its sketch. */
uint64_t keymap_counters(uint64_t capacity, uint32_t admit_after);
/* capacity: 1 .. KEYMAP_MAX; admit_after: 0 (as 1) .. KEYMAP_ADMIT_MAX; evict_after: 0: never.
 * -ENOMEM. */
int keymap_create(uint32_t capacity, uint32_t admit_after, uint64_t evict_after,
		  struct keymap *out);
/* Also of one that is all zero. */
void keymap_destroy(struct keymap *map);

/* The row of a key, or KEYMAP_NONE; touches nothing. */
uint64_t keymap_find(const struct keymap *map, int64_t key);

/* Touches n different keys at `clock`, which never falls. rows[i]: key i's, or KEYMAP_NONE (it was
 * not touched often enough yet). `fresh` is told of each row that is a key's from now on, and whose
 * content is another's or nobody's.
 * -ENOSPC (no text): the new keys don't fit. No row changed hands then, and *refused is the first
 * key that found no room; only the rows that are there were touched. */
int keymap_touch(struct keymap *map, const int64_t *keys, uint32_t n, uint64_t clock,
		 uint64_t *rows, void (*fresh)(void *arg, int64_t key, uint64_t row), void *arg,
		 int64_t *refused);

/* What a map came to: rows below `used` of each array. */
struct keymap_saved {
	uint64_t used, evictions, hand, newest, oldest;
	const int64_t *keys;
	const uint64_t *touched;
	const uint32_t *newer, *older;
	const uint16_t *sketch; /* NULL: none; else as many as the map has counters */
};
/* Makes an empty map that one. -EINVAL (the text says what does not fit together): it is of no more
 * use. */
int keymap_restore(struct keymap *map, const struct keymap_saved *saved);

#endif

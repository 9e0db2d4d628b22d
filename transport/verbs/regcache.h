/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the program's memory is registered with a connection: ranges of pages, each with a handle
 * (a registration, to this file a pointer), so that memory that is used again and again is registered
 * once. Pure: it registers nothing, takes no locks, asks nobody. Its user holds a lock around each call.
 *
 * Invariants:
 *  1. A range that was said to be gone (unmapped, mapped anew, given back) is never found again: its
 *     registration is of pages that are no longer there. What is mapped at the same address later is
 *     another range.
 *  2. What is in use is never handed out by regcache_take_out; dead or not.
 *  3. `bytes` is the sum of all ranges, dead ones included, until they are taken out: they are locked
 *     memory until then.
 */
#ifndef GS_TRANSPORT_VERBS_REGCACHE_H
#define GS_TRANSPORT_VERBS_REGCACHE_H

#include <stdbool.h>
#include <stdint.h>

#define REGCACHE_ENTRIES 1024
#define REGCACHE_BUCKETS 1024

struct regcache_entry {
	uintptr_t first, end; /* of pages */
	void *handle;         /* NULL while it is being registered */
	bool target;          /* the device may write it */
	uint32_t users;
	bool dead;
	struct regcache_entry *bucket;       /* by `first` */
	struct regcache_entry *newer, *older; /* in order of last use; `older` links the free ones */
};

struct regcache {
	uint64_t limit, bytes;
	uint32_t entries;
	uint32_t dead_idle; /* dead and not in use: to be taken out */
	struct regcache_entry *buckets[REGCACHE_BUCKETS];
	struct regcache_entry *newest, *oldest, *free;
	struct regcache_entry entry[REGCACHE_ENTRIES];
};

/* `limit`: of `bytes`. */
void regcache_init(struct regcache *c, uint64_t limit);

/* A live range from exactly `first` that reaches to `end` or further, and is a target if it is to be one,
 * now in use once more; else NULL. */
struct regcache_entry *regcache_find(struct regcache *c, uintptr_t first, uintptr_t end, bool target);
/* There is an entry and there are bytes left for one more range. */
bool regcache_has_room(const struct regcache *c, uintptr_t first, uintptr_t end);
/* A new range, in use once; regcache_has_room said so. It is found once its handle is set, and can die
 * before. */
struct regcache_entry *regcache_add(struct regcache *c, uintptr_t first, uintptr_t end, bool target);
void regcache_set(struct regcache_entry *e, void *handle);
/* In use by one more of its users. */
void regcache_hold(struct regcache_entry *e);
/* No longer in use by one of its users. */
void regcache_put(struct regcache *c, struct regcache_entry *e);
/* All that overlaps [first, end) is dead. */
void regcache_gone(struct regcache *c, uintptr_t first, uintptr_t end);
/* Takes out a range that is not in use: a dead one; or, with `any`, the one that was used longest ago.
 * A copy of it is in *out. False: there is none. */
bool regcache_take_out(struct regcache *c, bool any, struct regcache_entry *out);
/* None is in use any more, and all are dead. */
void regcache_end(struct regcache *c);
/* Takes out one that could not be registered, and has no other user. */
void regcache_cancel(struct regcache *c, struct regcache_entry *e);
/* A range that is not dead overlaps [first, end). */
bool regcache_overlaps(const struct regcache *c, uintptr_t first, uintptr_t end);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows under merge: each id that came, once, with the sum of the values that came for it, in the
 * order of first appearance. Pure but for its memory, which is reserved when it is made and never
 * grows; pages are touched as rows come.
 *
 * Ids are found by open addressing with linear probing. The hash is keyed by chance, since peers
 * choose the ids; nothing that comes out depends on it.
 *
 * Invariants:
 *  1. bucket[b] is 0 (empty) or 1 + a position below n; each position has one bucket, where[i].
 *  2. There are at least twice as many buckets as `capacity`: a probe ends.
 *  3. An id's value is ((v0 + v1) + v2) + …, in the order in which they were added.
 */
#ifndef GS_SERVER_ROWSET_H
#define GS_SERVER_ROWSET_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kern.h"

enum { ROWSET_MAX = 1 << 30 }; /* capacity */
#define ROWSET_NONE UINT32_MAX

struct rowset {
	uint32_t capacity, n;
	uint64_t dim, mask, key;
	int64_t *id;      /* [n] */
	float *value;     /* [n * dim] */
	uint32_t *where;  /* [n] */
	uint32_t *bucket; /* [mask + 1] */
};

/* What a set of that size may come to, in bytes. */
uint64_t rowset_bytes(uint64_t capacity, uint64_t dim);
/* capacity: 1 .. ROWSET_MAX; dim may be 0, for ids alone. -ENOMEM. */
int rowset_create(uint32_t capacity, uint64_t dim, struct rowset *out);
/* Also of one that is all zero. */
void rowset_destroy(struct rowset *set);

/* Empties it, in time that goes with the rows that were in it. */
void rowset_clear(struct rowset *set);

/* Adds n rows of `dim` values of `dtype`; position[i], unless it is NULL, says where ids[i] went.
 * No more than `capacity` different ids may come in all. */
void rowset_add(struct rowset *set, const int64_t *ids, uint64_t n, enum kern_dtype dtype,
		const void *values, uint32_t *position);
/* Adds factor × part, row by row in the part's order. */
void rowset_merge(struct rowset *total, const struct rowset *part, float factor);
/* Multiplies all values. */
void rowset_scale(struct rowset *set, float factor);

/* The position of an id, or ROWSET_NONE. */
uint32_t rowset_find(const struct rowset *set, int64_t id);

static inline float *rowset_value(const struct rowset *set, uint32_t position)
{
	return set->value + position * set->dim;
}

#endif

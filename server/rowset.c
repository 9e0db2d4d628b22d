/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows under merge.
 */
#include "server/rowset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "server/mix.h"

static uint64_t buckets_of(uint64_t capacity)
{
	return pow2_at_least(2 * capacity);
}

/* One row more than there is room for: where a row of another type is widened. */
static uint64_t floats_of(uint64_t capacity, uint64_t dim)
{
	uint64_t floats;

	return __builtin_mul_overflow(capacity + 1, dim, &floats) ||
		       floats > UINT64_MAX / sizeof(float)
		   ? UINT64_MAX / sizeof(float)
		   : floats;
}

uint64_t rowset_bytes(uint64_t capacity, uint64_t dim)
{
	uint64_t values = floats_of(capacity, dim) * sizeof(float), bytes;
	uint64_t rest = capacity * (sizeof(int64_t) + sizeof(uint32_t)) +
			buckets_of(capacity) * sizeof(uint32_t);

	return __builtin_add_overflow(values, rest, &bytes) ? UINT64_MAX : bytes;
}

int rowset_create(uint32_t capacity, uint64_t dim, struct rowset *out)
{
	uint64_t buckets = buckets_of(capacity);
	struct rowset set = {.capacity = capacity, .dim = dim, .mask = buckets - 1};

	/* calloc: what is long is reserved, and touched as it is used. */
	set.key = mix_key();
	set.id = calloc(capacity, sizeof(*set.id));
	set.where = calloc(capacity, sizeof(*set.where));
	set.bucket = calloc(buckets, sizeof(*set.bucket));
	set.value = calloc(floats_of(capacity, dim) + 1, sizeof(*set.value));
	if (!set.id || !set.where || !set.bucket || !set.value) {
		rowset_destroy(&set);
		return err_set(ENOMEM, "no memory to merge %u rows of %" PRIu64 " elements",
			       capacity, dim);
	}
	*out = set;
	return 0;
}

void rowset_destroy(struct rowset *set)
{
	free(set->id);
	free(set->where);
	free(set->bucket);
	free(set->value);
	*set = (struct rowset){0};
}

void rowset_clear(struct rowset *set)
{
	for (uint32_t i = 0; i < set->n; i++)
		set->bucket[set->where[i]] = 0;
	set->n = 0;
}

/* The bucket that has the id, or the empty one where it belongs. */
static uint64_t bucket_of(const struct rowset *set, int64_t id)
{
	uint64_t b = mix_keyed((uint64_t)id, set->key) & set->mask;

	while (set->bucket[b] && set->id[set->bucket[b] - 1] != id)
		b = (b + 1) & set->mask;
	return b;
}

uint32_t rowset_find(const struct rowset *set, int64_t id)
{
	uint32_t entry = set->bucket[bucket_of(set, id)];

	return entry ? entry - 1 : ROWSET_NONE;
}

/* The id's position; `fresh`: it was not there. */
static uint32_t enter(struct rowset *set, int64_t id, bool *fresh)
{
	uint64_t b = bucket_of(set, id);
	uint32_t i;

	*fresh = !set->bucket[b];
	if (!*fresh)
		return set->bucket[b] - 1;
	i = set->n++;
	set->id[i] = id;
	set->where[i] = (uint32_t)b;
	set->bucket[b] = i + 1;
	return i;
}

static void put(float *to, const float *from, uint64_t dim, bool fresh)
{
	if (fresh)
		memcpy(to, from, dim * sizeof(float));
	else
		for (uint64_t k = 0; k < dim; k++)
			to[k] += from[k];
}

void rowset_add(struct rowset *set, const int64_t *ids, uint64_t n, enum kern_dtype dtype,
		const void *values, uint32_t *position)
{
	float *wide = set->value + set->capacity * set->dim;
	uint64_t stride = set->dim * kern_size(dtype);

	for (uint64_t i = 0; i < n; i++) {
		const uint8_t *from;
		bool fresh;
		uint32_t at = enter(set, ids[i], &fresh);

		if (position)
			position[i] = at;
		if (set->dim == 0)
			continue; /* ids alone; there are no values to point to */
		from = (const uint8_t *)values + i * stride;
		if (dtype != KERN_F32)
			kern_widen(dtype, from, wide, set->dim);
		put(rowset_value(set, at),
		    dtype == KERN_F32 ? (const float *)(const void *)from : wide, set->dim, fresh);
	}
}

void rowset_merge(struct rowset *total, const struct rowset *part, float factor)
{
	for (uint32_t i = 0; i < part->n; i++) {
		const float *from = rowset_value(part, i);
		bool fresh;
		float *to = rowset_value(total, enter(total, part->id[i], &fresh));

		if (factor == 1)
			put(to, from, total->dim, fresh);
		else
			for (uint64_t k = 0; k < total->dim; k++)
				to[k] = fresh ? factor * from[k] : to[k] + factor * from[k];
	}
}

void rowset_scale(struct rowset *set, float factor)
{
	uint64_t len = set->n * set->dim;

	for (uint64_t i = 0; i < len; i++)
		set->value[i] *= factor;
}

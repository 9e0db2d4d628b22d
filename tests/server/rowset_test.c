/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows under merge (server/rowset.h), against a merge that looks through a list.
 */
#include "server/rowset.h"

#include <stdlib.h>

#include "suite.h"

enum { DIM = 3, MOST = 3000 };

/* The plain way: the same sums, in the same order. */
struct list {
	uint32_t n;
	int64_t id[MOST];
	float value[MOST][DIM];
};

static uint32_t list_at(struct list *l, int64_t id, bool *fresh)
{
	uint32_t i = 0;

	while (i < l->n && l->id[i] != id)
		i++;
	*fresh = i == l->n;
	if (*fresh)
		l->id[l->n++] = id;
	return i;
}

static uint32_t list_add(struct list *l, int64_t id, const float *v, float factor)
{
	bool fresh;
	uint32_t i = list_at(l, id, &fresh);

	for (int k = 0; k < DIM; k++)
		l->value[i][k] = fresh ? factor * v[k] : l->value[i][k] + factor * v[k];
	return i;
}

static void expect_same(const struct rowset *set, const struct list *l)
{
	ck_assert_uint_eq(set->n, l->n);
	for (uint32_t i = 0; i < l->n; i++) {
		ck_assert_int_eq(set->id[i], l->id[i]);
		ck_assert_uint_eq(rowset_find(set, l->id[i]), i);
		ck_assert(memcmp(rowset_value(set, i), l->value[i], sizeof(l->value[i])) == 0);
	}
}

/* Ids of all sorts: dense, far apart, negative, alike in their low bits. */
static int64_t draw_id(uint64_t *seed, uint32_t kind, uint32_t below)
{
	uint64_t x = rnd(seed, below);

	switch (kind % 4) {
	case 0:
		return (int64_t)x;
	case 1:
		return (int64_t)(x << 40);
	case 2:
		return -(int64_t)x;
	default:
		return (int64_t)(x * 0x9e3779b97f4a7c15u);
	}
}

static void draw_values(uint64_t *seed, float *v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		v[i] = ((float)rnd(seed, 1u << 24) - 0x1p23f) * 0x1p-20f;
}

START_TEST(sums_like_a_list)
{
	uint64_t seed = 1 + (uint64_t)_i;
	struct list *l = calloc(1, sizeof(*l));
	struct rowset set;

	ck_assert_int_eq(rowset_create(MOST, DIM, &set), 0);
	for (int round = 0; round < 3; round++) {
		for (uint32_t added = 0; added + 64 < MOST;) {
			uint32_t n = rnd(&seed, 64), position[64];
			float v[64 * DIM];
			int64_t id[64];

			draw_values(&seed, v, n * DIM);
			for (uint32_t i = 0; i < n; i++)
				id[i] = draw_id(&seed, (uint32_t)_i, 2000);
			rowset_add(&set, id, n, KERN_F32, v, position);
			for (uint32_t i = 0; i < n; i++)
				ck_assert_uint_eq(position[i], list_add(l, id[i], &v[i * DIM], 1));
			added += n;
		}
		expect_same(&set, l);
		rowset_clear(&set);
		l->n = 0;
		expect_same(&set, l);
		ck_assert_uint_eq(rowset_find(&set, 7), ROWSET_NONE);
	}
	rowset_destroy(&set);
	free(l);
}
END_TEST

/* Each part's duplicates first, then the parts one after another. */
START_TEST(merges_parts_in_their_order)
{
	static const float factor[] = {1, 0.3f, 2.5f};
	uint64_t seed = 99;
	struct list *all = calloc(1, sizeof(*all)), *one = calloc(1, sizeof(*one));
	struct rowset total, part;

	ck_assert_int_eq(rowset_create(3 * 500, DIM, &total), 0);
	ck_assert_int_eq(rowset_create(500, DIM, &part), 0);
	for (int p = 0; p < 3; p++) {
		one->n = 0;
		rowset_clear(&part);
		for (int i = 0; i < 500; i++) {
			int64_t id = draw_id(&seed, 3, 400);
			float v[DIM];

			draw_values(&seed, v, DIM);
			rowset_add(&part, &id, 1, KERN_F32, v, NULL);
			list_add(one, id, v, 1);
		}
		rowset_merge(&total, &part, factor[p]);
		for (uint32_t i = 0; i < one->n; i++)
			list_add(all, one->id[i], one->value[i], factor[p]);
	}
	expect_same(&total, all);
	rowset_scale(&total, 0.25f);
	for (uint32_t i = 0; i < all->n; i++)
		for (int k = 0; k < DIM; k++)
			all->value[i][k] *= 0.25f;
	expect_same(&total, all);
	rowset_destroy(&total);
	rowset_destroy(&part);
	free(all);
	free(one);
}
END_TEST

START_TEST(widens_short_formats)
{
	uint16_t bf[2 * DIM] = {0x3f80, 0x4000, 0xbf80,
				0x3f80, 0x3f00, 0x3f80}; /* 1 2 -1, 1 .5 1 */
	uint16_t half[DIM] = {0x3c00, 0xc000, 0x3800};   /* 1 -2 .5 */
	const float first[DIM] = {1, 2, -1}, sum[DIM] = {2, 0, -0.5f}, other[DIM] = {1, 0.5f, 1};
	const int64_t ids[2] = {5, -6};
	struct rowset set;

	ck_assert_int_eq(rowset_create(2, DIM, &set), 0);
	rowset_add(&set, ids, 2, KERN_BF16, bf, NULL);
	ck_assert(memcmp(rowset_value(&set, 0), first, sizeof(first)) == 0);
	ck_assert(memcmp(rowset_value(&set, 1), other, sizeof(other)) == 0);
	rowset_add(&set, ids, 1, KERN_F16, half, NULL);
	ck_assert(memcmp(rowset_value(&set, 0), sum, sizeof(sum)) == 0);
	ck_assert(memcmp(rowset_value(&set, 1), other, sizeof(other)) == 0);
	rowset_destroy(&set);
}
END_TEST

/* A negative zero that came alone stays one. */
START_TEST(a_lone_value_keeps_its_bits)
{
	const float v[1] = {-0.0f};
	const int64_t id = INT64_MIN;
	struct rowset part, total;

	ck_assert_int_eq(rowset_create(1, 1, &part), 0);
	ck_assert_int_eq(rowset_create(1, 1, &total), 0);
	rowset_add(&part, &id, 1, KERN_F32, v, NULL);
	rowset_merge(&total, &part, 1);
	ck_assert(memcmp(total.value, v, sizeof(v)) == 0);
	ck_assert_int_eq(total.id[0], INT64_MIN);
	rowset_destroy(&part);
	rowset_destroy(&total);
}
END_TEST

/* Full to the last row, several times over; and of ids alone. */
START_TEST(holds_what_it_was_made_for)
{
	for (uint32_t capacity = 1; capacity <= 1025; capacity += 1 + capacity / 3) {
		struct rowset set;

		ck_assert_int_eq(rowset_create(capacity, 0, &set), 0);
		for (int64_t round = 0; round < 3; round++) {
			for (int64_t i = 0; i < capacity; i++) {
				int64_t id[2] = {i * 64 + round, i * 64 + round};

				rowset_add(&set, id, 2, KERN_F32, NULL, NULL);
			}
			ck_assert_uint_eq(set.n, capacity);
			ck_assert_uint_eq(rowset_find(&set, -1), ROWSET_NONE);
			rowset_clear(&set);
		}
		rowset_destroy(&set);
	}
}
END_TEST

START_TEST(states_its_memory)
{
	ck_assert_uint_ge(rowset_bytes(1000, 16), 1000 * (16 * 4 + 8 + 4) + 2048 * 4);
	ck_assert_uint_le(rowset_bytes(1000, 16), 1001 * (16 * 4 + 8 + 4) + 2048 * 4);
	ck_assert_uint_ge(rowset_bytes(ROWSET_MAX, UINT64_MAX / 8), UINT64_MAX / 2);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("rowset");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, sums_like_a_list, 0, 4);
	tcase_add_test(t, merges_parts_in_their_order);
	tcase_add_test(t, widens_short_formats);
	tcase_add_test(t, a_lone_value_keeps_its_bits);
	tcase_add_test(t, holds_what_it_was_made_for);
	tcase_add_test(t, states_its_memory);
	return run_suite("rowset", t);
}

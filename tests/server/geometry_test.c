/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting parameters into blocks (server/geometry.h).
 */
#include "server/geometry.h"

#include <errno.h>

#include "suite.h"

static const struct cut {
	uint32_t ndim;
	uint64_t dim[4];
	uint64_t block_bytes;
	uint64_t block_elems; /* wanted */
	uint32_t blocks;
	uint64_t last;
} cuts[] = {
    {1, {1}, 1024, 1, 1, 1},
    {1, {255}, 1024, 255, 1, 255},
    {1, {256}, 1024, 256, 1, 256},
    {1, {257}, 1024, 256, 2, 1},
    {1, {1000}, 1024, 256, 4, 232},
    /* whole rows: 6 rows of 37 fit into 256 elements */
    {2, {1000, 37}, 1024, 222, 167, 148},
    {2, {6, 37}, 1024, 222, 1, 222},
    {2, {7, 37}, 1024, 222, 2, 37},
    /* a row just fits, one is a byte too long, one much too long */
    {2, {3, 256}, 1024, 256, 3, 256},
    {2, {3, 257}, 1024, 257, 3, 257},
    {2, {3, 100000}, 1024, 100000, 3, 100000},
    {3, {10, 4, 5}, 1024, 200 / 20 * 20, 1, 200},
    {3, {13, 4, 5}, 1024, 240, 2, 20},
    {4, {5, 2, 3, 7}, 1024, 210, 1, 210},
    {2, {1, 5}, 1024, 5, 1, 5},
    {2, {5, 1}, 1024, 5, 1, 5},
    /* the longest row that there may be */
    {2,
     {2, GEOMETRY_MAX_BLOCK_BYTES / 4},
     1024,
     GEOMETRY_MAX_BLOCK_BYTES / 4,
     2,
     GEOMETRY_MAX_BLOCK_BYTES / 4},
};

START_TEST(a_network_likes_four_blocks)
{
	const uint64_t k = 1024;

	ck_assert_uint_eq(geometry_wired_block(256 * k, 4), 32 * k);
	ck_assert_uint_eq(geometry_wired_block(256 * k, 64 * k), 32 * k);
	ck_assert_uint_eq(geometry_wired_block(256 * k, 128 * k + 4), 36 * k);
	ck_assert_uint_eq(geometry_wired_block(256 * k, 512 * k), 128 * k);
	ck_assert_uint_eq(geometry_wired_block(256 * k, 1024 * k + 4), 256 * k);
	ck_assert_uint_eq(geometry_wired_block(256 * k, 1 << 30), 256 * k);
	ck_assert_uint_eq(geometry_wired_block(16 * k, 64 * k), 16 * k);
}
END_TEST

START_TEST(cuts_at_whole_rows)
{
	const struct cut *c = &cuts[_i];
	struct geometry g;
	uint64_t sum = 0, row = 1;

	ck_assert_int_eq(geometry_cut(c->ndim, c->dim, c->block_bytes, 1 << 20, &g), 0);
	ck_assert_uint_eq(g.block_elems, c->block_elems);
	ck_assert_uint_eq(g.blocks, c->blocks);
	ck_assert_uint_eq(geometry_block_elems(&g, g.blocks - 1), c->last);
	for (uint32_t i = 0; i < g.blocks; i++)
		sum += geometry_block_elems(&g, i);
	ck_assert_uint_eq(sum, g.elems);
	for (uint32_t i = 1; i < c->ndim; i++)
		row *= c->dim[i];
	ck_assert_uint_eq(g.block_elems % row, 0);
}
END_TEST

START_TEST(too_many_blocks)
{
	struct geometry g = {7, 7, 7};
	uint64_t dim[] = {257 * 4};

	ck_assert_int_eq(geometry_cut(1, dim, 1024, 5, &g), 0);
	ck_assert_uint_eq(g.blocks, 5);
	g = (struct geometry){7, 7, 7};
	ck_assert_int_eq(geometry_cut(1, dim, 1024, 4, &g), -EINVAL);
	EXPECT_TEXT("1028", "5 blocks", "4 are left");
	ck_assert_uint_eq(g.elems, 7);
	ck_assert_int_eq(geometry_cut(1, dim, 1024, 0, &g), -EINVAL);
}
END_TEST

START_TEST(too_long_a_row)
{
	struct geometry g = {7, 7, 7};
	uint64_t dim[] = {2, GEOMETRY_MAX_BLOCK_BYTES / 4 + 1};

	ck_assert_int_eq(geometry_cut(2, dim, 1024, 1 << 20, &g), -EINVAL);
	EXPECT_TEXT("268435457", "1073741828", "1073741824");
	ck_assert_uint_eq(g.elems, 7);
}
END_TEST

/* ---- packs ----------------------------------------------------------------------------------- */

enum { MOST = GEOMETRY_PACKED_BYTES };

static const struct packing {
	uint64_t bytes[12];
	uint32_t n, max, packs;
	uint32_t pack[12];
} packings[] = {
    {{64}, 1, 9, 0, {0}},
    {{64, 64}, 2, 9, 1, {1, 1}},
    /* one that can't be between them */
    {{64, 64, 0, 64, 128, 64}, 6, 9, 2, {1, 1, 0, 2, 2, 2}},
    {{64, 0, 64}, 3, 9, 0, {0, 0, 0}},
    {{64, MOST + 64, 64, 64}, 4, 9, 1, {0, 0, 1, 1}},
    {{MOST, MOST}, 2, 9, 1, {1, 1}},
    /* eight of the longest are a full pack; the ninth is alone, with a tenth it is not */
    {{MOST, MOST, MOST, MOST, MOST, MOST, MOST, MOST, MOST}, 9, 9, 1, {1, 1, 1, 1, 1, 1, 1, 1, 0}},
    {{MOST, MOST, MOST, MOST, MOST, MOST, MOST, MOST, MOST, 64}, 10, 9, 2,
     {1, 1, 1, 1, 1, 1, 1, 1, 2, 2}},
    /* no numbers left */
    {{64, 64, 0, 64, 64}, 5, 1, 1, {1, 1, 0, 0, 0}},
    {{64, 64}, 2, 0, 0, {0, 0}},
};

START_TEST(packs_of_neighbours)
{
	const struct packing *p = &packings[_i];
	uint32_t pack[12];

	memset(pack, 0xff, sizeof(pack));
	ck_assert_uint_eq(geometry_pack(p->bytes, p->n, p->max, pack), p->packs);
	for (uint32_t i = 0; i < p->n; i++)
		ck_assert_uint_eq(pack[i], p->pack[i]);
}
END_TEST

START_TEST(packs_have_so_many)
{
	enum { N = 2 * GEOMETRY_PACK_MAX + 1 };
	static uint64_t bytes[N];
	static uint32_t pack[N];

	for (int i = 0; i < N; i++)
		bytes[i] = 64;
	ck_assert_uint_eq(geometry_pack(bytes, N, N, pack), 2);
	ck_assert_uint_eq(pack[GEOMETRY_PACK_MAX - 1], 1);
	ck_assert_uint_eq(pack[GEOMETRY_PACK_MAX], 2);
	ck_assert_uint_eq(pack[N - 2], 2);
	ck_assert_uint_eq(pack[N - 1], 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("geometry");

	tcase_add_test(t, a_network_likes_four_blocks);
	tcase_add_loop_test(t, cuts_at_whole_rows, 0, sizeof(cuts) / sizeof(cuts[0]));
	tcase_add_test(t, too_many_blocks);
	tcase_add_test(t, too_long_a_row);
	tcase_add_loop_test(t, packs_of_neighbours, 0, sizeof(packings) / sizeof(packings[0]));
	tcase_add_test(t, packs_have_so_many);
	return run_suite("geometry", t);
}

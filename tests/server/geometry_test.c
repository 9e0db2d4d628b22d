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

int main(void)
{
	TCase *t = tcase_create("geometry");

	tcase_add_loop_test(t, cuts_at_whole_rows, 0, sizeof(cuts) / sizeof(cuts[0]));
	tcase_add_test(t, too_many_blocks);
	tcase_add_test(t, too_long_a_row);
	return run_suite("geometry", t);
}

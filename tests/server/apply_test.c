/* SPDX-License-Identifier: Apache-2.0
 *
 * Updating a block in place (server/apply.h).
 */
#include "server/apply.h"

#include <stdlib.h>

#include "server/internal.h"
#include "suite.h"

enum { ELEMS = 3 * 257 };

static struct srv *srv;
static struct table *table;

static void setup(void)
{
	struct wire_param p = {
	    .name = "w",
	    .ndim = 2,
	    .dim = {3, 257},
	    .rule = "momentum",
	    .n_settings = 1,
	    .setting = {{"lr", 0.5}},
	    .init = WIRE_INIT_TRAINER,
	    .grad_type = WIRE_F16,
	    .weight_type = WIRE_BF16,
	};

	srv = aligned_alloc(64, (sizeof(*srv) + 63) / 64 * 64);
	memset(srv, 0, sizeof(*srv));
	srv->opt = srv_options_default();
	srv->opt.block_kib = 1;
	ck_assert_int_eq(table_create(srv, &p, 1, &table), 0);
	ck_assert_int_eq(table_allocate(table), 0);
}

static void teardown(void)
{
	table_destroy(table);
	free(srv);
}

static void expect_copy(const struct block *b)
{
	uint16_t rounded[257];

	kern_narrow(KERN_BF16, b->param->weights + b->first, rounded, b->elems);
	ck_assert_mem_eq(block_published(b), rounded, 2 * b->elems);
}

/* Both planes together are the floats, bit for bit; an upper one begins anew. */
START_TEST(planes)
{
	struct block *b = &table->block[1];
	uint16_t upper[257], lower[257];
	uint32_t bits[257];

	ck_assert_uint_eq(b->first, 257);
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 257; i++) {
			upper[i] = (uint16_t)(i * 181 + round);
			lower[i] = (uint16_t)(0xffff - i * 77 - round);
			bits[i] = (uint32_t)upper[i] << 16 | lower[i];
		}
		apply_values(b, APPLY_UPPER, upper);
		apply_values(b, APPLY_LOWER, lower);
		ck_assert_mem_eq(b->param->weights + b->first, bits, sizeof(bits));
		expect_copy(b);
	}
	ck_assert_uint_eq(block_updates(b), 0);
	ck_assert(b->param->weights[256] == 0 && b->param->weights[514] == 0);
}
END_TEST

START_TEST(an_update)
{
	struct block *b = &table->block[1];
	uint16_t g[257];
	const void *data = g;
	struct kern_grads grads = {.data = &data, .scale = 1, .n = 1, .dtype = KERN_F16};

	for (uint64_t t = 1; t <= 2; t++) {
		struct kern_step step = apply_step(b, t - 1);

		ck_assert_uint_eq(step.t, t);
		ck_assert(step.lr == 0.5f && step.clip == 1 && step.copy == block_published(b));
		for (uint32_t i = 0; i < 257; i++)
			g[i] = 0x3c00; /* 1 */
		if (t == 2)
			g[256] = 0x7c00; /* infinite */
		ck_assert(apply_gradients(b, &step, &grads) == (t == 2));
		ck_assert_uint_eq(block_updates(b), t);
		expect_copy(b);
	}
	ck_assert(b->param->weights[257] == -0.5f - 0.95f);
	ck_assert(isinf(b->param->weights[513]));
	ck_assert(b->param->weights[256] == 0 && b->param->weights[514] == 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("apply");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, planes);
	tcase_add_test(t, an_update);
	return run_suite("apply", t);
}

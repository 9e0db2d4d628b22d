/* SPDX-License-Identifier: Apache-2.0
 *
 * Immediate data and the layout of the regions.
 */
#include <check.h>

#include "proto/imm.h"
#include "proto/layout.h"
#include "run.h"

START_TEST(block_immediates)
{
	static const enum imm_kind kinds[] = {IMM_GRAD, IMM_INIT, IMM_PULL};
	static const uint32_t blocks[] = {0, 1, 4095, 1u << 24, IMM_MAX_BLOCKS - 1};

	for (unsigned k = 0; k < 3; k++) {
		for (unsigned b = 0; b < 5; b++) {
			for (uint32_t slot = 0; slot < IMM_MAX_SLOTS; slot++) {
				for (int notify = 0; notify < 2; notify++) {
					struct imm i = imm_unpack(
					    imm_block(kinds[k], blocks[b], slot, notify));

					ck_assert_uint_eq(i.kind, kinds[k]);
					ck_assert_uint_eq(i.block, blocks[b]);
					ck_assert_uint_eq(i.slot, slot);
					ck_assert_int_eq(i.notify, notify);
				}
			}
		}
	}
}
END_TEST

START_TEST(step_immediates)
{
	static const uint64_t steps[] = {0, 1, IMM_STEP_MASK, UINT64_C(1) << 29, UINT64_MAX};

	for (unsigned s = 0; s < 5; s++) {
		struct imm i = imm_unpack(imm_step(IMM_BARRIER, steps[s]));

		ck_assert_uint_eq(i.kind, IMM_BARRIER);
		ck_assert_uint_eq(i.step, steps[s] & IMM_STEP_MASK);
	}
}
END_TEST

START_TEST(immediates_on_the_wire)
{
	/* Both ends may be of different builds: these words are the protocol. */
	ck_assert_uint_eq(imm_block(IMM_GRAD, 5, 1, true), 0x92000005);
	ck_assert_uint_eq(imm_block(IMM_INIT, IMM_MAX_BLOCKS - 1, 0, false), 0xa1ffffff);
	ck_assert_uint_eq(imm_step(IMM_RELEASE, 3), 0xc0000003);
	ck_assert_uint_eq(imm_block(IMM_PULLED, 0, 0, false), 0xe0000000);
}
END_TEST

START_TEST(regions)
{
	ck_assert_uint_eq(layout_align(0, 64), 0);
	ck_assert_uint_eq(layout_align(1, 64), 64);
	ck_assert_uint_eq(layout_align(64, 64), 64);
	ck_assert_uint_eq(layout_version_off(3), 24);
	ck_assert_uint_eq(layout_weights_start(1), LAYOUT_PAGE);
	ck_assert_uint_eq(layout_weights_start(512), LAYOUT_PAGE);
	ck_assert_uint_eq(layout_weights_start(513), 2 * LAYOUT_PAGE);
	ck_assert_uint_eq(layout_credit_off(0), 64);
	/* A credit and a kept word for each of 252 blocks, and the head, fill a page. */
	ck_assert_uint_eq(layout_kept_off(252, 0), 64 + 252 * 8);
	ck_assert_uint_eq(layout_kept_off(252, 251), LAYOUT_PAGE - 8);
	ck_assert_uint_eq(layout_landing_start(252), LAYOUT_PAGE);
	ck_assert_uint_eq(layout_landing_start(253), 2 * LAYOUT_PAGE);
}
END_TEST

START_TEST(words_stay_in_front)
{
	static const uint64_t counts[] = {1, 252, 253, 512, 513, 100000};

	for (unsigned i = 0; i < 6; i++) {
		uint64_t n = counts[i];

		ck_assert_uint_le(layout_credit_off(n - 1) + 8, layout_kept_off(n, 0));
		ck_assert_uint_le(layout_kept_off(n, n - 1) + 8, layout_landing_start(n));
		ck_assert_uint_le(layout_version_off(n - 1) + 8, layout_weights_start(n));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("layout");
	TCase *c = tcase_create("imm and layout");

	tcase_add_test(c, block_immediates);
	tcase_add_test(c, step_immediates);
	tcase_add_test(c, immediates_on_the_wire);
	tcase_add_test(c, regions);
	tcase_add_test(c, words_stay_in_front);
	suite_add_tcase(s, c);
	SRunner *runner = srunner_create(s);
	return run_all(runner);
}

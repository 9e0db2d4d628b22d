/* SPDX-License-Identifier: Apache-2.0
 *
 * The pure parts: the arithmetic of credits, and the judgement of grants.
 */
#include "fake.h"

#include "trainer/credits.h"
#include "trainer/grant.h"

/* ---- credits --------------------------------------------------------------------------------- */

/* Plays all of it out: a ring of s slots, a server that is any number of pushes behind. */
START_TEST(a_slot_is_never_written_while_in_use)
{
	for (uint32_t slots = 1; slots <= IMM_MAX_SLOTS; slots++) {
		for (uint64_t applied = 0; applied < 20; applied++) {
			/* Pushes go on as long as credits allow. */
			uint64_t n = applied;

			while (applied >= credits_needed(n, slots))
				n++;
			ck_assert_uint_eq(n - applied, slots);
			/* Those under way are all in different slots. */
			unsigned used = 0;
			for (uint64_t k = applied; k < n; k++) {
				ck_assert(!(used >> credits_slot(k, slots) & 1));
				used |= 1u << credits_slot(k, slots);
			}
		}
	}
}
END_TEST

START_TEST(credits_by_hand)
{
	ck_assert_uint_eq(credits_needed(0, 2), 0);
	ck_assert_uint_eq(credits_needed(1, 2), 0);
	ck_assert_uint_eq(credits_needed(2, 2), 1);
	ck_assert_uint_eq(credits_needed(7, 2), 6);
	ck_assert_uint_eq(credits_needed(1, 1), 1);
	ck_assert_uint_eq(credits_slot(7, 3), 1);
	ck_assert(credits_plausible(5, 5));
	ck_assert(!credits_plausible(6, 5));
}
END_TEST

/* ---- grants ---------------------------------------------------------------------------------- */

static const struct grant_need need[2] = {
    {.elems = 70, .row = 7, .weights = 280, .slot = 280, .landing = 280},
    {.elems = 3, .row = 1, .weights = 12, .slot = 12, .landing = 12},
};

struct sample {
	struct grant g;
	struct wire_place place[3];
};

static void good(struct sample *s)
{
	memset(s, 0, sizeof(*s));
	s->place[0] = (struct wire_place){.elems = 70,
					  .block_elems = 28,
					  .weights_off = 4096,
					  .heads_off = 64,
					  .heads_stride = 64,
					  .slots_off = 192,
					  .slots_stride = 320,
					  .landing_off = 4096,
					  .blocks = 3};
	s->place[1] = (struct wire_place){.elems = 3,
					  .block_elems = 3,
					  .weights_off = 4096 + 320,
					  .heads_off = 832,
					  .heads_stride = 64,
					  .slots_off = 960,
					  .slots_stride = 64,
					  .landing_off = 4096 + 320,
					  .first_block = 3,
					  .blocks = 1};
	s->g = (struct grant){
	    .n = 2,
	    .slots = 2,
	    .blocks = 4,
	    .weights = {0x10000, 4096 + 320 + 12, 1},
	    .slot_mem = {0x20000, 960 + 64 + 12, 2},
	    .place = s->place,
	};
}

START_TEST(a_good_grant)
{
	struct sample s;

	good(&s);
	ck_assert_msg(grant_check(&s.g, need, 2) == 0, "%s", err_text());
}
END_TEST

/* Each head before its slot. */
static void good_led(struct sample *s)
{
	good(s);
	s->place[0].heads_stride = s->place[0].slots_stride = 64 + 320;
	s->place[0].slots_off = 64 + 64;
	s->place[1].heads_off = 64 + 2 * 384;
	s->place[1].heads_stride = s->place[1].slots_stride = 64 + 64;
	s->place[1].slots_off = s->place[1].heads_off + 64;
	s->g.slot_mem.len = s->place[1].heads_off + 128 + 64 + 12;
}

START_TEST(heads_before_their_slots)
{
	struct sample s;

	good_led(&s);
	ck_assert_msg(grant_check(&s.g, need, 2) == 0, "%s", err_text());
	s.g.slot_mem.len--;
	ck_assert_int_eq(grant_check(&s.g, need, 2), -EPROTO);
	ck_assert_msg(strstr(err_text(), "heads_off: 832 + 204 bytes; the region has 1035"), "%s",
		      err_text());
	good_led(&s);
	s.place[0].heads_stride = s.place[0].slots_stride = 320; /* the next head is in the slot */
	ck_assert_int_eq(grant_check(&s.g, need, 2), -EPROTO);
	ck_assert_msg(strstr(err_text(), "slots_stride: 320; must be 344 at least"), "%s",
		      err_text());
	good_led(&s);
	s.place[1].heads_off -= 64;
	s.place[1].slots_off -= 64;
	ck_assert_int_eq(grant_check(&s.g, need, 2), -EPROTO);
	ck_assert_msg(strstr(err_text(), "heads_off: 768; what is before it ends at 792"), "%s",
		      err_text());
}
END_TEST

#define SPOIL(name, ...)                   \
	static void name(struct sample *s) \
	{                                  \
		__VA_ARGS__;               \
	}

SPOIL(too_few, s->g.n = 1)
SPOIL(too_many, s->g.n = 3)
SPOIL(no_slots, s->g.slots = 0)
SPOIL(nine_slots, s->g.slots = 9)
SPOIL(huge_slots, s->g.slots = UINT32_MAX)
SPOIL(no_blocks, s->g.blocks = 0)
SPOIL(too_many_blocks, s->g.blocks = IMM_MAX_BLOCKS + 1)
SPOIL(more_blocks, s->g.blocks = 5)
SPOIL(fewer_blocks, s->g.blocks = 3)
SPOIL(empty_weights, s->g.weights.len = 0)
SPOIL(huge_weights, s->g.weights.len = UINT64_MAX)
SPOIL(weights_wrap, s->g.weights.addr = UINT64_MAX - 100)
SPOIL(huge_slot_mem, s->g.slot_mem.len = (UINT64_C(1) << 56) + 1)
SPOIL(slot_mem_wraps, s->g.slot_mem.addr = UINT64_MAX)
SPOIL(other_elems, s->place[0].elems = 71)
SPOIL(huge_elems, s->place[1].elems = UINT64_MAX)
SPOIL(no_block_elems, s->place[0].block_elems = 0)
SPOIL(long_blocks, s->place[0].block_elems = 71)
SPOIL(rows_cut, s->place[0].block_elems = 29)
SPOIL(wrong_block_count, s->place[0].blocks = 4)
SPOIL(zero_blocks, s->place[1].blocks = 0)
SPOIL(blocks_overlap, s->place[1].first_block = 2)
SPOIL(blocks_with_a_hole, s->place[1].first_block = 4)
SPOIL(blocks_swapped, s->place[0].first_block = 1)
SPOIL(odd_weights, s->place[0].weights_off = 4097)
SPOIL(weights_on_versions, s->place[0].weights_off = 0)
SPOIL(weights_overlap, s->place[1].weights_off = 4096 + 256)
SPOIL(weights_same, s->place[1].weights_off = 4096)
SPOIL(weights_outside, s->g.weights.len -= 1)
SPOIL(weights_far, s->place[1].weights_off = UINT64_C(1) << 63)
SPOIL(weights_off_wraps, s->place[1].weights_off = UINT64_MAX - 63)
SPOIL(odd_slots, s->place[0].slots_off = 196)
SPOIL(odd_stride, s->place[0].slots_stride = 322)
SPOIL(short_stride, s->place[0].slots_stride = 256)
SPOIL(no_stride, s->place[1].slots_stride = 0)
SPOIL(huge_stride, s->place[1].slots_stride = UINT64_C(1) << 63)
/* 2^57 · 7 slots would still fit, 2^63 · 2 would be 0. */
SPOIL(slots_on_head, s->place[0].heads_off = 0)
SPOIL(slots_overlap, s->place[1].heads_off = 64 + 320)
SPOIL(slots_on_heads, s->place[1].slots_off = 896)
SPOIL(landing_on_credits, s->place[0].landing_off = 0)
SPOIL(landing_overlap, s->place[1].landing_off = 4096 + 256)
SPOIL(odd_landing, s->place[0].landing_off = 4100)
SPOIL(landing_far, s->place[1].landing_off = UINT64_C(1) << 60)
SPOIL(slots_outside, s->g.slot_mem.len -= 1)
SPOIL(slots_far, s->place[1].slots_off = UINT64_MAX - 63)

static const struct {
	const char *text;
	void (*spoil)(struct sample *s);
} bad[] = {
    {"grant: 1 places; 2 parameters were declared", too_few},
    {"grant: 3 places; 2 parameters were declared", too_many},
    {"slots: 0; must be 1 to 8", no_slots},
    {"slots: 9; must be 1 to 8", nine_slots},
    {"slots: 4294967295; must be 1 to 8", huge_slots},
    {"blocks: 0; must be 1 to 33554432", no_blocks},
    {"blocks: 33554433; must be 1 to 33554432", too_many_blocks},
    {"blocks: 5; the parameters have 4", more_blocks},
    {"parameter 1: blocks: up to 4; the grant has 3 in all", fewer_blocks},
    {"weights: a region of 0 bytes", empty_weights},
    {"weights: a region of 18446744073709551615 bytes", huge_weights},
    {"weights: address 0xffffffffffffff9b + 4428 bytes wraps", weights_wrap},
    {"slot_mem: a region of 72057594037927937 bytes", huge_slot_mem},
    {"slot_mem: address 0xffffffffffffffff + 1036 bytes wraps", slot_mem_wraps},
    {"parameter 0: elems: 71; 70 were declared", other_elems},
    {"elems: 18446744073709551615; 3 were declared", huge_elems},
    {"block_elems: 0; must be 1 to 70", no_block_elems},
    {"block_elems: 71; must be 1 to 70", long_blocks},
    {"block_elems: 29; must be whole rows of 7", rows_cut},
    {"blocks: 4; 70 elements in blocks of 28 make 3", wrong_block_count},
    {"blocks: 0; 3 elements in blocks of 3 make 1", zero_blocks},
    {"first_block: 2; must be 3", blocks_overlap},
    {"first_block: 4; must be 3", blocks_with_a_hole},
    {"first_block: 1; must be 0", blocks_swapped},
    {"weights_off: 4097; must be a multiple of 64", odd_weights},
    {"weights_off: 0; what is before it ends at 4096", weights_on_versions},
    {"weights_off: 4352; what is before it ends at 4376", weights_overlap},
    {"weights_off: 4096; what is before it ends at 4376", weights_same},
    {"weights_off: 4416 + 12 bytes; the region has 4427", weights_outside},
    {"weights_off: 9223372036854775808 + 12 bytes; the region has 4428", weights_far},
    {"weights_off: 18446744073709551552 + 12 bytes; the region has 4428", weights_off_wraps},
    {"slots_off: 196; must be a multiple of 64", odd_slots},
    {"slots_stride: 322; must be a multiple of 64", odd_stride},
    {"slots_stride: 256; must be 280 at least", short_stride},
    {"slots_stride: 0; must be 12 at least", no_stride},
    {"slots_stride: 9223372036854775808; must be 12 at least, and 2^56 at most", huge_stride},
    {"heads_off: 0; what is before it ends at 64", slots_on_head},
    {"heads_off: 384; what is before it ends at 792", slots_overlap},
    {"slots_off: 960 + 76 bytes; the region has 1035", slots_outside},
    {"slots_off: 18446744073709551552 + 76 bytes; the region has 1036", slots_far},
    {"slots_off: 896; what is before it ends at 960", slots_on_heads},
    {"landing_off: 0; what is before it ends at 4096", landing_on_credits},
    {"landing_off: 4352; what is before it ends at 4376", landing_overlap},
    {"landing_off: 4100; must be a multiple of 64", odd_landing},
    {"landing_off: 1152921504606846976 + 12 bytes; the region has 72057594037927936", landing_far},
};

START_TEST(a_bad_grant)
{
	struct sample s;

	good(&s);
	bad[_i].spoil(&s);
	ck_assert_int_eq(grant_check(&s.g, need, 2), -EPROTO);
	ck_assert_msg(strstr(err_text(), bad[_i].text), "\"%s\" is not in \"%s\"", bad[_i].text,
		      err_text());
}
END_TEST

/* ---- packs ----------------------------------------------------------------------------------- */

static const struct grant_need small[4] = {
    {.elems = 3, .row = 1, .weights = 12, .slot = 12, .landing = 12},
    {.elems = 20, .row = 1, .weights = 80, .slot = 80, .landing = 80},
    {.elems = 3, .row = 1, .weights = 12, .slot = 12, .landing = 12},
    {.elems = 3, .row = 1, .weights = 12, .slot = 12, .landing = 12},
};

struct packed {
	struct grant g;
	struct wire_place place[4];
	struct grant_need need[4];
};

/* Parameters 0 .. 2 are a pack: 64 + 128 + 64 bytes, two slots; the last is by itself. */
static void good_pack(struct packed *s)
{
	static const uint64_t at[] = {0, 64, 192, 256};

	memset(s, 0, sizeof(*s));
	memcpy(s->need, small, sizeof(small));
	for (uint32_t i = 0; i < 4; i++)
		s->place[i] = (struct wire_place){.elems = small[i].elems,
						  .block_elems = small[i].elems,
						  .weights_off = 4096 + at[i],
						  .landing_off = 4096 + at[i],
						  .heads_off = 64 + 64 * i,
						  .heads_stride = 3 * 64,
						  .slots_off = 64 + 2 * 3 * 64 + at[i],
						  .slots_stride = 256,
						  .first_block = i,
						  .blocks = 1,
						  .pack = 1};
	s->place[3].pack = 0;
	s->place[3].heads_stride = s->place[3].slots_stride = 64;
	s->place[3].heads_off = 64 + 2 * 3 * 64 + 2 * 256;
	s->place[3].slots_off = s->place[3].heads_off + 128;
	s->g = (struct grant){
	    .n = 4,
	    .slots = 2,
	    .blocks = 4,
	    .weights = {0x10000, 4096 + 256 + 12, 1},
	    .slot_mem = {0x20000, s->place[3].slots_off + 64 + 12, 2},
	    .place = s->place,
	};
}

START_TEST(a_good_pack)
{
	struct packed s;

	good_pack(&s);
	ck_assert_msg(grant_check(&s.g, s.need, 4) == 0, "%s", err_text());
}
END_TEST

#define SPOIL_PACK(name, ...)               \
	static void name(struct packed *s)  \
	{                                   \
		__VA_ARGS__;                \
	}

SPOIL_PACK(no_pack_1, for (int i = 0; i < 3; i++) s->place[i].pack = 2)
SPOIL_PACK(pack_of_one, s->place[1].pack = 0)
SPOIL_PACK(pack_cut, s->place[2].pack = 2)
SPOIL_PACK(pack_too_long, s->place[3].pack = 1)
SPOIL_PACK(pack_again, s->place[1].pack = 0; s->place[2].pack = 0; s->place[3].pack = 1)
SPOIL_PACK(pack_stride_short, s->place[0].slots_stride = 192)
SPOIL_PACK(pack_stride_odd, s->place[1].slots_stride = 320)
SPOIL_PACK(pack_heads_stride, s->place[0].heads_stride = 64)
SPOIL_PACK(pack_heads_stride_odd, s->place[2].heads_stride = 128)
SPOIL_PACK(pack_head_elsewhere, s->place[1].heads_off += 64)
SPOIL_PACK(pack_slot_elsewhere, s->place[1].slots_off += 64)
SPOIL_PACK(pack_slot_overlaps, s->place[2].slots_off -= 64)
SPOIL_PACK(pack_on_head, s->place[0].heads_off = 0)
SPOIL_PACK(pack_on_its_heads, for (int i = 0; i < 3; i++) s->place[i].slots_off -= 64)
SPOIL_PACK(pack_overlapped, s->place[3].heads_off -= 128)
SPOIL_PACK(pack_outside, s->g.slot_mem.len = 64 + 2 * 3 * 64 + 256 + 192 + 11)
SPOIL_PACK(pack_far, for (int i = 0; i < 3; i++) s->place[i].slots_off += UINT64_C(1) << 63)
SPOIL_PACK(pack_of_blocks, s->place[1].block_elems = 10; s->place[1].blocks = 2; s->g.blocks = 5;
	   s->place[2].first_block = 3; s->place[3].first_block = 4)
SPOIL_PACK(pack_of_a_table, s->need[1].request = 72)
SPOIL_PACK(pack_huge, s->need[1].slot = UINT64_C(1) << 55)
SPOIL_PACK(heads_stride_alone, s->place[3].heads_stride = 128)

static const struct {
	const char *text;
	void (*spoil)(struct packed *s);
} bad_packs[] = {
    {"parameter 0: pack: 2; the next is 1", no_pack_1},
    {"parameter 0: pack: 1; it has one parameter", pack_of_one},
    {"parameter 0: slots_stride: 256; must be 192 in its pack", pack_cut},
    {"parameter 0: slots_stride: 256; must be 320 in its pack", pack_too_long},
    {"parameter 0: pack: 1; it has one parameter", pack_again},
    {"parameter 0: slots_stride: 192; must be 256 in its pack", pack_stride_short},
    {"parameter 1: slots_stride: 320; must be 256 in its pack", pack_stride_odd},
    {"parameter 0: heads_stride: 64; must be 192 in its pack", pack_heads_stride},
    {"parameter 2: heads_stride: 128; must be 192 in its pack", pack_heads_stride_odd},
    {"parameter 1: heads_off: 192; must be 128 in its pack", pack_head_elsewhere},
    {"parameter 1: slots_off: 576; must be 512 in its pack", pack_slot_elsewhere},
    {"parameter 2: slots_off: 576; must be 640 in its pack", pack_slot_overlaps},
    {"parameter 0: heads_off: 0; what is before it ends at 64", pack_on_head},
    {"parameter 0: slots_off: 384; what is before it ends at 448", pack_on_its_heads},
    {"parameter 3: heads_off: 832; what is before it ends at 908", pack_overlapped},
    {"parameter 0: slots_off: 448 + 460 bytes; the region has 907", pack_outside},
    {"parameter 0: slots_off: 9223372036854776256 + 460 bytes; the region has", pack_far},
    {"parameter 1: pack: 1, of several blocks; it takes tensors of one block", pack_of_blocks},
    {"parameter 1: pack: 1, of a table; it takes tensors of one block", pack_of_a_table},
    {"parameter 0: pack: 1; a slot of it is 36028797018964032 bytes and more", pack_huge},
    {"parameter 3: heads_stride: 128; must be 64", heads_stride_alone},
};

START_TEST(a_bad_pack)
{
	struct packed s;

	good_pack(&s);
	bad_packs[_i].spoil(&s);
	ck_assert_int_eq(grant_check(&s.g, s.need, 4), -EPROTO);
	ck_assert_msg(strstr(err_text(), bad_packs[_i].text), "\"%s\" is not in \"%s\"",
		      bad_packs[_i].text, err_text());
}
END_TEST

/* No choice of numbers may get past the check with memory outside the regions. */
START_TEST(random_grants)
{
	static const uint64_t odd[] = {
	    0,    1,    2,   3,   4,    28,         64,         70,
	    128,  320,  704, 768, 4096, UINT32_MAX, UINT64_MAX, UINT64_MAX - 63,
	    4416, 4480, 5000};
	uint64_t x = 88172645463325252;
	int passed = 0;

	for (int round = 0; round < 300000; round++) {
		struct sample s;

		good(&s);
		for (int k = 0; k < 2; k++) {
			uint64_t *fields[] = {&s.place[1].weights_off,  &s.place[1].slots_off,
					      &s.place[0].slots_stride, &s.g.weights.len,
					      &s.g.slot_mem.len,        &s.place[0].block_elems,
					      &s.place[1].heads_off,    &s.place[1].landing_off};

			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			*fields[x % 8] = (x >> 40 & 1) ? odd[(x >> 8) % 19] : 1ull << (x >> 8) % 64;
		}
		if (grant_check(&s.g, need, 2) < 0)
			continue;
		passed++;
		for (int i = 0; i < 2; i++) {
			unsigned __int128 w = s.place[i].weights_off;
			unsigned __int128 l = s.place[i].slots_off;

			l += (unsigned __int128)s.place[i].slots_stride + need[i].slot;
			ck_assert(w + need[i].slot <= s.g.weights.len);
			ck_assert(l <= s.g.slot_mem.len);
		}
	}
	ck_assert_int_gt(passed, 100);
}
END_TEST

Suite *grant_suite(void)
{
	Suite *s = suite_create("trainer: pure");
	TCase *c = tcase_create("credits and grants");

	tcase_add_test(c, a_slot_is_never_written_while_in_use);
	tcase_add_test(c, credits_by_hand);
	tcase_add_test(c, a_good_grant);
	tcase_add_test(c, heads_before_their_slots);
	tcase_add_loop_test(c, a_bad_grant, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(c, a_good_pack);
	tcase_add_loop_test(c, a_bad_pack, 0, sizeof(bad_packs) / sizeof(bad_packs[0]));
	tcase_add_test(c, random_grants);
	suite_add_tcase(s, c);
	return s;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Data that breaks the protocol: its sender is told why and let go of, its rank and slots are free
 * again, and the other trainer goes on as if nothing had been.
 */
#include <math.h>

#include "cases.h"
#include "raw.h"

struct scene {
	struct bed bed;
	struct raw good, bad; /* ranks 0 and 1 */
	uint64_t both, none;  /* the server's memory with both, with none */
};

static void scene_open(struct scene *s, enum srv_mode mode)
{
	struct srv_options opt = bed_options(2, mode);

	opt.block_kib = 1;
	bed_start(&s->bed, &opt);
	raw_join(&s->good, s->bed.uri, 0);
	raw_join(&s->bad, s->bed.uri, 1);
	raw_wait_start(&s->good);
	raw_wait_start(&s->bad);
	s->both = bed_stats(&s->bed).memory;
}

/* The weights of block b of "a", as the server writes them on demand. */
static float pulled(struct raw *r, uint32_t b)
{
	uint64_t off = r->place[0].landing_off;
	uint32_t imms = r->imms;
	float *landed = (float *)(void *)((uint8_t *)tp_arena_base(r->mailbox) + off);

	raw_write(r, 8, 8, imm_block(IMM_PULL, r->place[0].first_block + b, 0, false));
	while (r->imms == imms || imm_unpack(r->last_imm).kind != IMM_PULLED) {
		must(!r->closed, "closed while pulling");
		raw_poll(r);
	}
	return landed[b * r->place[0].block_elems];
}

static void push_a(struct raw *r, uint32_t slot)
{
	for (uint32_t b = 0; b < r->place[0].blocks; b++)
		raw_gradient(r, 0, b, slot, 1, true);
}

static bool memory_went_down(void *arg)
{
	struct scene *s = arg;

	return bed_stats(&s->bed).memory < s->both;
}

static bool memory_is_back(void *arg)
{
	struct scene *s = arg;

	return bed_stats(&s->bed).memory == s->none;
}

/* The good one alone makes three steps of "a"; the bad one's place is taken anew. */
static void scene_close(struct scene *s, enum srv_mode mode, uint64_t violations)
{
	struct raw *r = &s->good;
	struct raw again;
	uint64_t one;

	bed_wait_connected(&s->bed, 1);
	must(bed_stats(&s->bed).violations == violations, "%llu violations",
	     (unsigned long long)bed_stats(&s->bed).violations);
	for (uint32_t i = 1; i <= 3; i++) {
		push_a(r, i % 2);
		if (mode == SRV_SYNC) {
			raw_barrier(r, i);
			raw_wait_release(r, i);
		} else {
			for (uint32_t b = 0; b < r->place[0].blocks; b++)
				raw_wait_credit(r, b, i);
		}
	}
	for (uint32_t b = 0; b < r->place[0].blocks; b++)
		must(pulled(r, b) == -3, "block %u", b);
	wait_until(memory_went_down, s, "its slots to be given back");
	one = bed_stats(&s->bed).memory;
	raw_join(&again, s->bed.uri, 1);
	must(bed_stats(&s->bed).memory == s->both, "memory of the second time");
	for (uint64_t step = 4; mode == SRV_SYNC && again.first == again.last; step++) {
		raw_barrier(r, step);
		while (raw_released(r) < step && again.first == again.last) {
			raw_poll(r);
			raw_poll(&again);
		}
	}
	raw_wait_start(&again);
	must(mode == SRV_ASYNC || again.step >= 5, "step");
	raw_close(&again);
	raw_close(r);
	bed_wait_connected(&s->bed, 0);
	s->none = one - (s->both - one);
	wait_until(memory_is_back, s, "all slots to be given back");
	bed_stop(&s->bed);
}

static void unknown_block(struct raw *r)
{
	raw_write(r, 64, 1024, imm_block(IMM_GRAD, 5, 0, false));
}

static void last_block_there_could_be(struct raw *r)
{
	raw_write(r, 64, 1024, imm_block(IMM_GRAD, IMM_MAX_BLOCKS - 1, 7, true));
}

static void slot_out_of_range(struct raw *r)
{
	raw_write(r, 64, 1024, imm_block(IMM_GRAD, 0, 2, false));
}

static void too_short(struct raw *r)
{
	raw_write(r, 64, 1020, imm_block(IMM_GRAD, 0, 0, false));
}

static void too_long(struct raw *r)
{
	raw_write(r, 64, 1028, imm_block(IMM_GRAD, 0, 0, false));
}

static void wrong_size_of_the_last(struct raw *r)
{
	raw_write(r, 64, 1024, imm_block(IMM_GRAD, 3, 0, false));
}

/* Only the first comes behind the head. */
static void head_with_another_block(struct raw *r)
{
	raw_write(r, 64, 64 + 1024, imm_block(IMM_GRAD, 1, 0, false));
}

static void pull_unknown(struct raw *r)
{
	raw_write(r, 8, 8, imm_block(IMM_PULL, 5, 0, false));
}

static void kind_unknown(struct raw *r)
{
	raw_write(r, 64, 8, 0x00000001);
}

static void kind_of_the_server(struct raw *r)
{
	raw_write(r, 64, 8, 0x7fffffff);
}

static void initial_weights_now(struct raw *r)
{
	raw_write(r, 64, 1024, imm_block(IMM_INIT, 0, 0, false));
}

/* Sync only. */
static void without_credit(struct raw *r)
{
	/* The other one never pushes "b": the slot stays in use until the barrier. */
	raw_gradient(r, 1, 0, 0, 7, false);
	raw_gradient(r, 1, 0, 0, 7, false);
}

static void second_in_a_step(struct raw *r)
{
	raw_gradient(r, 1, 0, 0, 7, false);
	raw_gradient(r, 1, 0, 1, 7, false);
}

static void step_not_released(struct raw *r)
{
	raw_barrier(r, 1);
	raw_gradient(r, 1, 0, 0, 7, false);
}

static void barrier_far_ahead(struct raw *r)
{
	raw_barrier(r, 7);
}

static void barrier_not_released(struct raw *r)
{
	raw_barrier(r, 1);
	raw_barrier(r, 2);
}

static void barrier_in_async(struct raw *r)
{
	raw_barrier(r, 1);
}

static const struct act {
	void (*act)(struct raw *);
	unsigned modes; /* bits */
	const char *words[4];
} acts[] = {
    {unknown_block, 3, {"block 5", "5 blocks"}},
    {last_block_there_could_be, 3, {"block 33554431", "slot 7", "5 blocks"}},
    {slot_out_of_range, 3, {"slot 2", "2 slots"}},
    {too_short, 3, {"block 0", "1020 bytes", "1024"}},
    {too_long, 3, {"block 0", "1028 bytes", "1024"}},
    {wrong_size_of_the_last, 3, {"block 3", "1024 bytes", "28"}},
    {head_with_another_block, 3, {"block 1", "1088 bytes", "1024"}},
    {pull_unknown, 3, {"block 5", "there are 5"}},
    {kind_unknown, 3, {"0x00000001", "kind 0", "training"}},
    {kind_of_the_server, 3, {"0x7fffffff", "kind 3"}},
    {initial_weights_now, 3, {"kind 5", "training"}},
    {without_credit, 1, {"block 4", "slot 0", "credit"}},
    {second_in_a_step, 1, {"block 4", "second", "step 1"}},
    {step_not_released, 1, {"block 4", "step 2", "step 1"}},
    {barrier_far_ahead, 1, {"step 7", "1 is next"}},
    {barrier_not_released, 1, {"step 2", "step 1"}},
    {barrier_in_async, 2, {"barrier", "async"}},
};
enum { ACTS = sizeof(acts) / sizeof(acts[0]) };

START_TEST(is_told_and_let_go)
{
	const struct act *a = &acts[_i % ACTS];
	enum srv_mode mode = _i < ACTS ? SRV_SYNC : SRV_ASYNC;
	struct scene s;

	if (!(a->modes & (unsigned)mode) || (a->modes == 3 && left_out(_i, 2)))
		return;
	scene_open(&s, mode);
	a->act(&s.bad);
	raw_expect_error(&s.bad, WIRE_E_PROTOCOL, a->words);
	scene_close(&s, mode, 1);
}
END_TEST

/* What a head may not say about a push. Nothing of the push is applied. */
START_TEST(a_head_that_lies)
{
	static const float bad[] = {NAN, -1, INFINITY, 0x1p61f, 0x1p-61f};
	enum { BAD = sizeof(bad) / sizeof(bad[0]) };
	enum srv_mode mode = _i % (4 * BAD) < 2 * BAD ? SRV_SYNC : SRV_ASYNC;
	bool along = _i >= 4 * BAD; /* in one WRITE with the gradient */
	struct layout_push_head head = {.scale = 1};
	struct scene s;

	if (left_out(_i, 9))
		return;
	if (_i % 2)
		head.scale = bad[_i / 2 % BAD];
	else
		head.weight = bad[_i / 2 % BAD];
	scene_open(&s, mode);
	if (!along)
		raw_head(&s.bad, 0, 1, &head);
	/* Of the other slot: not meant. */
	raw_gradient(&s.bad, 1, 0, 0, 0, false);
	if (along)
		raw_led_gradient(&s.bad, 0, 1, &head, 7);
	else
		raw_gradient(&s.bad, 0, 0, 1, 7, false);
	RAW_ENDS(&s.bad, WIRE_E_PROTOCOL, "block 0", "2^-60 to 2^60");
	scene_close(&s, mode, 1);
}
END_TEST

START_TEST(a_repeated_barrier_is_harmless)
{
	struct scene s;

	scene_open(&s, SRV_SYNC);
	for (uint64_t step = 1; step <= 3; step++) {
		raw_barrier(&s.bad, step);
		raw_barrier(&s.bad, step);
		raw_barrier(&s.good, step);
		raw_wait_release(&s.good, step);
		raw_wait_release(&s.bad, step);
		raw_barrier(&s.bad, step);
	}
	must(bed_stats(&s.bed).violations == 0, "a violation");
	raw_close(&s.bad);
	raw_close(&s.good);
	bed_wait_connected(&s.bed, 0);
	must(bed_stats(&s.bed).step == 3, "steps");
	bed_stop(&s.bed);
}
END_TEST

/* Data before it is this trainer's turn: granted, but not attached; attached, but not begun. */
START_TEST(data_too_early)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct bed bed;
	struct raw r;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	raw_join(&r, bed.uri, 0);
	raw_gradient(&r, 1, 0, 0, 1, false);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "kind 4", "waiting");
	bed_wait_connected(&bed, 0);
	raw_connect(&r, bed.uri, 0);
	raw_hello(&r, 0);
	raw_expect(&r, WIRE_WELCOME);
	raw_declare(&r, raw_lines, 2);
	raw_take_grant(&r);
	const struct tp_ref slots = {r.grant.slot_mem.addr, r.grant.slot_mem.len,
				     r.grant.slot_mem.key, .more = 0};
	ok(tp_attach(r.conn, &slots, TP_PEER_WRITE, slots.len, &r.slot_mem));
	ok(tp_arena_create("source", 65536, 0, &r.source));
	ok(tp_expose(r.conn, r.source, TP_LOCAL, &r.source_region));
	raw_gradient(&r, 1, 0, 0, 1, false);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "kind 4", "attaching");
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).violations == 2, "violations");
	bed_stop(&bed);
}
END_TEST

/* What follows a bye reaches no parameter, however soon it comes. */
START_TEST(data_behind_a_bye)
{
	struct wire_msg bye = {.kind = WIRE_BYE};

	for (uint32_t i = 0; i < scaled(40, 2); i++) {
		struct scene s;

		scene_open(&s, SRV_SYNC);
		s.bad.deaf = true;
		raw_send(&s.bad, &bye);
		raw_gradient(&s.bad, 0, 0, 0, 1000, false);
		raw_gradient(&s.bad, 0, 1, 0, 1000, false);
		while (!s.bad.closed)
			raw_poll(&s.bad);
		raw_free(&s.bad);
		scene_close(&s, SRV_SYNC, 1);
	}
}
END_TEST

TCase *bad_data_case(void)
{
	TCase *t = e2e_wire_case("bad_data");

	tcase_add_loop_test(t, is_told_and_let_go, 0, 2 * ACTS);
	tcase_add_loop_test(t, a_head_that_lies, 0, 40);
	tcase_add_test(t, a_repeated_barrier_is_harmless);
	tcase_add_test(t, data_too_early);
	tcase_add_test(t, data_behind_a_bye);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the server has of a rank from before, and what the first pushes then leave out.
 */
#include "fake.h"

/* One parameter's blocks that come next are these, of push `slot` (in its slot); the last is
 * answered in async mode. */
static void expect_blocks(struct fake *f, uint32_t slot, const uint32_t *block, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct imm imm = fake_expect_imm(f, IMM_GRAD);

		ck_assert_uint_eq(imm.block, block[i]);
		ck_assert_uint_eq(imm.slot, slot);
		ck_assert_int_eq(imm.notify, f->mode != WIRE_SYNC && i == n - 1);
	}
}

static void credit_w(struct fake *f, const uint64_t credit[W_BLOCKS])
{
	for (uint32_t b = 0; b < W_BLOCKS; b++)
		fake_credit(f, b, credit[b], b == W_BLOCKS - 1);
}

/* ---- async ----------------------------------------------------------------------------------- */

/* Of the three blocks the second has one push more, the last two more. */
static void take_uneven(struct fake *f)
{
	static const uint32_t first = 0, both[] = {0, 1}, all[] = {0, 1, 2};

	fake_up_to(f, STAGE_STARTED);
	expect_blocks(f, 0, &first, 1);
	expect_blocks(f, 1, both, 2);
	atomic_store(&f->seen, 1);
	/* The third is in slot 0 again. */
	struct tp_event ev;
	ck_assert(!fake_next(f, &ev, 50));
	fake_credit(f, 0, 1, true);
	expect_blocks(f, 0, all, 3);
	credit_w(f, (const uint64_t[]){3, 3, 3});
	fake_expect_closed(f);
}

START_TEST(blocks_that_are_further)
{
	struct rig r = {.f = {.kept = {5, 6, 7, 9}}};
	float w[W_ELEMS] = {0};
	uint64_t n;

	rig_up(&r, (enum wire_mode)_i, take_uneven);
	ck_ok(gs_pushes(r.t, r.w, &n));
	ck_assert_uint_eq(n, 5);
	ck_ok(gs_pushes(r.t, r.b, &n));
	ck_assert_uint_eq(n, 9);
	for (int i = 0; i < 3; i++)
		ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_wait_applied(r.t, r.w));
	ck_ok(gs_pushes(r.t, r.w, &n));
	ck_assert_uint_eq(n, 8);
	rig_down(&r);
}
END_TEST

/* The credit of a block that is not sent is not waited for, and may say so. */
static void take_two(struct fake *f)
{
	static const uint32_t two[] = {0, 2};

	fake_up_to(f, STAGE_STARTED);
	expect_blocks(f, 0, two, 2);
	fake_credit(f, 0, 1, false);
	fake_credit(f, 2, 1, true);
	fake_expect_closed(f);
}

START_TEST(no_credit_for_what_is_in)
{
	struct rig r = {.f = {.kept = {1, 3, 1}, .unseeded = _i}};
	float w[W_ELEMS] = {0};

	rig_up(&r, WIRE_ASYNC, take_two);
	ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_wait_applied(r.t, r.w));
	rig_down(&r);
}
END_TEST

/* ---- sync ------------------------------------------------------------------------------------ */

static void take_steps(struct fake *f)
{
	static const uint32_t last = 2, all[] = {0, 1, 2};

	fake_up_to(f, STAGE_STARTED);
	expect_blocks(f, 0, &last, 1);
	ck_assert_uint_eq(fake_expect_imm(f, IMM_BARRIER).step, 3);
	fake_release(f, 3);
	expect_blocks(f, 1, all, 3);
	fake_expect_closed(f);
}

START_TEST(a_step_that_is_in_in_part)
{
	struct rig r = {.f = {.kept = {3, 3, 2}, .start_step = 3}};
	float w[W_ELEMS] = {0};
	struct gs_info info;
	uint64_t n;

	rig_up(&r, WIRE_SYNC, take_steps);
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.step, 3);
	ck_ok(gs_pushes(r.t, r.w, &n));
	ck_assert_uint_eq(n, 2);
	ck_ok(gs_pushes(r.t, r.b, &n));
	ck_assert_uint_eq(n, 0);
	ck_ok(gs_push(r.t, r.w, w));
	ck_fails(gs_push(r.t, r.w, w), EALREADY, "in step 3");
	ck_ok(gs_pushes(r.t, r.w, &n));
	ck_assert_uint_eq(n, 3);
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_push(r.t, r.w, w));
	rig_down(&r);
}
END_TEST

static void take_barrier_alone(struct fake *f)
{
	static const uint32_t all[] = {0, 1, 2};

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_BARRIER);
	fake_release(f, 3);
	expect_blocks(f, *(uint32_t *)f->arg, all, 3);
	fake_expect_closed(f);
}

/* All of it is in, whether it is pushed or not; the next step is another matter. */
START_TEST(a_step_that_is_in)
{
	uint32_t slot = 1; /* of the second step, also where nothing was pushed in the first */
	struct rig r = {.f = {.kept = {3, 3, 3}, .start_step = 3, .arg = &slot}};
	float w[W_ELEMS] = {0};
	uint64_t n;

	rig_up(&r, WIRE_SYNC, take_barrier_alone);
	ck_ok(gs_pushes(r.t, r.w, &n));
	ck_assert_uint_eq(n, 3);
	if (_i)
		ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_push(r.t, r.w, w));
	rig_down(&r);
}
END_TEST

static void take_head(struct fake *f)
{
	const struct layout_push_head *head;

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_BARRIER);
	fake_release(f, 3);
	for (int b = 0; b < W_BLOCKS; b++)
		fake_expect_imm(f, IMM_GRAD);
	head = (const struct layout_push_head *)(const void *)(f->slot + f->place[0].heads_off);
	ck_assert_float_eq(head->weight, 2);
	fake_expect_closed(f);
}

/* Nothing was sent of it, no head either: the next push of its slot has to say the same anew. */
START_TEST(what_was_not_said)
{
	struct rig r = {.f = {.kept = {3, 3, 3}, .start_step = 3, .slots = 1}};
	float w[W_ELEMS] = {0};

	rig_up(&r, WIRE_SYNC, take_head);
	ck_ok(gs_set_samples(r.t, 2));
	ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_push(r.t, r.w, w));
	rig_down(&r);
}
END_TEST

/* ---- tables ---------------------------------------------------------------------------------- */

enum { ROWS = 40, DIM = 7 };

static gs_param *table_up(struct rig *r, enum wire_mode mode, void (*script)(struct fake *f))
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;

	r->f.mode = mode;
	fake_start(&r->f, script);
	ck_ok(rig_connect(r));
	d.name = "t";
	d.ndim = 2;
	d.shape[0] = ROWS;
	d.shape[1] = DIM;
	d.kind = GS_TABLE;
	d.slot_rows = 3;
	d.push_rows = 30;
	gs_setting(&d, "lr", 1);
	ck_ok(gs_declare(r->t, &d, &p));
	ck_ok(gs_start(r->t));
	return p;
}

static void take_rows(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	if (f->mode == WIRE_SYNC) {
		fake_expect_imm(f, IMM_BARRIER);
		fake_release(f, 3);
	}
	ck_assert_uint_eq(fake_expect_imm(f, IMM_GRAD).slot, 0);
	fake_expect_closed(f);
}

/* Words but the first's mean nothing. */
START_TEST(a_table)
{
	struct rig r = {.f = {.kept = {3, 99, 7}, .start_step = 3}};
	static const int64_t id = 5;
	float row[DIM] = {0};
	uint64_t n;
	gs_param *p = table_up(&r, (enum wire_mode)_i, take_rows);

	ck_ok(gs_pushes(r.t, p, &n));
	ck_assert_uint_eq(n, 3);
	if (_i == WIRE_SYNC && fake_unmapped) {
		/* What is in may be under an update: it does not stand still. */
		wrap_reads_begin();
		ck_ok(gs_pull_rows(r.t, p, &id, 1, GS_ROWS_READ, row));
		ck_assert_str_eq(wrap_reads_end(), "VfRfV");
	}
	ck_ok(gs_push_rows(r.t, p, &id, row, 1));
	if (_i == WIRE_SYNC) {
		ck_ok(gs_step_end(r.t));
		ck_ok(gs_push_rows(r.t, p, &id, row, 1));
	}
	ck_ok(gs_pushes(r.t, p, &n));
	ck_assert_uint_eq(n, 4);
	rig_down(&r);
}
END_TEST

/* ---- words that can't be --------------------------------------------------------------------- */

static const struct {
	enum wire_mode mode;
	uint64_t kept[4];
	bool init;
	const char *text;
} lies[] = {
    {WIRE_ASYNC, {5, 8, 5}, false, "one block has 8 pushes of this rank, another 5; there are 2"},
    {WIRE_SSP, {0, 3, 0}, false, "one block has 3 pushes of this rank, another 0"},
    {WIRE_ASYNC, {0, 0, 0, UINT64_MAX}, false, "block 3: it has 18446744073709551615 pushes"},
    {WIRE_SYNC, {1, 1, 2}, false, "gradient of step 2; the step is 1"},
    {WIRE_ASYNC, {0, 0, 0, 1}, true, "block 3: it has 1 pushes of this rank, and no initial"},
};

static void lie(struct fake *f)
{
	struct wire_msg ready = {.kind = WIRE_READY, .ready = {.init = true}};
	int which = *(int *)f->arg;
	struct tp_event ev;

	if (lies[which].init) {
		fake_up_to(f, STAGE_ATTACHED);
		fake_word(f, layout_kept_off(f->blocks, 3), 1);
		fake_send(f, &ready);
	} else {
		fake_up_to(f, STAGE_STARTED);
	}
	do
		ck_assert(fake_next(f, &ev, FAKE_WAIT_MS));
	while (ev.kind == TP_EV_IMM);
	ck_assert_int_eq(f->msg.kind, WIRE_ERROR);
	ck_assert_int_eq(f->msg.error.code, WIRE_E_PROTOCOL);
	fake_expect_closed(f);
}

START_TEST(hostile_words)
{
	int which = _i;
	float init[W_ELEMS] = {0};
	struct rig r = {.f = {.arg = &which, .mode = lies[_i].mode}};

	memcpy(r.f.kept, lies[_i].kept, sizeof(lies[_i].kept));
	fake_start(&r.f, lie);
	ck_ok(rig_connect(&r));
	rig_declare(&r, lies[_i].init ? init : NULL);
	ck_fails(gs_start(r.t), EPROTO, lies[_i].text);
	rig_down(&r);
}
END_TEST

Suite *kept_suite(void)
{
	Suite *s = suite_create("trainer: kept words");
	TCase *c = tcase_create("kept");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, blocks_that_are_further, WIRE_ASYNC, WIRE_SSP + 1);
	tcase_add_loop_test(c, no_credit_for_what_is_in, 0, 2);
	tcase_add_test(c, a_step_that_is_in_in_part);
	tcase_add_loop_test(c, a_step_that_is_in, 0, 2);
	tcase_add_test(c, what_was_not_said);
	tcase_add_loop_test(c, a_table, WIRE_SYNC, WIRE_ASYNC + 1);
	tcase_add_loop_test(c, hostile_words, 0, sizeof(lies) / sizeof(lies[0]));
	suite_add_tcase(s, c);
	return s;
}

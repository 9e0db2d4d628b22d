/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_reconnect: a trainer that loses its server at any moment, to one that keeps its place. The
 * suite's other cases are in reconnect_*_test.c.
 */
#include "keeper.h"

#include <unistd.h>

/* The server is gone after `at` immediates, with the last of them answered or not; and again, early
 * in the second connection. */
static void lose_at(enum wire_mode mode, int at)
{
	static const int seconds[] = {-1, 0, 2};

	for (int mute = 0; mute < 2; mute++) {
		for (int s = 0; s < 3; s++) {
			struct keeper k;

			keeper_init(&k, mode, 1 + (uint32_t)(at + s) % 3);
			k.end_after[0] = at;
			k.end_after[1] = seconds[s];
			k.mute = mute;
			k.pulls = mode != WIRE_ASYNC && (s + mute) % 2;
			k.views = mute;
			keeper_up(&k);
			keeper_train(&k);
			keeper_down(&k);
		}
	}
}

START_TEST(lost_in_sync)
{
	lose_at(WIRE_SYNC, _i);
}
END_TEST

START_TEST(lost_in_async)
{
	lose_at(WIRE_ASYNC, _i);
}
END_TEST

START_TEST(lost_in_ssp)
{
	lose_at(WIRE_SSP, _i);
}
END_TEST

/* The connection ends under the trainer's hands: what it was just pushing is in in part, and the
 * call failed; and once more within gs_reconnect. */
static void cut_at(enum wire_mode mode, int at)
{
	for (int again = -1; again < 4; again++) {
		struct keeper k;

		keeper_init(&k, mode, 1 + (uint32_t)(at + again + 1) % 3);
		k.cut_again = again;
		k.pulls = mode != WIRE_ASYNC && again % 2 == 0;
		k.views = again == 2;
		keeper_up(&k);
		wrap_cut_after(at);
		keeper_train(&k);
		ck_assert_int_gt(k.returns, 0);
		keeper_down(&k);
	}
}

START_TEST(cut_in_sync)
{
	cut_at(WIRE_SYNC, _i);
}
END_TEST

START_TEST(cut_in_async)
{
	cut_at(WIRE_ASYNC, _i);
}
END_TEST

START_TEST(cut_in_ssp)
{
	cut_at(WIRE_SSP, _i);
}
END_TEST

/* Who comes back in ssp mode is as far as the slowest, wherever it was. */
static void send_back(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	for (uint64_t step = 1; step <= 3; step++) {
		ck_assert_uint_eq(fake_expect_imm(f, IMM_BARRIER).step, step);
		if (step < 3 || !f->arg)
			fake_release(f, step);
	}
	fake_gate(f, 1);
	fake_drop(f);
	f->resumes = true;
	f->start_step = 2;
	fake_up_to(f, STAGE_STARTED);
	ck_assert_uint_eq(fake_expect_imm(f, IMM_BARRIER).step, 2);
	fake_release(f, 2);
	fake_expect_closed(f);
}

START_TEST(sent_back_in_ssp)
{
	struct rig r = {.f = {.arg = _i ? &r : NULL}};
	struct gs_info info;
	float w[W_ELEMS];
	int rewound = 7, rc;

	rig_up(&r, WIRE_SSP, send_back);
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_step_end(r.t));
	if (_i)
		ck_ok(gs_step_post(r.t));
	else
		ck_ok(gs_step_end(r.t));
	atomic_store(&r.f.allow, 1);
	while ((rc = gs_pull(r.t, r.w, GS_RELAXED, w)) == 0)
		usleep(100);
	ck_assert_int_eq(rc, -ECONNRESET);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	if (_i)
		ck_ok(gs_step_wait(r.t));
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.step, 2);
	ck_ok(gs_step_end(r.t));
	rig_down(&r);
}
END_TEST

/* Released, and then lost while the weights come: called again, it ends no second step. (A pull of
 * one with delay compensation is asked for, so the server knows when it is under way.) */
static void end_while_pulled(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	ck_assert_uint_eq(fake_expect_imm(f, IMM_BARRIER).step, 1);
	fake_release(f, 1);
	fake_expect_imm(f, IMM_PULL);
	fake_drop(f);
	f->resumes = true;
	f->start_step = 2;
	fake_up_to(f, STAGE_STARTED);
	fake_pulled(f, fake_expect_imm(f, IMM_PULL).block);
	ck_assert_uint_eq(fake_expect_imm(f, IMM_BARRIER).step, 2);
	fake_release(f, 2);
	fake_pulled(f, fake_expect_imm(f, IMM_PULL).block);
	fake_expect_closed(f);
}

START_TEST(lost_behind_the_release)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	struct rig r = {.f = {.mode = _i ? WIRE_SSP : WIRE_SYNC}};
	struct gs_info info;
	float w[3];
	void *dst[1] = {w};
	int rewound = 7;

	fake_start(&r.f, end_while_pulled);
	ck_ok(rig_connect(&r));
	d.name = "w";
	d.ndim = 1;
	d.shape[0] = 3;
	gs_setting(&d, "lr", 1);
	gs_setting(&d, "dc_lambda", 1);
	ck_ok(gs_declare(r.t, &d, &r.w));
	ck_ok(gs_start(r.t));
	ck_fails(gs_step_pull(r.t, &r.w, dst, 1), ECONNRESET, "");
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	ck_ok(gs_step_pull(r.t, &r.w, dst, 1));
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.step, 2);
	ck_ok(gs_step_pull(r.t, &r.w, dst, 1));
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.step, 3);
	rig_down(&r);
}
END_TEST

/* ---- tables ---------------------------------------------------------------------------------- */

enum { LONGEST = 8 };

static int rows_of(int turn)
{
	static const int rows[] = {2, 8, 0, 5, 3};

	return rows[turn % 5];
}

static void declare_table(struct keeper *k)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = "t";
	d.ndim = 2;
	d.shape[0] = TABLE_ROWS;
	d.shape[1] = DIM;
	d.kind = GS_TABLE;
	d.slot_rows = SLOT_ROWS;
	d.push_rows = LONGEST;
	gs_setting(&d, "lr", 1);
	ck_ok(gs_declare(k->r.t, &d, &k->table));
	ck_ok(gs_start(k->r.t));
}

enum { TABLE_TURNS = 5 };

static void train_table(struct keeper *k)
{
	struct rig *r = &k->r;
	float want[TABLE_ROWS * DIM] = {0}, w[TABLE_ROWS * DIM];
	int64_t all[TABLE_ROWS];
	uint64_t n;

	for (int turn = 1; turn <= TABLE_TURNS; turn++) {
		int64_t id[LONGEST];
		float v[LONGEST * DIM];
		int rows = rows_of(turn);

		for (int i = 0; i < rows * DIM; i++) {
			id[i / DIM] = (turn * 11 + i / DIM * 5) % TABLE_ROWS;
			v[i] = keeper_grad(turn, i);
			want[id[i / DIM] * DIM + i % DIM] -= v[i];
		}
		LIVES(gs_push_rows(r->t, k->table, id, v, (size_t)rows));
		if (r->f.mode == WIRE_SYNC)
			LIVES(gs_step_end(r->t));
		LIVES(gs_pushes(r->t, k->table, &n));
		ck_assert_uint_eq(n, (uint64_t)turn);
	}
	LIVES(gs_wait_applied(r->t, k->table));
	for (int i = 0; i < TABLE_ROWS; i++)
		all[i] = i;
	LIVES(gs_pull_rows(r->t, k->table, all, TABLE_ROWS, GS_ROWS_READ, w));
	for (int i = 0; i < TABLE_ROWS * DIM; i++)
		ck_assert_msg(w[i] == want[i], "element %d is %g, not %g", i, (double)w[i],
			      (double)want[i]);
}

static void table_up(struct keeper *k)
{
	fake_start(&k->r.f, keeper_main);
	ck_ok(rig_connect(&k->r));
	declare_table(k);
}

static void lose_table(enum wire_mode mode, int at)
{
	for (uint32_t slots = 1; slots <= 4; slots++) {
		struct keeper k;

		keeper_init(&k, mode, slots);
		k.end_after[0] = at;
		k.end_after[1] = at % 3 ? at % 3 : -1;
		k.mute = at % 2;
		table_up(&k);
		train_table(&k);
		keeper_down(&k);

		keeper_init(&k, mode, slots);
		k.cut_again = at % 4 - 1;
		table_up(&k);
		wrap_cut_after(at);
		train_table(&k);
		keeper_down(&k);
	}
}

START_TEST(lost_table_sync)
{
	lose_table(WIRE_SYNC, _i);
}
END_TEST

START_TEST(lost_table_async)
{
	lose_table(WIRE_ASYNC, _i);
}
END_TEST

/* ---- accumulated ----------------------------------------------------------------------------- */

/* Three pushes make a gradient: those that were given before the one that fails are not lost, and
 * the one that failed is not in twice. */
START_TEST(lost_while_accumulating)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	struct keeper keeper, *k = &keeper;
	struct rig *r = &k->r;
	float g[W_ELEMS];

	keeper_init(k, _i % 2 ? WIRE_SYNC : WIRE_ASYNC, 2);
	fake_start(&r->f, keeper_main);
	ck_ok(rig_connect(r));
	d.name = "a";
	d.ndim = 1;
	d.shape[0] = W_ELEMS;
	d.accumulate = 3;
	d.accumulate_sum = 1;
	gs_setting(&d, "lr", 1);
	ck_ok(gs_declare(r->t, &d, &r->w));
	ck_ok(gs_start(r->t));
	wrap_cut_after(_i / 2);
	for (int turn = 1; turn <= 8; turn++) {
		keeper_make(g, W_ELEMS, turn);
		LIVES(gs_push(r->t, r->w, g));
		if (r->f.mode == WIRE_SYNC && turn % 3 == 0)
			LIVES(gs_step_end(r->t));
	}
	/* The last two are sent as they are. */
	if (r->f.mode == WIRE_SYNC)
		LIVES(gs_step_end(r->t));
	LIVES(gs_wait_applied(r->t, r->w));
	LIVES(gs_pull(r->t, r->w, GS_RELAXED, g));
	keeper_check_sum(g, W_ELEMS, 8);
	ck_assert_int_gt(k->returns, 0);
	keeper_down(k);
}
END_TEST

Suite *reconnect_suite(void)
{
	Suite *s = suite_create("trainer: reconnect");
	TCase *l = tcase_create("lost");

	tcase_set_timeout(l, 120);
	tcase_add_loop_test(l, lost_in_sync, 0, 16);
	tcase_add_loop_test(l, lost_in_async, 0, 13);
	tcase_add_loop_test(l, cut_in_sync, 0, 15);
	tcase_add_loop_test(l, cut_in_async, 0, 12);
	tcase_add_loop_test(l, lost_in_ssp, 0, 16);
	tcase_add_loop_test(l, cut_in_ssp, 0, 15);
	tcase_add_loop_test(l, sent_back_in_ssp, 0, 2);
	tcase_add_loop_test(l, lost_behind_the_release, 0, 2);
	tcase_add_loop_test(l, lost_table_sync, 0, 15);
	tcase_add_loop_test(l, lost_table_async, 0, 10);
	tcase_add_loop_test(l, lost_while_accumulating, 0, 16);
	suite_add_tcase(s, l);
	suite_add_tcase(s, reconnect_talk_case());
	suite_add_tcase(s, reconnect_rewound_case());
	suite_add_tcase(s, reconnect_states_case());
	return s;
}

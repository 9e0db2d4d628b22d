/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of tables, against a server on a script: how pushes are cut and told, when they wait, which
 * way pulls go, and answers that are wrong.
 *
 * The table "t" has 40 rows of 7 floats (blocks of 28: four rows each), slots of 3 rows, and pulls
 * of up to 5 rows at once.
 */
#include "fake.h"

#include <stdio.h>
#include <unistd.h>

enum { ROWS = 40, DIM = 7, SLOT_ROWS = 3, PULL_ROWS = 5, MOST = 30 };

struct table {
	struct fake f;
	gs_trainer *t;
	gs_param *p;
};

static void up(struct table *r, enum wire_mode mode, enum gs_kind kind,
	       void (*script)(struct fake *f))
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	struct gs_options opt = GS_OPTIONS_INIT;

	r->f.mode = mode;
	fake_start(&r->f, script);
	opt.uri = r->f.uri;
	opt.timeout_ms = 5000;
	ck_ok(gs_connect(&opt, &r->t));
	d.name = "t";
	d.ndim = 2;
	d.shape[0] = ROWS;
	d.shape[1] = DIM;
	d.kind = kind;
	d.slot_rows = SLOT_ROWS;
	d.push_rows = MOST;
	d.pull_rows = PULL_ROWS;
	gs_setting(&d, "lr", 1);
	ck_ok(gs_declare(r->t, &d, &r->p));
	ck_ok(gs_start(r->t));
}

static void down(struct table *r)
{
	gs_close(r->t);
	fake_join(&r->f);
}

/* ---- pushes ---------------------------------------------------------------------------------- */

static const struct layout_push_head *head_of(struct fake *f, uint32_t slot)
{
	return (const struct layout_push_head *)(const void *)(f->slot + f->place[0].heads_off) +
	       slot;
}

/* The next piece: n rows, numbered on from `first`, as the tests make them. */
static void expect_piece(struct fake *f, uint32_t slot, uint32_t n, int64_t first, uint32_t flags)
{
	struct imm imm = fake_expect_imm(f, IMM_GRAD);
	const int64_t *id = (const int64_t *)(const void *)fake_slot(f, 0, slot);
	const float *v = (const float *)(const void *)(id + n);

	ck_assert_uint_eq(imm.block, 0);
	ck_assert_uint_eq(imm.slot, slot);
	ck_assert(imm.notify);
	ck_assert_uint_eq(head_of(f, slot)->rows, n);
	ck_assert_uint_eq(head_of(f, slot)->flags, flags);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_int_eq(id[i], ROWS - 1 - (first + i));
		ck_assert_float_eq(v[i * DIM], (float)(100 * (first + i)));
		ck_assert_float_eq(v[i * DIM + DIM - 1], (float)(100 * (first + i) + DIM - 1));
	}
	atomic_fetch_add(&f->seen, 1);
}

static void make(int64_t *id, float *v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		id[i] = ROWS - 1 - (int64_t)i;
		for (uint32_t k = 0; k < DIM; k++)
			v[i * DIM + k] = (float)(100 * i + k);
	}
}

/* Eight rows in pieces of three, in two slots: the third piece waits for a credit, in every mode.
 */
static void take_pieces(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	expect_piece(f, 0, 3, 0, LAYOUT_MORE_ROWS);
	expect_piece(f, 1, 3, 3, LAYOUT_MORE_ROWS);
	ck_assert(!fake_next(f, &ev, 50));
	fake_credit(f, 0, 1, true);
	expect_piece(f, 0, 2, 6, 0);
	fake_credit(f, 0, 3, true);
	if (f->mode == WIRE_SYNC) {
		fake_expect_imm(f, IMM_BARRIER);
		fake_release(f, 1);
	}
	expect_piece(f, 1, 0, 0, 0);
	if (f->mode == WIRE_ASYNC) /* else nobody waits for it */
		fake_credit(f, 0, 4, true);
	while (fake_next(f, &ev, FAKE_WAIT_MS) && fake_serve_one(f, &ev))
		;
}

START_TEST(pieces)
{
	struct table r = {.f = {.mode = 0}};
	int64_t id[8];
	float v[8 * DIM];
	bool sync = _i == WIRE_SYNC;

	make(id, v, 8);
	up(&r, (enum wire_mode)_i, GS_TABLE, take_pieces);
	ck_ok(gs_push_rows(r.t, r.p, id, v, 8));
	if (sync)
		ck_fails(gs_push_rows(r.t, r.p, NULL, NULL, 0), EALREADY, "step 1");
	if (sync)
		ck_ok(gs_step_end(r.t));
	ck_ok(gs_push_rows(r.t, r.p, NULL, NULL, 0));
	if (!sync)
		ck_ok(gs_wait_applied(r.t, r.p));
	down(&r);
}
END_TEST

/* ---- pulls ----------------------------------------------------------------------------------- */

static void fill_rows(struct fake *f)
{
	for (uint32_t b = 0; b < f->blocks; b++) {
		for (uint64_t i = 0; i < fake_block_elems(f, b); i++)
			fake_weights(f, b)[i] = (float)(b * 28 + i);
		*fake_version(f, b) = 2;
	}
}

static const struct layout_request_head *request(struct fake *f)
{
	return (const struct layout_request_head *)(const void *)(f->slot +
								  f->place[0].request_off);
}

/* As a good server would; counts the requests. */
static void answer(struct fake *f)
{
	const int64_t *id = (const int64_t *)(const void *)(request(f) + 1);
	uint32_t n = request(f)->rows;
	float rows[PULL_ROWS][DIM];

	ck_assert_uint_ge(n, 1);
	ck_assert_uint_le(n, PULL_ROWS);
	for (uint32_t i = 0; i < n; i++)
		for (int k = 0; k < DIM; k++)
			rows[i][k] = (float)(id[i] * DIM + k);
	atomic_fetch_add(&f->seen, 1);
	fake_land(f, imm_block(IMM_PULLED, 0, 0, false), f->place[0].landing_off, rows,
		  n * sizeof(rows[0]));
}

static void serve_rows(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_READY);
	fill_rows(f);
	fake_up_to(f, STAGE_STARTED);
	while (fake_next(f, &ev, FAKE_WAIT_MS)) {
		if (ev.kind == TP_EV_IMM && imm_unpack(ev.imm).kind == IMM_PULL)
			answer(f);
		else if (!fake_serve_one(f, &ev))
			break;
	}
}

static void check_rows(const int64_t *id, const float *w, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		for (int k = 0; k < DIM; k++)
			ck_assert_float_eq(w[i * DIM + (uint32_t)k], (float)(id[i] * DIM + k));
}

START_TEST(both_ways)
{
	static const int64_t id[12] = {3, 4, 5, 5, 6, 7, 8, 39, 0, 1, 2, 39};
	struct table r = {.f = {.mode = 0}};
	float w[12 * DIM];

	up(&r, (enum wire_mode)_i, GS_TABLE, serve_rows);
	for (uint32_t n = 1; n <= 12; n++) {
		memset(w, 0xff, sizeof(w));
		ck_ok(gs_pull_rows(r.t, r.p, id, n, GS_ROWS_READ, w));
		check_rows(id, w, n);
	}
	ck_assert_int_eq(atomic_load(&r.f.seen), 0); /* nobody was asked */
	for (uint32_t n = 1; n <= 12; n++) {
		memset(w, 0xff, sizeof(w));
		ck_ok(gs_pull_rows(r.t, r.p, id, n, GS_ROWS_GATHER, w));
		check_rows(id, w, n);
	}
	ck_assert_int_eq(atomic_load(&r.f.seen), 5 * 1 + 5 * 2 + 2 * 3);
	ck_ok(gs_pull_rows(r.t, r.p, id, 12, GS_ROWS_AUTO, w));
	check_rows(id, w, 12);
	down(&r);
}
END_TEST

/* Two blocks are for ever under an update: their rows are asked for, the others are read. */
static void serve_torn(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_READY);
	fill_rows(f);
	*fake_version(f, 1) = 7;
	*fake_version(f, 2) = 9;
	fake_weights(f, 1)[0] = -1; /* what is there now must not be taken */
	fake_up_to(f, STAGE_STARTED);
	while (fake_next(f, &ev, FAKE_WAIT_MS)) {
		if (ev.kind == TP_EV_IMM && imm_unpack(ev.imm).kind == IMM_PULL)
			answer(f);
		else if (!fake_serve_one(f, &ev))
			break;
	}
}

START_TEST(torn_rows_are_asked_for)
{
	static const int64_t id[5] = {3, 4, 12, 8, 4};
	struct table r = {.f = {.mode = 0}};
	float w[5 * DIM];

	up(&r, WIRE_ASYNC, GS_TABLE, serve_torn);
	ck_ok(gs_pull_rows(r.t, r.p, id, 5, GS_ROWS_READ, w));
	check_rows(id, w, 5);
	ck_assert_int_eq(atomic_load(&r.f.seen), 3);
	down(&r);
}
END_TEST

/* All version words, all rows behind them, all version words behind those. Rows 3 and 4 lie in two
 * blocks; 5 follows 4, and the second 5 does not. Sync: nothing changes, so rows alone. */
START_TEST(reads_are_fenced)
{
	static const int64_t id[4] = {3, 4, 5, 5};
	struct table r = {.f = {.mode = 0}};
	float w[4 * DIM];

	up(&r, (enum wire_mode)_i, GS_TABLE, serve_rows);
	wrap_reads_begin();
	ck_ok(gs_pull_rows(r.t, r.p, id, 4, GS_ROWS_READ, w));
	const char *posted = wrap_reads_end();
	if (fake_unmapped)
		ck_assert_str_eq(posted, _i == WIRE_SYNC ? "RRR" : "VVVfRRRfVVV");
	else
		ck_assert_str_eq(posted, "");
	down(&r);
}
END_TEST

/* ---- answers that are wrong --------------------------------------------------------------------
 */

static void answer_refused(struct fake *f)
{
	int64_t key = 77;

	fake_land(f, imm_block(IMM_PULLED, 0, IMM_REFUSED, false), f->place[0].landing_off, &key,
		  8);
}

static void answer_short(struct fake *f)
{
	float none[DIM] = {0};

	fake_land(f, imm_block(IMM_PULLED, 0, 0, false), f->place[0].landing_off, none,
		  sizeof(none));
}

static void answer_refused_at_length(struct fake *f)
{
	float none[2 * DIM] = {0};

	fake_land(f, imm_block(IMM_PULLED, 0, IMM_REFUSED, false), f->place[0].landing_off, none,
		  sizeof(none));
}

static void answer_another_block(struct fake *f)
{
	float none[2 * DIM] = {0};

	fake_land(f, imm_block(IMM_PULLED, 1, 0, false), f->place[0].landing_off, none,
		  sizeof(none));
}

static const struct wrong {
	void (*answer)(struct fake *f);
	enum gs_kind kind;
	int err;
	const char *text;
} wrongs[] = {
    {answer_refused, GS_HASHED, ENOSPC, "no row is free for key 77"},
    {answer_refused, GS_TABLE, EPROTO, "all its rows exist"},
    {answer_short, GS_TABLE, EPROTO, "28 bytes in the last piece instead of 56"},
    {answer_refused_at_length, GS_HASHED, EPROTO, "56 bytes in the last piece instead of 8"},
    {answer_another_block, GS_TABLE, EPROTO, "nobody asked"},
};

static void serve_wrong(struct fake *f)
{
	struct tp_event ev;
	int n = 0;

	fake_up_to(f, STAGE_STARTED);
	while (fake_next(f, &ev, FAKE_WAIT_MS) && ev.kind != TP_EV_CLOSED) {
		if (ev.kind != TP_EV_IMM || imm_unpack(ev.imm).kind != IMM_PULL)
			continue;
		if (n++ == 0)
			((const struct wrong *)f->arg)->answer(f);
		else
			answer(f);
	}
}

START_TEST(wrong_answers)
{
	static const int64_t id[2] = {1, 2};
	const struct wrong *wrong = &wrongs[_i];
	struct table r = {.f = {.arg = (void *)(uintptr_t)wrong}};
	float w[2 * DIM] = {5};

	up(&r, WIRE_ASYNC, wrong->kind, serve_wrong);
	ck_fails(gs_pull_rows(r.t, r.p, id, 2, GS_ROWS_GATHER, w), wrong->err, wrong->text);
	ck_assert_float_eq(w[0], 5);
	if (wrong->err == ENOSPC) {
		/* It goes on. */
		ck_ok(gs_pull_rows(r.t, r.p, id, 2, GS_ROWS_GATHER, w));
		check_rows(id, w, 2);
	} else {
		ck_fails(gs_pull_rows(r.t, r.p, id, 2, GS_ROWS_GATHER, w), EPROTO, wrong->text);
	}
	down(&r);
}
END_TEST

/* ---- refused pushes ----------------------------------------------------------------------------
 */

static void send_notice(struct fake *f, uint64_t refused)
{
	struct wire_msg msg = {.kind = WIRE_NOTICE,
			       .notice = {.code = WIRE_E_CAPACITY, .refused = refused}};

	snprintf(msg.notice.text, sizeof(msg.notice.text), "no room after %llu",
		 (unsigned long long)refused);
	fake_send(f, &msg);
}

/* The count comes with the release, what it is about by and by. */
static void serve_refusing(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	for (uint64_t step = 1; step <= 3; step++) {
		fake_expect_imm(f, IMM_GRAD);
		fake_credit(f, 0, step, true);
		fake_expect_imm(f, IMM_BARRIER);
		if (step < 3)
			fake_word(f, offsetof(struct layout_mailbox_head, refused), 2 * step);
		fake_release(f, step);
		usleep(20000);
		if (step < 3)
			send_notice(f, 2 * step - 1); /* of one that was counted before */
		usleep(20000);
		if (step < 3)
			send_notice(f, 2 * step);
	}
	fake_expect_closed(f);
}

START_TEST(refusals_are_told_once)
{
	static const int64_t id[1] = {1};
	struct table r = {.f = {.mode = 0}};
	float v[DIM] = {0};

	up(&r, WIRE_SYNC, GS_HASHED, serve_refusing);
	ck_ok(gs_push_rows(r.t, r.p, id, v, 1));
	ck_fails(gs_step_end(r.t), ENOSPC, "\"t\": no room after 2");
	ck_ok(gs_push_rows(r.t, r.p, id, v, 1));
	ck_ok(gs_step_post(r.t));
	ck_fails(gs_step_wait(r.t), ENOSPC, "no room after 4");
	ck_ok(gs_push_rows(r.t, r.p, id, v, 1));
	ck_ok(gs_step_end(r.t));
	down(&r);
}
END_TEST

Suite *rows_suite(void)
{
	Suite *s = suite_create("rows");
	TCase *t = tcase_create("rows");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, pieces, WIRE_SYNC, WIRE_ASYNC + 1);
	tcase_add_loop_test(t, both_ways, WIRE_SYNC, WIRE_ASYNC + 1);
	tcase_add_test(t, torn_rows_are_asked_for);
	tcase_add_loop_test(t, reads_are_fenced, WIRE_SYNC, WIRE_ASYNC + 1);
	tcase_add_loop_test(t, wrong_answers, 0, sizeof(wrongs) / sizeof(wrongs[0]));
	tcase_add_test(t, refusals_are_told_once);
	suite_add_tcase(s, t);
	return s;
}

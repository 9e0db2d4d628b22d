/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_reconnect: a trainer that loses its server at any moment, to one that keeps its place and to
 * one that has not.
 */
#include "fake.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "trainer/backoff.h"
#include "trainer/trainer.h"

/* ---- a server that keeps its books -----------------------------------------------------------
 *
 * It applies what comes, each gradient once (a second one is a failed test), and ends connections
 * where it is told to; then it goes on with whoever comes back, telling what it has. */

enum { CONNECTIONS = 3, TABLE_ROWS = 40, DIM = 7, SLOT_ROWS = 3, NO_STAGE = -1 };

struct keeper {
	struct rig r;
	/* Connection i is ended after so many immediates (-1: not by it), or at this stage of its
	 * talk.
	 */
	int end_after[CONNECTIONS], end_at[CONNECTIONS];
	bool mute; /* the last immediate before an end is not answered */

	uint64_t count[FAKE_BLOCKS]; /* as kept words */
	uint64_t base[FAKE_BLOCKS];  /* of the block's parameter */
	uint64_t step;               /* that is being made */
	bool answers;

	/* Tables. */
	uint64_t pieces;
	float part[TABLE_ROWS * DIM];

	/* The trainer's. */
	gs_param *table;
	int cut_again; /* within the next gs_reconnect */
	bool pulls;    /* it ends steps with gs_step_pull */
	bool views;    /* or with gs_step_view, where it can */
	int returns;
};

static void take_dense(struct fake *f, struct keeper *k, const struct imm *imm)
{
	float *w = fake_weights(f, imm->block), *g = fake_slot(f, imm->block, imm->slot);
	uint64_t *count = &k->count[imm->block];

	for (uint64_t i = 0; i < fake_block_elems(f, imm->block); i++)
		w[i] -= g[i];
	*fake_version(f, imm->block) += 2;
	if (f->mode == WIRE_SYNC) {
		ck_assert_msg(*count < k->step, "block %u: a second gradient in step %llu",
			      imm->block, (unsigned long long)k->step);
		*count = k->step;
		return;
	}
	ck_assert_uint_eq(imm->slot, (*count - k->base[imm->block]) % f->slots);
	++*count;
	if (k->answers)
		fake_credit(f, imm->block, *count - k->base[imm->block], imm->notify);
}

/* A piece is merged; the last one of a push has all of it applied. */
static void take_rows(struct fake *f, struct keeper *k, const struct imm *imm)
{
	const struct layout_push_head *head =
	    (const struct layout_push_head *)(const void *)(f->slot + f->place[0].heads_off) +
	    imm->slot;
	const int64_t *id = (const int64_t *)(const void *)fake_slot(f, 0, imm->slot);
	const float *v = (const float *)(const void *)(id + head->rows);

	ck_assert_uint_eq(imm->slot, k->pieces % f->slots);
	for (uint32_t i = 0; i < head->rows * DIM; i++)
		k->part[id[i / DIM] * DIM + i % DIM] += v[i];
	k->pieces++;
	if (!(head->flags & LAYOUT_MORE_ROWS)) {
		for (int i = 0; i < TABLE_ROWS * DIM; i++)
			((float *)(void *)(f->weights + f->place[0].weights_off))[i] -= k->part[i];
		memset(k->part, 0, sizeof(k->part));
		if (f->mode == WIRE_SYNC)
			ck_assert_uint_lt(k->count[0], k->step);
		k->count[0] = f->mode == WIRE_SYNC ? k->step : k->count[0] + 1;
	}
	if (k->answers)
		fake_credit(f, 0, k->pieces, imm->notify);
}

static void take_imm(struct fake *f, struct keeper *k, const struct imm *imm)
{
	if (imm->kind == IMM_GRAD) {
		if (f->param[fake_owner(f, imm->block)].storage != WIRE_DENSE)
			take_rows(f, k, imm);
		else
			take_dense(f, k, imm);
		return;
	}
	ck_assert_uint_eq(imm->kind, IMM_BARRIER);
	ck_assert_uint_eq(imm->step, k->step);
	if (k->answers)
		fake_release(f, k->step);
	k->step++;
}

static void work(struct fake *f, struct keeper *k, int end_after)
{
	for (int n = 0; n != end_after; n++) {
		struct tp_event ev;

		ck_assert_msg(fake_next(f, &ev, FAKE_WAIT_MS), "fake: the trainer is silent");
		if (ev.kind == TP_EV_CLOSED)
			return;
		ck_assert_int_eq(ev.kind, TP_EV_IMM);
		struct imm imm = imm_unpack(ev.imm);
		k->answers = !k->mute || n + 1 != end_after;
		take_imm(f, k, &imm);
	}
}

static void greet(struct fake *f, struct keeper *k)
{
	memcpy(f->kept, k->count, sizeof(f->kept));
	f->start_step = k->step;
	k->pieces = 0;
	memset(k->part, 0, sizeof(k->part));
}

static void note_base(struct fake *f, struct keeper *k)
{
	for (uint32_t b = 0; b < f->blocks; b++) {
		const struct wire_place *p = &f->place[fake_owner(f, b)];

		k->base[b] = UINT64_MAX;
		for (uint32_t i = 0; i < p->blocks; i++) {
			if (k->count[p->first_block + i] < k->base[b])
				k->base[b] = k->count[p->first_block + i];
		}
	}
}

static void keep(struct fake *f)
{
	struct keeper *k = f->arg;

	f->may_end = true;
	for (int i = 0; !atomic_load(&f->done); i++) {
		int at = i < CONNECTIONS ? k->end_at[i] : NO_STAGE;

		greet(f, k);
		if (!fake_try_accept(f))
			return;
		f->stage_done = STAGE_HELLO;
		if (at != NO_STAGE) {
			fake_up_to(f, (enum stage)at);
		} else {
			fake_up_to(f, STAGE_STARTED);
			note_base(f, k);
			work(f, k, i < CONNECTIONS ? k->end_after[i] : -1);
		}
		fake_drop(f);
		f->resumes = true;
	}
}

static void init(struct keeper *k, enum wire_mode mode, uint32_t slots)
{
	memset(k, 0, sizeof(*k));
	k->step = 1;
	k->cut_again = -1;
	k->r.f.mode = mode;
	k->r.f.slots = slots;
	k->r.f.arg = k;
	for (int i = 0; i < CONNECTIONS; i++) {
		k->end_after[i] = -1;
		k->end_at[i] = NO_STAGE;
	}
}

static void down(struct keeper *k)
{
	wrap_cut_after(-1);
	atomic_store(&k->r.f.done, true);
	rig_down(&k->r);
}

/* ---- a trainer that goes on ------------------------------------------------------------------ */

static void come_back(struct keeper *k)
{
	int rewound = 7;

	wrap_cut_after(k->cut_again);
	k->cut_again = -1;
	ck_ok(gs_reconnect(k->r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	k->returns++;
}

#define LIVES(call)                                                                         \
	do {                                                                                \
		int live_rc;                                                                \
		while ((live_rc = (call)) == -ECONNRESET)                                   \
			come_back(k);                                                       \
		ck_assert_msg(live_rc == 0, "%s: %d: %s", #call, live_rc, gs_last_error()); \
	} while (0)

enum { TURNS = 3 };

static float grad_of(int turn, int i)
{
	return (float)(turn * 100 + i);
}

static void make(float *g, int n, int turn)
{
	for (int i = 0; i < n; i++)
		g[i] = grad_of(turn, i);
}

static void check_sum(const float *w, int n, int turns)
{
	for (int i = 0; i < n; i++) {
		float sum = 0;

		for (int turn = 1; turn <= turns; turn++)
			sum -= grad_of(turn, i);
		ck_assert_msg(w[i] == sum, "element %d is %g, not %g", i, (double)w[i],
			      (double)sum);
	}
}

static void copy_run(void *ctx, uint32_t i, uint64_t first, uint64_t count, const void *weights)
{
	float *const *dst = ctx;

	memcpy(dst[i] + first, weights, count * sizeof(float));
}

static void end_step(struct keeper *k, int turn)
{
	struct rig *r = &k->r;
	float w[W_ELEMS] = {0}, b[B_ELEMS] = {0};
	gs_param *p[2] = {r->w, r->b};
	void *dst[2] = {w, b};
	struct gs_info info;

	if (!k->pulls) {
		LIVES(gs_step_end(r->t));
		return;
	}
	if (k->views && !fake_unmapped)
		LIVES(gs_step_view(r->t, p, 2, copy_run, dst));
	else
		LIVES(gs_step_pull(r->t, p, dst, 2));
	check_sum(w, W_ELEMS, turn);
	check_sum(b, B_ELEMS, turn);
	gs_get_info(r->t, &info);
	ck_assert_uint_eq(info.step, (uint64_t)turn + 1);
}

static void train(struct keeper *k)
{
	struct rig *r = &k->r;
	float w[W_ELEMS], b[B_ELEMS];
	uint64_t n;

	for (int turn = 1; turn <= TURNS; turn++) {
		make(w, W_ELEMS, turn);
		make(b, B_ELEMS, turn);
		LIVES(gs_push(r->t, r->w, w));
		LIVES(gs_push(r->t, r->b, b));
		if (r->f.mode != WIRE_ASYNC)
			end_step(k, turn);
		LIVES(gs_pushes(r->t, r->w, &n));
		ck_assert_uint_eq(n, (uint64_t)turn);
	}
	LIVES(gs_wait_applied(r->t, r->w));
	LIVES(gs_wait_applied(r->t, r->b));
	LIVES(gs_pull(r->t, r->w, GS_RELAXED, w));
	LIVES(gs_pull(r->t, r->b, GS_RELAXED, b));
	check_sum(w, W_ELEMS, TURNS);
	check_sum(b, B_ELEMS, TURNS);
}

static void up(struct keeper *k)
{
	fake_start(&k->r.f, keep);
	ck_ok(rig_connect(&k->r));
	rig_declare(&k->r, NULL);
	ck_ok(gs_start(k->r.t));
}

/* The server is gone after `at` immediates, with the last of them answered or not; and again, early
 * in the second connection. */
static void lose_at(enum wire_mode mode, int at)
{
	static const int seconds[] = {-1, 0, 2};

	for (int mute = 0; mute < 2; mute++) {
		for (int s = 0; s < 3; s++) {
			struct keeper k;

			init(&k, mode, 1 + (uint32_t)(at + s) % 3);
			k.end_after[0] = at;
			k.end_after[1] = seconds[s];
			k.mute = mute;
			k.pulls = mode != WIRE_ASYNC && (s + mute) % 2;
			k.views = mute;
			up(&k);
			train(&k);
			down(&k);
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

		init(&k, mode, 1 + (uint32_t)(at + again + 1) % 3);
		k.cut_again = again;
		k.pulls = mode != WIRE_ASYNC && again % 2 == 0;
		k.views = again == 2;
		up(&k);
		wrap_cut_after(at);
		train(&k);
		ck_assert_int_gt(k.returns, 0);
		down(&k);
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

/* Released, and then lost while the weights come: called again, it ends no second step. (A pull of one
 * with delay compensation is asked for, so the server knows when it is under way.) */
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
			v[i] = grad_of(turn, i);
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
	fake_start(&k->r.f, keep);
	ck_ok(rig_connect(&k->r));
	declare_table(k);
}

static void lose_table(enum wire_mode mode, int at)
{
	for (uint32_t slots = 1; slots <= 4; slots++) {
		struct keeper k;

		init(&k, mode, slots);
		k.end_after[0] = at;
		k.end_after[1] = at % 3 ? at % 3 : -1;
		k.mute = at % 2;
		table_up(&k);
		train_table(&k);
		down(&k);

		init(&k, mode, slots);
		k.cut_again = at % 4 - 1;
		table_up(&k);
		wrap_cut_after(at);
		train_table(&k);
		down(&k);
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

	init(k, _i % 2 ? WIRE_SYNC : WIRE_ASYNC, 2);
	fake_start(&r->f, keep);
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
		make(g, W_ELEMS, turn);
		LIVES(gs_push(r->t, r->w, g));
		if (r->f.mode == WIRE_SYNC && turn % 3 == 0)
			LIVES(gs_step_end(r->t));
	}
	/* The last two are sent as they are. */
	if (r->f.mode == WIRE_SYNC)
		LIVES(gs_step_end(r->t));
	LIVES(gs_wait_applied(r->t, r->w));
	LIVES(gs_pull(r->t, r->w, GS_RELAXED, g));
	check_sum(g, W_ELEMS, 8);
	ck_assert_int_gt(k->returns, 0);
	down(k);
}
END_TEST

/* ---- the talk -------------------------------------------------------------------------------- */

/* It is gone again at a stage of the talk, twice. */
START_TEST(lost_in_the_talk)
{
	struct keeper k;

	init(&k, WIRE_SYNC, 2);
	k.end_after[0] = 7;
	k.end_at[1] = _i;
	k.end_at[2] = STAGE_STARTED - _i;
	up(&k);
	train(&k);
	ck_assert_int_ge(k.returns, 1);
	ck_assert_int_le(k.returns, 2); /* where it went as soon as it had said start */
	down(&k);
}
END_TEST

static const struct {
	enum wire_error_code code;
	int err;
	bool again; /* it is tried again, and may be */
} refusals[] = {
    {WIRE_E_VERSION, EPROTONOSUPPORT, false},
    {WIRE_E_RANK, EEXIST, false},
    {WIRE_E_RANGE, ERANGE, false},
    {WIRE_E_FULL, EUSERS, true},
    {WIRE_E_SHUTDOWN, ESHUTDOWN, true},
    {WIRE_E_PROTOCOL, EPROTO, false},
    {WIRE_E_MISMATCH, EINVAL, false},
    {WIRE_E_ACCESS, EACCES, false},
};

static void refuse(struct fake *f)
{
	enum wire_error_code code = *(const enum wire_error_code *)f->arg;

	fake_up_to(f, STAGE_STARTED);
	fake_drop(f);
	while (!atomic_load(&f->done)) {
		if (!fake_try_accept(f))
			return;
		f->stage_done = STAGE_HELLO;
		fake_up_to(f, STAGE_HELLO);
		fake_send_error(f, code, "because of 7 of 5");
		fake_drop(f);
	}
}

static void up_for(struct rig *r, enum wire_mode mode, void (*script)(struct fake *f),
		   uint32_t reconnect_ms)
{
	r->f.mode = mode;
	fake_start(&r->f, script);
	struct gs_options opt = rig_options(r);
	opt.reconnect_ms = reconnect_ms;
	ck_ok(gs_connect(&opt, &r->t));
	rig_declare(r, NULL);
	ck_ok(gs_start(r->t));
}

/* Until the loss is seen. */
static void be_lost(struct rig *r)
{
	float w[W_ELEMS];
	int rc;

	while ((rc = gs_pull(r->t, r->w, GS_RELAXED, w)) == 0)
		usleep(100);
	ck_assert_int_eq(rc, -ECONNRESET);
}

START_TEST(refused)
{
	struct rig r = {.f = {.arg = (void *)(uintptr_t)&refusals[_i].code}};
	float w[W_ELEMS];
	int rewound = 7;

	up_for(&r, WIRE_ASYNC, refuse, 1000);
	be_lost(&r);
	for (int i = 0; i < 2; i++) {
		ck_fails(gs_reconnect(r.t, &rewound),
			 i == 0 || refusals[_i].again ? refusals[_i].err : EINVAL,
			 i == 0 || refusals[_i].again ? "the server says: because of 7 of 5"
						      : "the trainer has lost no server");
		ck_assert_int_eq(rewound, 7);
		if (refusals[_i].again)
			ck_fails(gs_pull(r.t, r.w, GS_RELAXED, w), ECONNRESET, "is gone");
		else
			ck_fails(gs_pull(r.t, r.w, GS_RELAXED, w), refusals[_i].err, "7 of 5");
	}
	atomic_store(&r.f.done, true);
	rig_down(&r);
}
END_TEST

/* ---- nobody there, and nobody for long ------------------------------------------------------- */

START_TEST(pauses)
{
	uint64_t most = 5 * NS_PER_MS;

	for (uint32_t attempt = 0; attempt < 200; attempt++) {
		ck_assert_uint_eq(backoff_ns(attempt, 0), most / 2);
		for (uint64_t x = UINT64_MAX; x; x >>= 1) {
			ck_assert_uint_ge(backoff_ns(attempt, x), most / 2);
			ck_assert_uint_le(backoff_ns(attempt, x), most);
		}
		ck_assert_uint_eq(backoff_ns(attempt, most / 2), most);
		most = 2 * most < 500 * NS_PER_MS ? 2 * most : 500 * NS_PER_MS;
	}
	ck_assert_uint_eq(backoff_ns(UINT32_MAX, 0), 250 * NS_PER_MS);
}
END_TEST

static void end_for_good(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_drop(f);
	tp_listener_destroy(f->listener);
	f->listener = NULL;
}

START_TEST(nobody_there)
{
	struct rig r = {.f = {.mode = 0}};
	uint64_t begin, shortest;
	float w[W_ELEMS];
	int rewound = 7;

	up_for(&r, WIRE_ASYNC, end_for_good, 400);
	be_lost(&r);
	for (int i = 0; i < 2; i++) {
		wrap_knocks_begin();
		begin = clock_ns();
		ck_fails(gs_reconnect(r.t, &rewound), ECONNREFUSED, "within 400 ms");
		ck_assert_uint_lt(clock_ns() - begin, 5 * NS_PER_S);
		/* 5, 10, 20 … ms, or half of that; the second time as long as before. */
		ck_assert_uint_ge(wrap_knocks(&shortest), i == 0 ? 2 : 1);
		ck_assert_uint_ge(shortest, 2 * NS_PER_MS);
		ck_assert_uint_le(wrap_knocks(&shortest), 9);
		ck_fails(gs_pull(r.t, r.w, GS_RELAXED, w), ECONNRESET, "the server is gone");
		ck_fails(gs_leave(r.t), ECONNRESET, "the server is gone");
	}
	ck_assert_int_eq(rewound, 7);
	rig_down(&r);
}
END_TEST

/* One that takes connections and ends them at once is not hammered: within gs_reconnect. */
static void slam(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_drop(f);
	while (fake_try_accept(f)) {
		fake_drop(f);
		atomic_fetch_add(&f->seen, 1);
	}
}

START_TEST(slammed)
{
	struct rig r = {.f = {.mode = 0}};
	int rewound;

	up_for(&r, WIRE_ASYNC, slam, 1200);
	be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), ECONNRESET, "within 1200 ms");
	ck_assert_int_ge(atomic_load(&r.f.seen), 3);
	ck_assert_int_le(atomic_load(&r.f.seen), 13);
	atomic_store(&r.f.done, true);
	rig_down(&r);
}
END_TEST

/* Nor when it ends them later: then it is the program that calls gs_reconnect again and again. */
static void slam_later(struct fake *f)
{
	for (;;) {
		if (!fake_try_accept(f))
			return;
		f->stage_done = STAGE_HELLO;
		fake_up_to(f, STAGE_STARTED);
		fake_drop(f);
		f->resumes = true;
	}
}

START_TEST(slammed_later)
{
	struct rig r = {.f = {.mode = 0}};
	uint64_t begin;
	int rewound;

	up_for(&r, WIRE_ASYNC, slam_later, 5000);
	begin = clock_ns();
	for (int i = 0; i < 9; i++) {
		be_lost(&r);
		ck_ok(gs_reconnect(r.t, &rewound));
	}
	/* Half of 5 + 10 + … + 320 + 500 + 500 ms. */
	ck_assert_uint_ge(clock_ns() - begin, 800 * NS_PER_MS);
	atomic_store(&r.f.done, true);
	rig_down(&r);
}
END_TEST

/* ---- rewound --------------------------------------------------------------------------------- */

enum { ANOTHER_RUN, PLACE_LOST, REWINDS };

static void rewind_it(struct fake *f)
{
	static const uint64_t sync[] = {4, 4, 3, 0}, async[] = {6, 7, 6, 2};

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD); /* b's */
	fake_drop(f);
	if (*(int *)f->arg == ANOTHER_RUN)
		fake_restart(f);
	else
		f->resumes = false;
	f->start_step = 4;
	memcpy(f->kept, f->mode == WIRE_SYNC ? sync : async, sizeof(sync));
	fake_up_to(f, STAGE_STARTED);
	/* Nothing is sent again: what comes is pushed anew. */
	struct imm imm = fake_expect_imm(f, IMM_GRAD);
	ck_assert_uint_eq(imm.block, f->mode == WIRE_SYNC ? 2 : 0);
	ck_assert_uint_eq(imm.slot, 0);
	ck_assert_float_eq(fake_slot(f, imm.block, 0)[0], 2);
	if (f->mode != WIRE_SYNC)
		ck_assert_uint_eq(fake_expect_imm(f, IMM_GRAD).block, 2);
	else
		ck_assert_uint_eq(fake_expect_imm(f, IMM_BARRIER).step, 4);
	fake_expect_closed(f);
}

static void rewinds(enum wire_mode mode, int how)
{
	struct rig r = {.f = {.arg = &how}};
	float w[W_ELEMS], b[B_ELEMS] = {0};
	struct gs_info info;
	uint64_t n;
	int rewound = 7;

	for (int i = 0; i < W_ELEMS; i++)
		w[i] = 2;
	up_for(&r, mode, rewind_it, 5000);
	ck_ok(gs_push(r.t, r.b, b));
	be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.step, mode == WIRE_SYNC ? 4 : 0);
	ck_ok(gs_pushes(r.t, r.w, &n));
	ck_assert_uint_eq(n, mode == WIRE_SYNC ? 3 : 6);
	ck_ok(gs_pushes(r.t, r.b, &n));
	ck_assert_uint_eq(n, mode == WIRE_SYNC ? 0 : 2);
	ck_ok(gs_push(r.t, r.w, w));
	if (mode == WIRE_SYNC)
		ck_ok(gs_step_post(r.t));
	rig_down(&r);
}

START_TEST(rewound_sync)
{
	rewinds(WIRE_SYNC, _i);
}
END_TEST

START_TEST(rewound_async)
{
	rewinds(WIRE_ASYNC, _i);
}
END_TEST

/* What was accumulated was of weights that are no more. */
static void rewind_sum(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_gate(f, 1);
	fake_drop(f);
	fake_restart(f);
	fake_up_to(f, STAGE_STARTED);
	struct imm imm = fake_expect_imm(f, IMM_GRAD);
	ck_assert_float_eq(fake_slot(f, imm.block, imm.slot)[1], 20);
	fake_expect_closed(f);
}

START_TEST(accumulated_and_rewound)
{
	struct rig r = {.f = {.mode = WIRE_ASYNC}};
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	float g[3] = {1, 1, 1};
	int rewound = 7;

	fake_start(&r.f, rewind_sum);
	ck_ok(rig_connect(&r));
	d.name = "a";
	d.ndim = 1;
	d.shape[0] = 3;
	d.accumulate = 2;
	d.accumulate_sum = 1;
	gs_setting(&d, "lr", 1);
	ck_ok(gs_declare(r.t, &d, &r.w));
	ck_ok(gs_start(r.t));
	ck_ok(gs_push(r.t, r.w, g));
	atomic_store(&r.f.allow, 1);
	be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	g[1] = 10;
	ck_ok(gs_push(r.t, r.w, g));
	ck_ok(gs_push(r.t, r.w, g));
	rig_down(&r);
}
END_TEST

/* What a server said before it went again holds: it has not kept this rank's place, though it goes
 * on with the session that it gave then. */
static void rewind_and_go(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_drop(f);
	f->resumes = false;
	fake_up_to(f, STAGE_GRANTED);
	fake_drop(f);
	f->resumes = true;
	fake_up_to(f, STAGE_STARTED);
	fake_expect_closed(f);
}

START_TEST(rewound_for_good)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};
	int rewound = 7;

	up_for(&r, WIRE_ASYNC, rewind_and_go, 5000);
	ck_ok(gs_push(r.t, r.b, b));
	be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	rig_down(&r);
}
END_TEST

/* The same over two calls: the first gave up in the talk. */
static void rewind_and_be_silent(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_drop(f);
	f->resumes = false;
	fake_up_to(f, STAGE_DECLARED);
	fake_expect_closed(f);
	fake_drop(f);
	f->resumes = true;
	fake_up_to(f, STAGE_STARTED);
	fake_expect_closed(f);
}

START_TEST(rewound_over_two_calls)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};
	int rewound = 7;

	up_for(&r, (enum wire_mode)_i, rewind_and_be_silent, 5000);
	ck_ok(gs_push(r.t, r.b, b));
	be_lost(&r);
	r.t->timeout_ms = 600; /* of the talk, and longer than all tries together */
	r.t->reconnect_ms = 500;
	ck_fails(gs_reconnect(r.t, &rewound), ETIMEDOUT, "");
	ck_assert_int_eq(rewound, 7);
	r.t->timeout_ms = r.t->reconnect_ms = 5000;
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	rig_down(&r);
}
END_TEST

/* A fresh server has no weights, and those that it asks for are gone. */
static void ask_for_weights(struct fake *f)
{
	struct wire_msg ready = {.kind = WIRE_READY, .ready = {.init = true}};

	fake_up_to(f, STAGE_STARTED);
	fake_drop(f);
	fake_restart(f);
	fake_up_to(f, STAGE_ATTACHED);
	fake_send(f, &ready);
	fake_expect_closed(f);
}

START_TEST(a_fresh_server)
{
	struct rig r = {.f = {.mode = WIRE_ASYNC}};
	float init_data[W_ELEMS] = {0};
	int rewound;

	fake_start(&r.f, ask_for_weights);
	ck_ok(rig_connect(&r));
	rig_declare(&r, init_data);
	ck_ok(gs_start(r.t));
	be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "start it from a checkpoint");
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "has lost no server");
	rig_down(&r);
}
END_TEST

/* ---- lies ------------------------------------------------------------------------------------ */

enum lie { TOO_MANY, TOO_FEW, WRONG_STEP, STEP_PASSED, OTHER_SLOTS, LIES };

static const char *const lie_texts[LIES] = {
    [TOO_MANY] = "block 3: it has 3 pushes of 2",
    [TOO_FEW] = "the server lacks",
    [WRONG_STEP] = "it goes on with step 3; this trainer is in 1",
    [STEP_PASSED] = "it goes on with step 2; this trainer is in 1",
    [OTHER_SLOTS] = "with another layout",
};

static void lie(struct fake *f)
{
	int which = *(int *)f->arg;
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	for (uint64_t i = 1; i <= 2 && f->mode == WIRE_ASYNC; i++) {
		fake_expect_imm(f, IMM_GRAD);
		if (which == TOO_FEW)
			fake_credit(f, B_BLOCK, i, true);
	}
	fake_gate(f, 1);
	fake_drop(f);
	f->resumes = true;
	f->kept[B_BLOCK] = which == TOO_MANY ? 3 : 0;
	f->start_step = which == WRONG_STEP ? 3 : which == STEP_PASSED ? 2 : 1;
	f->slots += which == OTHER_SLOTS;
	fake_up_to(f, STAGE_STARTED);
	do
		ck_assert(fake_next(f, &ev, FAKE_WAIT_MS));
	while (ev.kind == TP_EV_IMM);
	ck_assert_int_eq(ev.kind, TP_EV_MSG);
	ck_assert_int_eq(f->msg.kind, WIRE_ERROR);
	ck_assert_int_eq(f->msg.error.code, WIRE_E_PROTOCOL);
	fake_expect_closed(f);
}

START_TEST(hostile_returns)
{
	int which = _i, rewound = 7;
	bool sync = which == WRONG_STEP || which == STEP_PASSED;
	struct rig r = {.f = {.arg = &which}};
	float b[B_ELEMS] = {0};

	up_for(&r, sync ? WIRE_SYNC : WIRE_ASYNC, lie, 5000);
	for (int i = 0; i < 2 && !sync; i++)
		ck_ok(gs_push(r.t, r.b, b));
	if (which == TOO_FEW) { /* a third one uses the first one's slot */
		ck_ok(gs_wait_applied(r.t, r.b));
		ck_ok(gs_push(r.t, r.b, b));
	}
	atomic_store(&r.f.allow, 1);
	be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EPROTO, lie_texts[which]);
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "failed for another reason");
	ck_fails(gs_push(r.t, r.b, b), EPROTO, lie_texts[which]);
	ck_assert_int_eq(rewound, 7);
	rig_down(&r);
}
END_TEST

/* It had them when this trainer came back, and what it had is in no slot any more. */
static void forget(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_drop(f);
	f->resumes = true;
	f->kept[B_BLOCK] = 1;
	fake_up_to(f, STAGE_STARTED);
	fake_gate(f, 1);
	fake_drop(f);
	f->kept[B_BLOCK] = 0;
	fake_up_to(f, STAGE_STARTED);
	do
		ck_assert(fake_next(f, &ev, FAKE_WAIT_MS));
	while (ev.kind == TP_EV_IMM);
	ck_assert_int_eq(ev.kind, TP_EV_MSG);
	ck_assert_int_eq(f->msg.kind, WIRE_ERROR);
	fake_expect_closed(f);
}

START_TEST(a_server_that_forgets)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};
	int rewound = 7;

	up_for(&r, WIRE_ASYNC, forget, 5000);
	ck_ok(gs_push(r.t, r.b, b));
	be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	atomic_store(&r.f.allow, 1);
	be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EPROTO, "the server lacks 1 pushes that it had");
	rig_down(&r);
}
END_TEST

/* It said that a push was applied, and the program heard it: its memory may be anything by now. */
static void take_back(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_GRAD);
	fake_credit(f, B_BLOCK, 1, true);
	fake_gate(f, 1);
	fake_drop(f);
	f->resumes = true;
	f->kept[B_BLOCK] = 0;
	fake_up_to(f, STAGE_STARTED);
	do
		ck_assert(fake_next(f, &ev, FAKE_WAIT_MS));
	while (ev.kind == TP_EV_IMM);
	ck_assert_int_eq(f->msg.kind, WIRE_ERROR);
	fake_expect_closed(f);
}

START_TEST(a_server_that_takes_back)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS] = {0};
	int rewound = 7;

	up_for(&r, WIRE_ASYNC, take_back, 5000);
	ck_ok(gs_push_zcopy(r.t, r.b, b));
	ck_ok(gs_wait_applied(r.t, r.b));
	atomic_store(&r.f.allow, 1);
	be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EPROTO, "a push that it said was applied");
	ck_assert_int_eq(rewound, 7);
	rig_down(&r);
}
END_TEST

/* It sees nothing of what is pushed, and says so when the trainer is back. */
static void see_nothing(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_gate(f, 1);
	fake_drop(f);
	f->resumes = true;
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

/* A push that was lent is in the program's memory alone: it is sent again from there. Over shm nothing is
 * lent, so the trainer is told that this is no neighbour. The slots hold other bytes. */
START_TEST(what_was_lent_is_sent_again)
{
	enum { ELEMS = LEND_MIN / 4 + 10, SLOTS = 2 };
	struct rig r = {.f = {.mode = WIRE_ASYNC, .slots = SLOTS, .block_elems = 512}};
	static float lent[SLOTS][ELEMS], got[ELEMS], *slot;
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	bool unmapped = fake_unmapped;
	gs_param *big;
	int rewound = 7;

	fake_unmapped = true;
	fake_start(&r.f, see_nothing);
	struct gs_options opt = rig_options(&r);
	opt.reconnect_ms = 5000;
	ck_ok(gs_connect(&opt, &r.t));
	rig_declare(&r, NULL);
	d.name = "big";
	d.ndim = 1;
	d.shape[0] = ELEMS;
	gs_setting(&d, "lr", 1);
	ck_ok(gs_declare(r.t, &d, &big));
	ck_ok(gs_start(r.t));
	r.t->load_store = false;
	for (int i = 0; i < SLOTS; i++) {
		for (int k = 0; k < ELEMS; k++)
			lent[i][k] = (float)(k + 1000 * i);
		ck_ok(gs_grad_buffer(r.t, big, (void **)&slot));
		for (int k = 0; k < ELEMS; k++)
			slot[k] = 5;
		ck_ok(gs_push_zcopy(r.t, big, lent[i]));
		ck_assert_ptr_eq(big->out.lent[i].at, lent[i]);
		ck_assert(slot[0] == 5 && slot[ELEMS - 1] == 5); /* nor copied */
	}
	atomic_store(&r.f.allow, 1);
	be_lost(&r);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	ck_ok(gs_wait_applied(r.t, big));
	memset(lent, 0, sizeof(lent));
	ck_ok(gs_pull(r.t, big, GS_RELAXED, got));
	for (int k = 0; k < ELEMS; k++)
		ck_assert_msg(got[k] == -(float)(2 * k + 1000), "element %d: %g", k,
			      (double)got[k]);
	rig_down(&r);
	fake_unmapped = unmapped;
}
END_TEST

static void other_mode(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_drop(f);
	fake_restart(f);
	f->mode = WIRE_ASYNC;
	fake_up_to(f, STAGE_WELCOMED);
	fake_expect_closed(f);
}

START_TEST(a_server_in_another_mode)
{
	struct rig r = {.f = {.mode = 0}};
	int rewound;

	up_for(&r, WIRE_SYNC, other_mode, 5000);
	be_lost(&r);
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "in another mode");
	rig_down(&r);
}
END_TEST

/* ---- states ---------------------------------------------------------------------------------- */

static void serve(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

START_TEST(not_lost)
{
	struct rig r = {.f = {.mode = 0}};
	int rewound;

	rig_up(&r, WIRE_ASYNC, serve);
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "it works");
	ck_fails(gs_reconnect(r.t, NULL), EINVAL, "NULL");
	ck_fails(gs_reconnect(NULL, &rewound), EINVAL, "NULL");
	ck_ok(gs_leave(r.t));
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "the trainer has lost no server");
	rig_down(&r);
}
END_TEST

/* The server goes before there was anything to lose: at each stage; the second one is there. */
static void go_early(struct fake *f)
{
	fake_up_to(f, *(enum stage *)f->arg);
	fake_gate(f, 1);
	fake_drop(f);
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

START_TEST(lost_before_the_start)
{
	enum stage last = (enum stage)_i;
	struct rig r = {.f = {.arg = &last, .mode = WIRE_SYNC}};
	float w[W_ELEMS] = {0};
	int rewound = 7;

	fake_start(&r.f, go_early);
	ck_ok(rig_connect(&r));
	rig_declare(&r, NULL);
	atomic_store(&r.f.allow, 1);
	if (last > STAGE_WELCOMED)
		ck_assert_int_eq(gs_start(r.t), -ECONNRESET);
	while (last == STAGE_WELCOMED && rig_try_declare(&r, NULL) == -EEXIST)
		usleep(1000);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	if (last == STAGE_WELCOMED)
		ck_ok(gs_start(r.t)); /* it is yet to be called */
	else
		ck_fails(gs_start(r.t), EBUSY, "called already");
	ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_step_end(r.t));
	rig_down(&r);
}
END_TEST

static void *wait_for_step(void *arg)
{
	struct rig *r = arg;

	ck_assert_int_eq(gs_step_wait(r->t), -ECONNRESET);
	return NULL;
}

static void lose_two(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_BARRIER);
	fake_expect_imm(f, IMM_PULL);
	fake_drop(f);
	f->resumes = true;
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

/* Two threads wait when it goes. */
START_TEST(lost_by_two_threads)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS];
	pthread_t thread;
	int rewound;

	rig_up(&r, WIRE_SYNC, lose_two);
	ck_ok(gs_step_post(r.t));
	pthread_create(&thread, NULL, wait_for_step, &r);
	usleep(20000);
	ck_assert_int_eq(gs_pull(r.t, r.b, GS_ORDERED, b), -ECONNRESET);
	pthread_join(thread, NULL);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	ck_ok(gs_step_wait(r.t));
	ck_ok(gs_pull(r.t, r.b, GS_ORDERED, b));
	ck_ok(gs_step_end(r.t));
	rig_down(&r);
}
END_TEST

static void *find_nobody(void *arg)
{
	struct rig *r = arg;
	int rewound;

	ck_assert_int_eq(gs_reconnect(r->t, &rewound), -ECONNREFUSED);
	return NULL;
}

/* Each of two threads hears that it is gone: the second to come is told that there is another. */
START_TEST(two_threads_come_back)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS] = {0};
	pthread_t thread;
	int rewound;

	up_for(&r, WIRE_ASYNC, end_for_good, 2000);
	be_lost(&r);
	pthread_create(&thread, NULL, find_nobody, &r);
	usleep(300000);
	ck_fails(gs_reconnect(r.t, &rewound), EBUSY, "another thread");
	ck_fails(gs_push(r.t, r.w, w), ECONNRESET, "another thread");
	pthread_join(thread, NULL);
	ck_fails(gs_push(r.t, r.w, w), ECONNRESET, "the server is gone");
	find_nobody(&r);
	rig_down(&r);
}
END_TEST

/* What a child can't do its parent still can. */
START_TEST(a_forked_child)
{
	struct keeper k;

	init(&k, WIRE_SYNC, 2);
	k.end_after[0] = 6;
	up(&k);
	pid_t pid = fork();
	if (pid == 0) {
		int rewound;
		int rc = gs_reconnect(k.r.t, &rewound);

		gs_close(k.r.t);
		_exit(rc == -EINVAL && strstr(gs_last_error(), "parent") ? 0 : 1);
	}
	int status;
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	train(&k);
	ck_assert_int_gt(k.returns, 0);
	down(&k);
}
END_TEST

/* ---- nothing is left behind ------------------------------------------------------------------ */

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int count_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int n = 0;

	/* Arenas and rings; the allocator's own come and go. */
	for (char line[512]; fgets(line, sizeof(line), maps);)
		n += strstr(line, "memfd:") != NULL;
	fclose(maps);
	return n;
}

static void lose_often(struct fake *f)
{
	for (;;) {
		struct tp_event ev;

		if (!fake_try_accept(f))
			return;
		f->stage_done = STAGE_HELLO;
		fake_up_to(f, f->sessions % 5 == 3 ? STAGE_ATTACHED : STAGE_STARTED);
		while (f->stage_done > STAGE_STARTED && fake_next(f, &ev, FAKE_WAIT_MS) &&
		       ev.kind == TP_EV_IMM && imm_unpack(ev.imm).kind != IMM_BARRIER)
			;
		fake_drop(f);
		f->resumes = true;
		memset(f->kept, 0, sizeof(f->kept));
	}
}

START_TEST(nothing_is_left)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS] = {0};
	int fds = 0, maps = 0, rewound;

	up_for(&r, WIRE_SYNC, lose_often, 5000);
	ck_ok(gs_push(r.t, r.w, w));
	for (int i = 0; i < 200; i++) {
		ck_assert_int_eq(gs_step_end(r.t), -ECONNRESET);
		r.t->attempts = 0; /* there is no time to wait longer and longer */
		ck_ok(gs_reconnect(r.t, &rewound));
		ck_assert_int_eq(rewound, 0);
		if (i == 20) {
			fds = count_fds(); /* give or take a connection */
			maps = count_maps();
		}
	}
	ck_assert_int_le(count_fds(), fds + 20);
	ck_assert_int_le(count_maps(), maps + 20);
	atomic_store(&r.f.done, true);
	rig_down(&r);
}
END_TEST

Suite *reconnect_suite(void)
{
	Suite *s = suite_create("trainer: reconnect");
	TCase *l = tcase_create("lost"), *t = tcase_create("the talk"),
	      *w = tcase_create("rewound"), *e = tcase_create("states");

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
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, lost_in_the_talk, STAGE_ACCEPTED, STAGE_STARTED + 1);
	tcase_add_loop_test(t, refused, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(t, pauses);
	tcase_add_test(t, nobody_there);
	tcase_add_test(t, slammed);
	tcase_add_test(t, slammed_later);
	suite_add_tcase(s, t);
	tcase_set_timeout(w, 60);
	tcase_add_loop_test(w, rewound_sync, 0, REWINDS);
	tcase_add_loop_test(w, rewound_async, 0, REWINDS);
	tcase_add_test(w, accumulated_and_rewound);
	tcase_add_test(w, rewound_for_good);
	tcase_add_loop_test(w, rewound_over_two_calls, WIRE_SYNC, WIRE_SSP + 1);
	tcase_add_test(w, a_fresh_server);
	tcase_add_loop_test(w, hostile_returns, 0, LIES);
	tcase_add_test(w, a_server_that_forgets);
	tcase_add_test(w, a_server_that_takes_back);
	tcase_add_test(w, what_was_lent_is_sent_again);
	tcase_add_test(w, a_server_in_another_mode);
	suite_add_tcase(s, w);
	tcase_set_timeout(e, 120);
	tcase_add_test(e, not_lost);
	tcase_add_loop_test(e, lost_before_the_start, STAGE_WELCOMED, STAGE_STARTED);
	tcase_add_test(e, lost_by_two_threads);
	tcase_add_test(e, two_threads_come_back);
	tcase_add_test(e, a_forked_child);
	tcase_add_test(e, nothing_is_left);
	suite_add_tcase(s, e);
	return s;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "keeper.h"

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

void keeper_main(struct fake *f)
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

void keeper_init(struct keeper *k, enum wire_mode mode, uint32_t slots)
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

void keeper_down(struct keeper *k)
{
	wrap_cut_after(-1);
	atomic_store(&k->r.f.done, true);
	rig_down(&k->r);
}

void keeper_come_back(struct keeper *k)
{
	int rewound = 7;

	wrap_cut_after(k->cut_again);
	k->cut_again = -1;
	ck_ok(gs_reconnect(k->r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	k->returns++;
}

float keeper_grad(int turn, int i)
{
	return (float)(turn * 100 + i);
}

void keeper_make(float *g, int n, int turn)
{
	for (int i = 0; i < n; i++)
		g[i] = keeper_grad(turn, i);
}

void keeper_check_sum(const float *w, int n, int turns)
{
	for (int i = 0; i < n; i++) {
		float sum = 0;

		for (int turn = 1; turn <= turns; turn++)
			sum -= keeper_grad(turn, i);
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
	keeper_check_sum(w, W_ELEMS, turn);
	keeper_check_sum(b, B_ELEMS, turn);
	gs_get_info(r->t, &info);
	ck_assert_uint_eq(info.step, (uint64_t)turn + 1);
}

void keeper_train(struct keeper *k)
{
	struct rig *r = &k->r;
	float w[W_ELEMS], b[B_ELEMS];
	uint64_t n;

	for (int turn = 1; turn <= KEEPER_TURNS; turn++) {
		keeper_make(w, W_ELEMS, turn);
		keeper_make(b, B_ELEMS, turn);
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
	keeper_check_sum(w, W_ELEMS, KEEPER_TURNS);
	keeper_check_sum(b, B_ELEMS, KEEPER_TURNS);
}

void keeper_up(struct keeper *k)
{
	fake_start(&k->r.f, keeper_main);
	ck_ok(rig_connect(&k->r));
	rig_declare(&k->r, NULL);
	ck_ok(gs_start(k->r.t));
}

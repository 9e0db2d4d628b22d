/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_step_pull and gs_step_view: which blocks come before the release, which must not, and what
 * they refuse. What happens when the server is lost meanwhile is in reconnect_test.c.
 */
#include "fake.h"

#include <unistd.h>

/* What stands in a destination that nothing was written to. */
#define NOTHING (-1e30f)

struct puller {
	struct rig r;
	float w[W_ELEMS], b[B_ELEMS];
	int rc;
	bool views; /* it looks in place */
	gs_param *param[2];
	void *dst[2];
	uint64_t come[2]; /* elements of each */
	/* What the script does to block 0 in step 2, before the release; NULL: its update. */
	void (*spoil)(struct fake *f);
};

/* While another thread writes it, as no program may: TSan is not to look. */
__attribute__((no_sanitize("thread"))) static float seen(const float *at)
{
	return *(const volatile float *)at;
}

/* Until it is written. */
static void wait_for(const float *at)
{
	for (int i = 0; seen(at) == NOTHING; i++) {
		ck_assert_msg(i < 100000, "it does not come before the release");
		usleep(100);
	}
}

static void forget(struct puller *k)
{
	for (int i = 0; i < W_ELEMS; i++)
		k->w[i] = NOTHING;
	for (int i = 0; i < B_ELEMS; i++)
		k->b[i] = NOTHING;
}

static void check(const struct puller *k, int updates)
{
	for (int i = 0; i < W_ELEMS; i++)
		ck_assert_float_eq(k->w[i], (float)-updates * (float)(i + 1));
	for (int i = 0; i < B_ELEMS; i++)
		ck_assert_float_eq(k->b[i], (float)-updates * (float)(i + 1));
}

static void push_both(struct puller *k)
{
	float g[W_ELEMS];

	for (int i = 0; i < W_ELEMS; i++)
		g[i] = (float)(i + 1);
	ck_ok(gs_push(k->r.t, k->r.w, g));
	ck_ok(gs_push(k->r.t, k->r.b, g));
}

static void come(void *ctx, uint32_t i, uint64_t first, uint64_t count, const void *weights)
{
	struct puller *k = ctx;

	ck_assert_uint_lt(i, 2);
	ck_assert_uint_gt(count, 0);
	ck_assert_uint_eq(first, k->come[i]);
	k->come[i] += count;
	ck_assert_uint_le(k->come[i], gs_param_elems(k->param[i]));
	memcpy((float *)k->dst[i] + first, weights, count * sizeof(float));
}

/* What came lies where it was seen. */
static void check_view(const struct puller *k, uint32_t i)
{
	const void *view;

	ck_assert_uint_eq(k->come[i], gs_param_elems(k->param[i]));
	ck_ok(gs_weights_view(k->r.t, k->param[i], &view));
	ck_assert_mem_eq(view, k->dst[i], k->come[i] * sizeof(float));
}

static int step_pull_listed(struct puller *k)
{
	if (!k->views)
		return gs_step_pull(k->r.t, k->param, k->dst, 2);
	k->come[0] = k->come[1] = 0;
	int rc = gs_step_view(k->r.t, k->param, 2, come, k);
	for (uint32_t i = 0; rc == 0 && i < 2; i++)
		check_view(k, i);
	return rc;
}

static int step_pull(struct puller *k)
{
	k->param[0] = k->r.w;
	k->param[1] = k->r.b;
	k->dst[0] = k->w;
	k->dst[1] = k->b;
	return step_pull_listed(k);
}

static void *pull_in_a_thread(void *arg)
{
	struct puller *k = arg;

	k->rc = step_pull(k);
	return NULL;
}

/* ---- the script ------------------------------------------------------------------------------ */

static void update(struct fake *f, uint32_t b)
{
	float *w = fake_weights(f, b), *g = fake_slot(f, b, (uint32_t)f->barriers % f->slots);
	uint64_t *version = fake_version(f, b);

	__atomic_store_n(version, *version + 1, __ATOMIC_SEQ_CST);
	for (uint64_t i = 0; i < fake_block_elems(f, b); i++)
		w[i] -= g[i];
	__atomic_store_n(version, *version + 1, __ATOMIC_SEQ_CST);
}

static void take_gradients(struct fake *f)
{
	for (int n = 0; n < BLOCKS; n++)
		fake_expect_imm(f, IMM_GRAD);
	ck_assert_uint_eq(fake_expect_imm(f, IMM_BARRIER).step, f->barriers + 1);
}

static void end_step(struct fake *f)
{
	fake_release(f, ++f->barriers);
}

/* Step 1 as it should be. In step 2 block 0 is spoiled, block 2 is not updated before gate 1 opens; the
 * others are. */
static void hold_back(struct fake *f)
{
	const struct puller *k = f->arg;
	void (*spoil)(struct fake *) = k->spoil;
	uint64_t word;

	fake_up_to(f, STAGE_STARTED);
	take_gradients(f);
	for (uint32_t b = 0; b < BLOCKS; b++)
		update(f, b);
	end_step(f);
	take_gradients(f);
	word = *fake_version(f, 0);
	if (spoil)
		spoil(f);
	else
		update(f, 0);
	update(f, 1);
	update(f, B_BLOCK);
	fake_gate(f, 1);
	if (spoil) {
		for (uint64_t i = 0; i < fake_block_elems(f, 0); i++)
			fake_weights(f, 0)[i] -= 4096;
		__atomic_store_n(fake_version(f, 0), word, __ATOMIC_SEQ_CST);
		update(f, 0);
	}
	update(f, 2);
	end_step(f);
	fake_serve(f);
}

static void up(struct puller *k, bool views, void (*spoil)(struct fake *f))
{
	memset(k, 0, sizeof(*k));
	k->views = views;
	k->spoil = spoil;
	k->r.f.arg = k;
	k->r.f.mode = WIRE_SYNC;
	fake_start(&k->r.f, hold_back);
	ck_ok(rig_connect(&k->r));
	rig_declare(&k->r, NULL);
	ck_ok(gs_start(k->r.t));
	push_both(k);
	ck_ok(step_pull(k));
	check(k, 1);
}

/* ---- before the release ---------------------------------------------------------------------- */

START_TEST(blocks_come_as_they_are_made)
{
	struct puller k;
	pthread_t thread;

	up(&k, _i, NULL);
	push_both(&k);
	forget(&k);
	pthread_create(&thread, NULL, pull_in_a_thread, &k);
	wait_for(&k.w[27]);
	wait_for(&k.w[55]);
	wait_for(&k.b[2]);
	ck_assert_float_eq(seen(&k.w[56]), NOTHING);
	ck_assert_float_eq(seen(&k.w[0]), -2);
	atomic_store(&k.r.f.allow, 1);
	pthread_join(thread, NULL);
	ck_assert_int_eq(k.rc, 0);
	check(&k, 2);
	rig_down(&k.r);
}
END_TEST

/* Its weights are not those of any step meanwhile. */
static void set_word(struct fake *f, uint64_t by)
{
	for (uint64_t i = 0; i < fake_block_elems(f, 0); i++)
		fake_weights(f, 0)[i] += 4096;
	__atomic_store_n(fake_version(f, 0), *fake_version(f, 0) + by, __ATOMIC_SEQ_CST);
}

static void under_update(struct fake *f)
{
	set_word(f, 1);
}

static void odd_and_further(struct fake *f)
{
	set_word(f, 3);
}

static void too_far(struct fake *f)
{
	set_word(f, 4);
}

static void back(struct fake *f)
{
	set_word(f, (uint64_t)-2);
}

static void (*const spoils[])(struct fake *f) = {under_update, odd_and_further, too_far, back};

/* Words other than the one that an update leaves don't move a block: what stands there is not taken
 * before the release. `b` shows that the trainer has looked. */
START_TEST(other_words_move_nothing)
{
	struct puller k;
	pthread_t thread;

	up(&k, _i / 4, spoils[_i % 4]);
	push_both(&k);
	forget(&k);
	pthread_create(&thread, NULL, pull_in_a_thread, &k);
	wait_for(&k.b[2]);
	ck_assert_float_eq(seen(&k.w[0]), NOTHING);
	ck_assert_float_eq(seen(&k.w[28]), NOTHING);
	atomic_store(&k.r.f.allow, 1);
	pthread_join(thread, NULL);
	ck_assert_int_eq(k.rc, 0);
	check(&k, 2);
	rig_down(&k.r);
}
END_TEST

/* ---- what it refuses ------------------------------------------------------------------------- */

static void serve_started(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

START_TEST(every_other_step)
{
	struct puller k = {.views = _i};

	rig_up(&k.r, WIRE_SYNC, serve_started);
	k.param[0] = k.r.b;
	k.param[1] = k.r.w;
	k.dst[0] = k.b;
	k.dst[1] = k.w;
	for (int step = 1; step <= 12; step++) {
		push_both(&k);
		forget(&k);
		if (step % 3 == 0) {
			ck_ok(gs_step_end(k.r.t));
			ck_ok(gs_pull_many(k.r.t, k.param, k.dst, 2, GS_RELAXED));
		} else {
			ck_ok(step_pull_listed(&k));
		}
		check(&k, step);
		/* A step in which nothing was pushed, and nothing is pulled. */
		if (step == 5)
			ck_ok(gs_step_pull(k.r.t, NULL, NULL, 0));
	}
	rig_down(&k.r);
}
END_TEST

START_TEST(refuses_and_ends_no_step)
{
	struct puller k = {.rc = 0};
	struct rig *r = &k.r;
	gs_param *twice[2];
	void *dst[2] = {k.w, k.w}, *null[1] = {NULL};
	struct gs_info info;

	rig_up(r, WIRE_SYNC, serve_started);
	twice[0] = twice[1] = r->w;
	ck_fails(gs_step_pull(r->t, NULL, dst, 1), EINVAL, "NULL");
	ck_fails(gs_step_pull(r->t, &r->w, NULL, 1), EINVAL, "NULL");
	ck_fails(gs_step_pull(r->t, &r->w, null, 1), EINVAL, "destination 0 is NULL");
	ck_fails(gs_step_pull(r->t, twice, dst, 2), EINVAL, "\"w\" is in the list twice");
	twice[1] = NULL;
	ck_fails(gs_step_pull(r->t, twice, dst, 2), EINVAL, "parameter 1");
	gs_get_info(r->t, &info);
	ck_assert_uint_eq(info.step, 1);
	push_both(&k); /* so it is still step 1, and open */
	ck_ok(gs_step_post(r->t));
	ck_fails(step_pull(&k), EALREADY, "step 1 was posted already");
	ck_ok(gs_step_wait(r->t));
	push_both(&k);
	ck_ok(step_pull(&k));
	check(&k, 2);
	rig_down(r);
}
END_TEST

START_TEST(refuses_and_shows_nothing)
{
	struct puller k = {.views = true};
	struct rig *r = &k.r;
	gs_param *list[2];
	struct gs_info info;

	rig_up(r, WIRE_SYNC, serve_started);
	list[0] = list[1] = r->w;
	ck_fails(gs_step_view(NULL, list, 1, come, &k), EINVAL, "NULL");
	ck_fails(gs_step_view(r->t, NULL, 1, come, &k), EINVAL, "NULL");
	ck_fails(gs_step_view(r->t, list, 1, NULL, &k), EINVAL, "NULL");
	if (fake_unmapped)
		ck_fails(step_pull(&k), EOPNOTSUPP, "over shm only");
	else
		ck_fails(gs_step_view(r->t, list, 2, come, &k), EINVAL,
			 "\"w\" is in the list twice");
	list[1] = NULL;
	ck_fails(gs_step_view(r->t, &list[1], 1, come, &k), EINVAL, "parameter 0");
	ck_assert_uint_eq(k.come[0], 0);
	gs_get_info(r->t, &info);
	ck_assert_uint_eq(info.step, 1);
	push_both(&k);
	ck_ok(gs_step_view(r->t, NULL, 0, come, &k));
	gs_get_info(r->t, &info);
	ck_assert_uint_eq(info.step, 2);
	rig_down(r);
}
END_TEST

START_TEST(no_steps_no_step_pull)
{
	struct puller k = {.views = _i};

	rig_up(&k.r, WIRE_ASYNC, serve_started);
	ck_fails(step_pull(&k), EPERM, "async");
	rig_down(&k.r);
}
END_TEST

Suite *step_pull_suite(void)
{
	Suite *s = suite_create("trainer: step_pull");
	TCase *c = tcase_create("step_pull");

	/* Copied, and where there is something to look at, in place. */
	int ways = fake_unmapped ? 1 : 2;

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, blocks_come_as_they_are_made, 0, ways);
	tcase_add_loop_test(c, other_words_move_nothing, 0, 4 * ways);
	tcase_add_loop_test(c, every_other_step, 0, ways);
	tcase_add_test(c, refuses_and_ends_no_step);
	tcase_add_test(c, refuses_and_shows_nothing);
	tcase_add_loop_test(c, no_steps_no_step_pull, 0, ways);
	suite_add_tcase(s, c);
	return s;
}

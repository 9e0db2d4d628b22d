/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading weights in the three ways.
 */
#include "fake.h"

#include <unistd.h>

#include "trainer/trainer.h"

static void fill_weights(struct fake *f)
{
	for (uint32_t b = 0; b < f->blocks; b++) {
		for (uint64_t i = 0; i < fake_block_elems(f, b); i++)
			fake_weights(f, b)[i] = (float)(1000 * b + i);
		*fake_version(f, b) = 2 * (b + 5);
	}
}

static void serve_filled(struct fake *f)
{
	fake_up_to(f, STAGE_READY);
	fill_weights(f);
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

static void check_w(const float *w)
{
	for (int i = 0; i < W_ELEMS; i++)
		ck_assert_float_eq(w[i], (float)(1000 * (i / 28) + i % 28));
}

static const enum gs_consistency ways[] = {GS_RELAXED, GS_CONSISTENT, GS_ORDERED};

START_TEST(each_way)
{
	for (int mode = WIRE_SYNC; mode <= WIRE_ASYNC; mode++) {
		struct rig r = {.f = {.mode = 0}};
		float w[W_ELEMS + 1] = {0}, b[B_ELEMS], *odd = w + 1;

		rig_up(&r, (enum wire_mode)mode, serve_filled);
		ck_ok(gs_pull(r.t, r.w, ways[_i], w));
		check_w(w);
		/* A destination needs a float's alignment, no more. */
		ck_ok(gs_pull(r.t, r.w, ways[_i], odd));
		check_w(odd);
		gs_param *p[2] = {r.b, r.w};
		void *dst[2] = {b, w};
		memset(w, 0, sizeof(w));
		ck_ok(gs_pull_many(r.t, p, dst, 2, ways[_i]));
		check_w(w);
		ck_assert_float_eq(b[2], 3002);
		/* Nothing is left over. */
		ck_ok(gs_pull_many(r.t, p, dst, 2, ways[_i]));
		rig_down(&r);
	}
}
END_TEST

/* Which update of each was seen; the words of neighbours come together. */
START_TEST(what_was_seen)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS], b[B_ELEMS];
	gs_param *p[2];
	void *dst[2];

	rig_up(&r, WIRE_ASYNC, serve_filled);
	p[_i] = r.w;
	dst[_i] = w;
	p[1 - _i] = r.b;
	dst[1 - _i] = b;
	for (int how = GS_RELAXED; how <= GS_CONSISTENT; how++) {
		r.w->seen = r.b->seen = 0;
		ck_ok(gs_pull_many(r.t, p, dst, 2, (enum gs_consistency)how));
		ck_assert_uint_eq(r.w->seen, 1 + 5);
		ck_assert_uint_eq(r.b->seen, 1 + 8);
	}
	rig_down(&r);
}
END_TEST

START_TEST(one_parameter_twice)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS], v[W_ELEMS];
	gs_param *p[2];
	void *dst[2] = {w, v};

	rig_up(&r, WIRE_ASYNC, serve_filled);
	p[0] = p[1] = r.w;
	for (int how = GS_RELAXED; how <= GS_ORDERED; how++)
		ck_fails(gs_pull_many(r.t, p, dst, 2, (enum gs_consistency)how), EINVAL,
			 "\"w\" is in the list twice");
	/* It is free again. */
	ck_ok(gs_pull(r.t, r.w, GS_ORDERED, w));
	check_w(w);
	rig_down(&r);
}
END_TEST

START_TEST(versions_and_the_view)
{
	struct rig r = {.f = {.mode = 0}};
	uint64_t version = 99;
	const float *view;

	rig_up(&r, WIRE_ASYNC, serve_filled);
	ck_ok(gs_block_version(r.t, r.w, 0, &version));
	ck_assert_uint_eq(version, 5);
	ck_ok(gs_block_version(r.t, r.w, 28, &version));
	ck_assert_uint_eq(version, 6);
	ck_ok(gs_block_version(r.t, r.w, W_ELEMS - 1, &version));
	ck_assert_uint_eq(version, 7);
	ck_ok(gs_block_version(r.t, r.b, 2, &version));
	ck_assert_uint_eq(version, 8);
	if (fake_unmapped) {
		ck_fails(gs_weights_view(r.t, r.w, (const void **)&view), EOPNOTSUPP,
			 "over shm only");
	} else {
		ck_ok(gs_weights_view(r.t, r.w, (const void **)&view));
		check_w(view);
	}
	rig_down(&r);
}
END_TEST

/* Blocks are dealt out over the rails, and so is reading them. _i: how many rails. */
START_TEST(by_all_rails)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS], b[B_ELEMS];
	gs_param *p[2];
	void *dst[2] = {w, b};

	wrap_rails((uint32_t)_i);
	rig_up(&r, WIRE_ASYNC, serve_filled);
	p[0] = r.w;
	p[1] = r.b;
	for (int how = GS_RELAXED; fake_unmapped && how <= GS_CONSISTENT; how++) {
		memset(w, 0, sizeof(w));
		wrap_reads_begin();
		ck_ok(gs_pull(r.t, r.w, (enum gs_consistency)how, w));
		wrap_reads_end();
		check_w(w);
		ck_assert_uint_eq(wrap_read_rails(), _i == 2 ? 3 : (1u << W_BLOCKS) - 1);
		memset(w, 0, sizeof(w));
		ck_ok(gs_pull_many(r.t, p, dst, 2, (enum gs_consistency)how));
		check_w(w);
		ck_assert_float_eq(b[2], 3002);
	}
	wrap_rails(1);
	rig_down(&r);
}
END_TEST

/* ---- ordered --------------------------------------------------------------------------------- */

START_TEST(ordered_sees_own_pushes)
{
	struct rig r = {.f = {.mode = 0}};
	float g[W_ELEMS], w[W_ELEMS];

	for (int i = 0; i < W_ELEMS; i++)
		g[i] = -1;
	rig_up(&r, WIRE_ASYNC, serve_filled);
	for (int n = 1; n <= 50; n++) {
		ck_ok(gs_push(r.t, r.w, g));
		ck_ok(gs_pull(r.t, r.w, GS_ORDERED, w));
		for (int i = 0; i < W_ELEMS; i++)
			ck_assert_float_eq(w[i], (float)(1000 * (i / 28) + i % 28 + n));
	}
	rig_down(&r);
}
END_TEST

static void keep_the_barrier_word(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_BARRIER);
	fake_take_barrier(f);
	fake_release(f, 1);
	for (uint32_t b = 0; b < W_BLOCKS; b++) {
		struct imm imm = fake_expect_imm(f, IMM_PULL);

		ck_assert_uint_eq(imm.block, b);
	}
	ck_assert_uint_eq(*(uint64_t *)(void *)f->slot, FAKE_NO_BARRIER);
	/* Answers may come in any order. */
	for (uint32_t b = 0; b < W_BLOCKS; b++)
		fake_pulled(f, W_BLOCKS - 1 - b);
	fake_serve(f);
}

START_TEST(ordered_keeps_the_barrier_word)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS];

	rig_up(&r, WIRE_SYNC, keep_the_barrier_word);
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_pull(r.t, r.w, GS_ORDERED, w));
	rig_down(&r);
}
END_TEST

/* ---- consistent ------------------------------------------------------------------------------ */

/* Block 1 is under update for good: after so many tries it comes through the queue. */
static void stuck_update(struct fake *f)
{
	fake_up_to(f, STAGE_READY);
	fill_weights(f);
	(*fake_version(f, 1))++;
	fake_up_to(f, STAGE_STARTED);
	struct imm imm = fake_expect_imm(f, IMM_PULL);
	ck_assert_uint_eq(imm.block, 1);
	fake_pulled(f, 1);
	fake_expect_closed(f);
}

START_TEST(an_endless_update)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS];

	rig_up(&r, WIRE_ASYNC, stuck_update);
	ck_ok(gs_pull(r.t, r.w, GS_CONSISTENT, w));
	check_w(w);
	rig_down(&r);
}
END_TEST

/* Blocks so long that an update falls into most reads of one. */
enum { LONG_BLOCK = 20000, LONG = 2 * LONG_BLOCK + 77 };

/* All elements of a block get the same value in each update. */
static void update_block(struct fake *f, uint32_t b, float value)
{
	uint32_t *w = (uint32_t *)(void *)fake_weights(f, b), bits;

	memcpy(&bits, &value, 4);
	__atomic_add_fetch(fake_version(f, b), 1, __ATOMIC_SEQ_CST);
	for (uint64_t i = 0; i < fake_block_elems(f, b); i++)
		__atomic_store_n(&w[i], bits, __ATOMIC_RELAXED);
	__atomic_add_fetch(fake_version(f, b), 1, __ATOMIC_SEQ_CST);
}

static void *update_all_the_time(void *arg)
{
	struct fake *f = arg;

	for (int k = 1; !atomic_load(&f->allow); k++) {
		for (uint32_t b = 0; b < f->blocks; b++)
			update_block(f, b, (float)(k % 1000000));
		usleep(50);
	}
	return NULL;
}

/* The queue of a real server would stand still for the answer. Here updates go on, so the answer is
 * something else that is whole: zeros. */
static void answer_with_zeros(struct fake *f, uint32_t b)
{
	const struct wire_place *p = &f->place[fake_owner(f, b)];
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = TP_F_IMM,
	    .imm = imm_block(IMM_PULLED, b, 0, false),
	    .local = f->words + 4096,
	    .region = f->words_region,
	    .remote = f->mailbox,
	    .offset = p->landing_off + 4 * (b - p->first_block) * p->block_elems,
	    .len = 4 * fake_block_elems(f, b),
	};

	ck_assert_int_eq(tp_post(f->conn, &op, 1), 1);
}

static void serve_while_updating(struct fake *f)
{
	pthread_t thread;
	struct tp_event ev;

	fake_up_to(f, STAGE_READY);
	pthread_create(&thread, NULL, update_all_the_time, f);
	fake_up_to(f, STAGE_STARTED);
	while (fake_next(f, &ev, FAKE_WAIT_MS) && ev.kind == TP_EV_IMM) {
		struct imm imm = imm_unpack(ev.imm);

		ck_assert_uint_eq(imm.kind, IMM_PULL);
		answer_with_zeros(f, imm.block);
	}
	atomic_store(&f->allow, 1);
	pthread_join(thread, NULL);
}

static int first_torn(const float *w)
{
	for (int i = 0; i < LONG; i++) {
		if (w[i] != w[i / LONG_BLOCK * LONG_BLOCK])
			return i;
	}
	return -1;
}

START_TEST(consistent_blocks_are_whole)
{
	static float w[LONG];
	struct rig r = {.f = {.mode = WIRE_ASYNC, .block_elems = LONG_BLOCK}};
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;
	float last = -1;
	int changes = 0;

	fake_start(&r.f, serve_while_updating);
	ck_ok(rig_connect(&r));
	d.name = "long";
	d.ndim = 1;
	d.shape[0] = LONG;
	ck_ok(gs_declare(r.t, &d, &p));
	ck_ok(gs_start(r.t));
	for (int round = 0; round < 1000; round++) {
		ck_ok(gs_pull(r.t, p, GS_CONSISTENT, w));
		int torn = first_torn(w);
		ck_assert_msg(torn < 0, "round %d: element %d is of another update", round, torn);
		changes += w[0] != last;
		last = w[0];
	}
	ck_assert_int_gt(changes, 2);
	rig_down(&r);
}
END_TEST

Suite *pull_suite(void)
{
	Suite *s = suite_create("trainer: pull");
	TCase *c = tcase_create("pull");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, each_way, 0, 3);
	tcase_add_loop_test(c, what_was_seen, 0, 2);
	tcase_add_test(c, one_parameter_twice);
	tcase_add_loop_test(c, by_all_rails, 2, 5);
	tcase_add_test(c, versions_and_the_view);
	tcase_add_test(c, ordered_sees_own_pushes);
	tcase_add_test(c, ordered_keeps_the_barrier_word);
	tcase_add_test(c, an_endless_update);
	tcase_add_test(c, consistent_blocks_are_whole);
	suite_add_tcase(s, c);
	return s;
}

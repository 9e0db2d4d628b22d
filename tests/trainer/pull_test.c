/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading weights in the three ways.
 */
#include "fake.h"

#include <unistd.h>

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
		float *dst[2] = {b, w};
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

START_TEST(one_parameter_twice)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS], v[W_ELEMS];
	gs_param *p[2];
	float *dst[2] = {w, v};

	rig_up(&r, WIRE_ASYNC, serve_filled);
	p[0] = p[1] = r.w;
	ck_fails(gs_pull_many(r.t, p, dst, 2, GS_ORDERED), EINVAL, "\"w\" is in the list twice");
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
		ck_fails(gs_weights_view(r.t, r.w, &view), EOPNOTSUPP, "over shm only");
	} else {
		ck_ok(gs_weights_view(r.t, r.w, &view));
		check_w(view);
	}
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
	fake_release(f, 1);
	for (uint32_t b = 0; b < W_BLOCKS; b++) {
		struct imm imm = fake_expect_imm(f, IMM_PULL);

		ck_assert_uint_eq(imm.block, b);
	}
	ck_assert_uint_eq(*(uint64_t *)(void *)f->slot, 1);
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

static void *update_all_the_time(void *arg)
{
	struct fake *f = arg;

	for (uint64_t k = 1; !atomic_load(&f->allow); k++) {
		for (uint32_t b = 0; b < f->blocks; b++) {
			uint32_t *w = (uint32_t *)(void *)fake_weights(f, b);
			float value = (float)(k % 1000000);
			uint32_t bits;

			memcpy(&bits, &value, 4);
			__atomic_add_fetch(fake_version(f, b), 1, __ATOMIC_SEQ_CST);
			for (uint64_t i = 0; i < fake_block_elems(f, b); i++)
				__atomic_store_n(&w[i], bits, __ATOMIC_RELAXED);
			__atomic_add_fetch(fake_version(f, b), 1, __ATOMIC_SEQ_CST);
		}
		if (k % 16 == 0)
			usleep(1);
	}
	return NULL;
}

static void serve_while_updating(struct fake *f)
{
	pthread_t thread;
	struct tp_event ev;

	fake_up_to(f, STAGE_READY);
	pthread_create(&thread, NULL, update_all_the_time, f);
	fake_up_to(f, STAGE_STARTED);
	for (;;) {
		ck_assert(fake_next(f, &ev, FAKE_WAIT_MS));
		if (ev.kind == TP_EV_CLOSED)
			break;
		/* The queue is asked: the updates stand still while it answers, as a real server's
		 * do. Here they don't, so answer with what is surely whole. */
		uint32_t b = imm_unpack(ev.imm).block;
		float same[28] = {0};
		ck_assert_int_eq(imm_unpack(ev.imm).kind, IMM_PULL);
		memcpy(f->words, same, sizeof(same));
		struct tp_op op = {
		    .kind = TP_OP_WRITE,
		    .flags = TP_F_IMM,
		    .imm = imm_block(IMM_PULLED, b, 0, false),
		    .local = f->words,
		    .region = f->words_region,
		    .remote = f->mailbox,
		    .offset = layout_landing_off(
			f->blocks, (uint64_t)((uint8_t *)fake_weights(f, b) - f->weights)),
		    .len = 4 * fake_block_elems(f, b),
		};
		ck_assert_int_eq(tp_post(f->conn, &op, 1), 1);
	}
	atomic_store(&f->allow, 1);
	pthread_join(thread, NULL);
}

START_TEST(consistent_blocks_are_whole)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS];
	int seen = 0;
	float last = -1;

	rig_up(&r, WIRE_ASYNC, serve_while_updating);
	for (int round = 0; round < 3000; round++) {
		ck_ok(gs_pull(r.t, r.w, GS_CONSISTENT, w));
		for (int i = 0; i < W_ELEMS; i++)
			ck_assert_msg(w[i] == w[i / 28 * 28], "round %d: %g beside %g", round,
				      (double)w[i], (double)w[i / 28 * 28]);
		seen += w[0] != last;
		last = w[0];
	}
	ck_assert_int_gt(seen, 2); /* it did change meanwhile */
	rig_down(&r);
}
END_TEST

Suite *pull_suite(void)
{
	Suite *s = suite_create("trainer: pull");
	TCase *c = tcase_create("pull");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, each_way, 0, 3);
	tcase_add_test(c, one_parameter_twice);
	tcase_add_test(c, versions_and_the_view);
	tcase_add_test(c, ordered_sees_own_pushes);
	tcase_add_test(c, ordered_keeps_the_barrier_word);
	tcase_add_test(c, an_endless_update);
	tcase_add_test(c, consistent_blocks_are_whole);
	suite_add_tcase(s, c);
	return s;
}

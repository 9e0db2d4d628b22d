/* SPDX-License-Identifier: Apache-2.0
 *
 * Several parameters pushed in one call: what goes as a pack, and what one by one. The rig's two
 * parameters are one pack of one block each, number 2 among the blocks.
 */
#include "fake.h"

enum { W = 0, B = 1, PACK = 2 };

static float w_grad[W_ELEMS], b_grad[B_ELEMS];

static void fill(void)
{
	for (int i = 0; i < W_ELEMS; i++)
		w_grad[i] = (float)i;
	for (int i = 0; i < B_ELEMS; i++)
		b_grad[i] = 100 + (float)i;
}

static void up(struct rig *r, enum wire_mode mode, void (*script)(struct fake *f))
{
	fill();
	r->f.packed = true;
	r->f.block_elems = W_ELEMS;
	rig_up(r, mode, script);
}

static int push_both(struct rig *r)
{
	gs_param *p[] = {r->w, r->b};
	const void *g[] = {w_grad, b_grad};

	return gs_push_many(r->t, p, g, 2);
}

static void expect(struct fake *f, uint32_t block, uint32_t slot)
{
	struct imm imm = fake_expect_imm(f, IMM_GRAD);

	ck_assert_uint_eq(imm.block, block);
	ck_assert_uint_eq(imm.slot, slot);
	ck_assert_int_eq(imm.notify, f->mode != WIRE_SYNC);
	for (uint64_t i = 0; block != B && i < W_ELEMS; i++)
		ck_assert_float_eq(fake_slot(f, W, slot)[i], (float)i);
	for (uint64_t i = 0; block != W && i < B_ELEMS; i++)
		ck_assert_float_eq(fake_slot(f, B, slot)[i], 100 + (float)i);
}

static void end_step(struct fake *f, uint64_t step)
{
	ck_assert_uint_eq(fake_expect_imm(f, IMM_BARRIER).step, step);
	fake_release(f, step);
}

/* ---- sync ------------------------------------------------------------------------------------ */

static void take_steps(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	expect(f, PACK, 0);
	end_step(f, 1);
	expect(f, PACK, 1);
	end_step(f, 2);
	expect(f, B, 0); /* alone */
	end_step(f, 3);
	expect(f, PACK, 1); /* they go together again */
	end_step(f, 4);
	expect(f, W, 0); /* a list that has not all of it */
	end_step(f, 5);
	end_step(f, 6); /* nothing */
	expect(f, PACK, 0);
	fake_expect_closed(f);
}

/* In whatever order, from wherever; also after steps in which some were left out. */
START_TEST(a_pack_goes_as_one)
{
	struct rig r = {.f = {.slots = 2}};
	void *buf[2];

	up(&r, WIRE_SYNC, take_steps);
	gs_param *turned[] = {r.b, r.w};
	const void *g[] = {b_grad, w_grad};
	ck_ok(push_both(&r));
	ck_fails(push_both(&r), EALREADY, "nothing was sent");
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_push_many(r.t, turned, g, 2));
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_push(r.t, r.b, b_grad));
	ck_fails(push_both(&r), EALREADY, "\"b\" was pushed in step 3 already");
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_grad_buffer(r.t, r.w, &buf[0]));
	ck_ok(gs_grad_buffer(r.t, r.b, &buf[1]));
	memcpy(buf[0], w_grad, sizeof(w_grad));
	memcpy(buf[1], b_grad, sizeof(b_grad));
	ck_ok(gs_push_many(r.t, (gs_param *[]){r.w, r.b}, (const void *const *)buf, 2));
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_push_many(r.t, turned + 1, g + 1, 1));
	ck_ok(gs_step_end(r.t));
	ck_ok(gs_step_end(r.t));
	ck_ok(push_both(&r));
	ck_ok(gs_push_many(r.t, NULL, NULL, 0));
	rig_down(&r);
}
END_TEST

static void take_one(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	expect(f, PACK, 0);
	fake_expect_closed(f);
}

/* A bad list sends nothing, so a good one can follow in the same step. */
START_TEST(a_bad_list)
{
	struct rig r = {.f = {.slots = 2}};
	const void *g[] = {w_grad, w_grad, w_grad};

	up(&r, WIRE_SYNC, take_one);
	ck_fails(gs_push_many(r.t, (gs_param *[]){r.w, r.b, r.w}, g, 3), EINVAL,
		 "nothing was sent: parameter \"w\" is in the list twice");
	ck_fails(gs_push_many(r.t, (gs_param *[]){r.w, NULL}, g, 2), EINVAL, "parameter 1 is not one");
	g[1] = NULL;
	ck_fails(gs_push_many(r.t, (gs_param *[]){r.w, r.b}, g, 2), EINVAL,
		 "no gradient of parameter 1");
	ck_fails(gs_push_many(r.t, NULL, g, 1), EINVAL, "NULL");
	ck_fails(gs_push_many(r.t, &r.w, NULL, 1), EINVAL, "NULL");
	ck_ok(push_both(&r));
	rig_down(&r);
}
END_TEST

static void take_what_is_lacking(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	expect(f, B, 0);
	end_step(f, 3);
	expect(f, PACK, 1);
	fake_expect_closed(f);
}

/* The server has one of them from a connection before. */
START_TEST(what_is_in_is_left_out)
{
	struct rig r = {.f = {.slots = 2, .kept = {3, 2}, .start_step = 3}};

	up(&r, WIRE_SYNC, take_what_is_lacking);
	ck_ok(push_both(&r));
	ck_ok(gs_step_end(r.t));
	ck_ok(push_both(&r));
	rig_down(&r);
}
END_TEST

static void take_heads(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	expect(f, PACK, 0);
	for (uint32_t i = 0; i < 2; i++) {
		const struct layout_push_head *head = (void *)(f->slot + f->place[i].heads_off);

		ck_assert_float_eq(head->weight, 5);
		ck_assert_float_eq(head->scale, 8);
	}
	fake_expect_closed(f);
}

START_TEST(heads_go_along)
{
	struct rig r = {.f = {.slots = 2}};

	up(&r, WIRE_SYNC, take_heads);
	ck_ok(gs_set_samples(r.t, 5));
	ck_ok(gs_set_grad_scale(r.t, 8));
	ck_ok(push_both(&r));
	rig_down(&r);
}
END_TEST

/* ---- async ----------------------------------------------------------------------------------- */

static void credit(struct fake *f, uint32_t block, uint64_t n)
{
	fake_credit(f, block, n, true);
}

static void take_pushes(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	expect(f, PACK, 0);
	expect(f, PACK, 1);
	/* No slot is free before both credits are there. */
	ck_assert(!fake_next(f, &ev, 50));
	credit(f, W, 1);
	ck_assert(!fake_next(f, &ev, 50));
	credit(f, B, 1);
	expect(f, PACK, 0);
	credit(f, W, 3);
	credit(f, B, 3);
	expect(f, W, 1); /* alone */
	expect(f, W, 0); /* so the two are not in step */
	expect(f, B, 1);
	credit(f, W, 5);
	credit(f, B, 4);
	expect(f, B, 0); /* alone: now they are again */
	credit(f, B, 5);
	expect(f, PACK, 1);
	fake_expect_closed(f);
}

START_TEST(packs_wait_for_credit)
{
	struct rig r = {.f = {.slots = 2}};

	up(&r, WIRE_ASYNC, take_pushes);
	for (int i = 0; i < 3; i++)
		ck_ok(push_both(&r));
	ck_ok(gs_wait_applied(r.t, r.w));
	ck_ok(gs_push(r.t, r.w, w_grad));
	ck_ok(push_both(&r));
	ck_ok(gs_wait_applied(r.t, r.w));
	ck_ok(gs_push(r.t, r.b, b_grad));
	ck_ok(gs_wait_applied(r.t, r.b));
	ck_ok(push_both(&r));
	rig_down(&r);
}
END_TEST

static void serve(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

START_TEST(many_pushes)
{
	struct rig r = {.f = {.slots = 1 + (uint32_t)_i}};
	float w[W_ELEMS], b[B_ELEMS];
	uint64_t n;

	up(&r, WIRE_ASYNC, serve);
	for (int i = 0; i < 50; i++) {
		ck_ok(push_both(&r));
		if (i % 7 == 3)
			ck_ok(gs_push(r.t, r.w, w_grad));
	}
	ck_ok(gs_wait_applied(r.t, r.w));
	ck_ok(gs_wait_applied(r.t, r.b));
	ck_ok(gs_pull(r.t, r.w, GS_CONSISTENT, w));
	ck_ok(gs_pull(r.t, r.b, GS_CONSISTENT, b));
	ck_assert_float_eq(w[3], -3 * 57);
	ck_assert_float_eq(b[0], -100 * 50);
	ck_ok(gs_pushes(r.t, r.w, &n));
	ck_assert_uint_eq(n, 57);
	rig_down(&r);
}
END_TEST

Suite *push_many_suite(void)
{
	Suite *s = suite_create("trainer: push_many");
	TCase *c = tcase_create("push_many");

	tcase_add_test(c, a_pack_goes_as_one);
	tcase_add_test(c, a_bad_list);
	tcase_add_test(c, what_is_in_is_left_out);
	tcase_add_test(c, heads_go_along);
	tcase_add_test(c, packs_wait_for_credit);
	tcase_add_loop_test(c, many_pushes, 0, 3);
	suite_add_tcase(s, c);
	return s;
}

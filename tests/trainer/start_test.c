/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_declare and gs_start: descriptions, grants, initial weights; and a server that dies, keeps
 * silent or refuses at each stage of the conversation.
 */
#include "fake.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

/* ---- descriptions ---------------------------------------------------------------------------- */

static const char *const long_name =
    "0123456789012345678901234567890123456789012345678901234567890123"
    "0123456789012345678901234567890123456789012345678901234567890123";

#define SPOIL(name, ...)                          \
	static void name(struct gs_param_desc *d) \
	{                                         \
		__VA_ARGS__;                      \
	}

SPOIL(bad_size, d->size = 1)
SPOIL(no_name, d->name = NULL)
SPOIL(empty_name, d->name = "")
SPOIL(name_too_long, d->name = long_name)
SPOIL(name_with_newline, d->name = "a\nb")
SPOIL(no_dims, d->ndim = 0)
SPOIL(many_dims, d->ndim = GS_MAX_DIMS + 1)
SPOIL(zero_dim, d->shape[0] = 0)
SPOIL(too_large, d->shape[0] = UINT64_C(1) << 40)
SPOIL(no_optimizer, d->optimizer = NULL)
SPOIL(empty_optimizer, d->optimizer = "")
SPOIL(long_optimizer, d->optimizer = long_name)
SPOIL(many_settings, for (int i = 0; i <= GS_MAX_SETTINGS; i++) gs_setting(d, "lr", 1))
SPOIL(no_setting_name, gs_setting(d, NULL, 1))
SPOIL(long_setting_name, gs_setting(d, long_name, 1))
SPOIL(nan_setting, gs_setting(d, "lr", NAN))
SPOIL(bad_init, d->init = (enum gs_init)17)
SPOIL(no_data, d->init = GS_INIT_DATA)
SPOIL(bad_range, d->init = GS_INIT_UNIFORM; d->init_a = 1)
SPOIL(bad_deviation, d->init = GS_INIT_NORMAL; d->init_b = -1)
SPOIL(metadata, d->name = "__metadata__")
SPOIL(inf_init, d->init_a = INFINITY)

static const struct {
	void (*spoil)(struct gs_param_desc *d);
	const char *text;
} bad_descs[] = {
    {bad_size, "size is 1"},
    {no_name, "name: NULL"},
    {empty_name, "name: 0 bytes"},
    {name_too_long, "name: 128 bytes; the limit is 127"},
    {name_with_newline, "name: byte 1 is 0x0a"},
    {no_dims, "ndim: 0"},
    {many_dims, "ndim: 9"},
    {zero_dim, "dim[0]: 0"},
    {too_large, "fewer than 2^40"},
    {no_optimizer, "optimizer: NULL"},
    {empty_optimizer, "rule: 0 bytes"},
    {long_optimizer, "optimizer: 128 bytes; the limit is 23"},
    {many_settings, "settings: 17 of them; the limit is 16"},
    {no_setting_name, "setting 0: name: NULL"},
    {long_setting_name, "setting 0: name: 128 bytes"},
    {nan_setting, "lr: nan"},
    {bad_init, "init: 17"},
    {no_data, "init_data: NULL"},
    {bad_range, "init_b: 0; uniform needs at least init_a = 1"},
    {bad_deviation, "init_b: -1"},
    {inf_init, "init_a: inf"},
    {metadata, "name: __metadata__ can't be one: safetensors"},
};

static void welcome_only(struct fake *f)
{
	fake_up_to(f, STAGE_WELCOMED);
	fake_expect_closed(f);
}

START_TEST(misused_descriptions)
{
	struct rig r = {.f = {.mode = 0}};
	gs_param *p;

	fake_start(&r.f, welcome_only);
	ck_ok(rig_connect(&r));
	for (size_t i = 0; i < sizeof(bad_descs) / sizeof(bad_descs[0]); i++) {
		struct gs_param_desc d = GS_PARAM_DESC_INIT;

		p = (gs_param *)&d;
		d.name = "w";
		d.ndim = 1;
		d.shape[0] = 4;
		bad_descs[i].spoil(&d);
		ck_fails(gs_declare(r.t, &d, &p), EINVAL, bad_descs[i].text);
		ck_assert_ptr_eq(p, &d);
	}
	/* None of it is left behind. */
	ck_fails(gs_start(r.t), EINVAL, "no parameters");
	rig_declare(&r, NULL);
	ck_assert_uint_eq(gs_param_elems(r.w), 70);
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	d.name = "w";
	d.ndim = 1;
	d.shape[0] = 4;
	ck_fails(gs_declare(r.t, &d, &p), EEXIST, "parameter \"w\": it was declared already");
	ck_fails(gs_declare(r.t, NULL, &p), EINVAL, "NULL");
	ck_fails(gs_declare(r.t, &d, NULL), EINVAL, "NULL");
	rig_down(&r);
}
END_TEST

START_TEST(nothing_works_before_the_start)
{
	struct rig r = {.f = {.mode = 0}};
	float x[W_ELEMS], *dst = x;
	const float *view;
	uint64_t version;

	fake_start(&r.f, welcome_only);
	ck_ok(rig_connect(&r));
	rig_declare(&r, NULL);
	ck_fails(gs_push(r.t, r.w, x), EINVAL, "gs_start was not called");
	ck_fails(gs_grad_buffer(r.t, r.w, (void **)&dst), EINVAL, "gs_start was not called");
	ck_fails(gs_wait_applied(r.t, r.w), EINVAL, "gs_start was not called");
	ck_fails(gs_step_post(r.t), EINVAL, "gs_start was not called");
	ck_fails(gs_step_wait(r.t), EINVAL, "gs_start was not called");
	ck_fails(gs_step_end(r.t), EINVAL, "gs_start was not called");
	ck_fails(gs_pull(r.t, r.w, GS_RELAXED, x), EINVAL, "gs_start was not called");
	ck_fails(gs_weights_view(r.t, r.w, (const void **)&view), EINVAL,
		 "gs_start was not called");
	ck_fails(gs_block_version(r.t, r.w, 0, &version), EINVAL, "gs_start was not called");
	rig_down(&r);
}
END_TEST

/* ---- the good way ---------------------------------------------------------------------------- */

static void serve(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

START_TEST(a_start)
{
	struct rig r = {.f = {.mode = 0}};
	struct gs_info info;
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;

	rig_up(&r, WIRE_SYNC, serve);
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.step, 1);
	ck_assert_uint_eq(info.blocks, BLOCKS);
	ck_assert_uint_eq(info.slots, 2);
	ck_assert_str_eq(r.f.param[0].name, "w");
	ck_assert_uint_eq(r.f.param[0].dim[1], 7);
	ck_assert_str_eq(r.f.param[0].rule, "sgd");
	ck_assert_str_eq(r.f.param[0].setting[0].name, "lr");
	ck_assert_int_eq(r.f.param[0].init, WIRE_INIT_CONSTANT);
	ck_fails(gs_start(r.t), EBUSY, "gs_start was called already");
	d.name = "z";
	d.ndim = 1;
	d.shape[0] = 1;
	ck_fails(gs_declare(r.t, &d, &p), EBUSY, "gs_start was called already");
	rig_down(&r);
}
END_TEST

START_TEST(more_parameters_than_fit_a_message)
{
	struct rig r = {.f = {.mode = WIRE_ASYNC}};
	gs_param *p[11];
	float x[11];

	fake_start(&r.f, serve);
	ck_ok(rig_connect(&r));
	for (uint64_t i = 0; i < 11; i++) {
		struct gs_param_desc d = GS_PARAM_DESC_INIT;
		char name[16];

		snprintf(name, sizeof(name), "p%d", (int)i);
		d.name = name;
		d.ndim = 1;
		d.shape[0] = i + 1;
		ck_ok(gs_declare(r.t, &d, &p[i]));
	}
	ck_ok(gs_start(r.t));
	for (int i = 0; i < 11; i++) {
		for (int k = 0; k <= i; k++)
			x[k] = (float)-(i + k);
		ck_ok(gs_push(r.t, p[i], x));
		ck_ok(gs_wait_applied(r.t, p[i]));
		ck_ok(gs_pull(r.t, p[i], GS_RELAXED, x));
		for (int k = 0; k <= i; k++)
			ck_assert_float_eq(x[k], (float)(i + k));
	}
	rig_down(&r);
}
END_TEST

/* ---- initial weights ------------------------------------------------------------------------- */

static void take_init(struct fake *f)
{
	struct wire_msg ready = {.kind = WIRE_READY, .ready = {.init = true}};
	struct tp_event ev;

	fake_up_to(f, STAGE_ATTACHED);
	fake_send(f, &ready);
	f->stage_done = STAGE_STARTED;
	for (uint32_t b = 0; b < W_BLOCKS; b++) {
		struct imm imm = fake_expect_imm(f, IMM_INIT);

		ck_assert_uint_eq(imm.block, b);
		ck_assert_uint_eq(imm.slot, 0);
		ck_assert_int_eq(imm.notify, b == W_BLOCKS - 1);
		memcpy(fake_weights(f, b), fake_slot(f, b, 0), 4 * fake_block_elems(f, b));
	}
	/* Nothing more before the credits; and each of them is waited for. */
	ck_assert(!fake_next(f, &ev, 50));
	fake_credit(f, 0, 1, true);
	fake_credit(f, 2, 1, true);
	ck_assert(!fake_next(f, &ev, 50));
	fake_credit(f, 1, 1, true);
	fake_expect(f, WIRE_INIT_DONE);
	ck_assert(!fake_next(f, &ev, 50));
	fake_up_to(f, STAGE_STARTED);
	/* The initial weights are taken: gradients begin with slot 0, of whatever parameter. */
	struct imm imm = fake_expect_imm(f, IMM_GRAD);
	ck_assert_uint_eq(imm.block, 0);
	ck_assert_uint_eq(imm.slot, 0);
	fake_expect_closed(f);
}

static void initial_weights(enum wire_mode mode)
{
	struct rig r = {.f = {.mode = mode}};
	float init[W_ELEMS], got[W_ELEMS];

	for (int i = 0; i < W_ELEMS; i++)
		init[i] = (float)i + 0.5f;
	fake_start(&r.f, take_init);
	ck_ok(rig_connect(&r));
	rig_declare(&r, init);
	ck_ok(gs_start(r.t));
	ck_ok(gs_pull(r.t, r.w, GS_RELAXED, got));
	ck_assert_mem_eq(got, init, sizeof(init));
	ck_ok(gs_push(r.t, r.w, init));
	usleep(20000);
	rig_down(&r);
}

START_TEST(initial_weights_async)
{
	initial_weights(WIRE_ASYNC);
}
END_TEST

START_TEST(initial_weights_sync)
{
	initial_weights(WIRE_SYNC);
}
END_TEST

/* ---- grants ---------------------------------------------------------------------------------- */

static void grant_overlap(struct wire_grant *g)
{
	g->place[1].weights_off = g->place[0].weights_off;
}

static void grant_outside(struct wire_grant *g)
{
	g->place[1].slots_off = UINT64_C(1) << 40;
}

static void grant_elems(struct wire_grant *g)
{
	g->place[0].elems = 1;
}

static void grant_blocks(struct wire_grant *g)
{
	g->blocks = IMM_MAX_BLOCKS;
}

static void grant_too_many(struct wire_grant *g)
{
	g->n = 3;
}

static void grant_too_few(struct wire_grant *g)
{
	g->n = 1;
}

static void grant_wrap(struct wire_grant *g)
{
	g->weights.addr = UINT64_MAX;
}

static const struct {
	void (*spoil)(struct wire_grant *g);
	const char *text;
} bad_grants[] = {
    {grant_overlap, "what is before it ends at"},
    {grant_outside, "slots_off: 1099511627776"},
    {grant_elems, "elems: 1; 70 were declared"},
    {grant_blocks, "what is before it ends at 268435456"},
    {grant_too_many, "places for 3 parameters; 2 were declared"},
    {grant_too_few, "1 places; 2 parameters were declared"},
    {grant_wrap, "wraps around"},
};

static void grant_badly(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_GRANT};

	fake_up_to(f, STAGE_DECLARED);
	msg.grant = fake_lay_out(f);
	msg.grant.n = f->n;
	memcpy(msg.grant.place, f->place, f->n * sizeof(f->place[0]));
	bad_grants[*(int *)f->arg].spoil(&msg.grant);
	if (msg.grant.n > WIRE_PARAMS_MAX) { /* more than a message takes */
		struct wire_msg more = msg;

		more.grant.last = false;
		more.grant.n = WIRE_PARAMS_MAX;
		fake_send(f, &more);
		msg.grant.n -= WIRE_PARAMS_MAX;
	}
	fake_send(f, &msg);
	fake_expect(f, WIRE_ERROR);
	ck_assert_int_eq(f->msg.error.code, WIRE_E_PROTOCOL);
	ck_assert(strstr(f->msg.error.text, bad_grants[*(int *)f->arg].text));
	fake_expect_closed(f);
}

START_TEST(a_hostile_grant)
{
	int which = _i;
	struct rig r = {.f = {.arg = &which}};

	fake_start(&r.f, grant_badly);
	ck_ok(rig_connect(&r));
	rig_declare(&r, NULL);
	ck_fails(gs_start(r.t), EPROTO, bad_grants[_i].text);
	/* Final. */
	ck_fails(gs_start(r.t), EPROTO, bad_grants[_i].text);
	ck_fails(gs_leave(r.t), EPROTO, bad_grants[_i].text);
	rig_down(&r);
}
END_TEST

static void grant_a_wrong_key(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_GRANT};

	fake_up_to(f, STAGE_DECLARED);
	msg.grant = fake_lay_out(f);
	msg.grant.n = f->n;
	memcpy(msg.grant.place, f->place, f->n * sizeof(f->place[0]));
	msg.grant.slot_mem.key = msg.grant.weights.key; /* sealed against writing */
	fake_send(f, &msg);
	fake_expect_closed(f);
}

START_TEST(memory_that_cannot_be_reached)
{
	struct rig r = {.f = {.mode = 0}};

	fake_start(&r.f, grant_a_wrong_key);
	ck_ok(rig_connect(&r));
	rig_declare(&r, NULL);
	int rc = gs_start(r.t);
	ck_assert_msg(rc < 0 && strstr(gs_last_error(), "the server's gradient slots"), "%d: %s",
		      rc, gs_last_error());
	ck_assert_int_eq(gs_start(r.t), rc);
	rig_down(&r);
}
END_TEST

/* ---- the server's end, at each stage --------------------------------------------------------- */

/* What the trainer gets as far as, when the server goes no further than `last`. */
static int get_through(struct rig *r, struct gs_options *opt)
{
	int rc = gs_connect(opt, &r->t);

	if (rc < 0) {
		r->t = NULL;
		return rc;
	}
	rc = rig_try_declare(r, NULL);
	return rc < 0 ? rc : gs_start(r->t);
}

static void die_after(struct fake *f)
{
	fake_up_to(f, *(enum stage *)f->arg);
	fake_close(f);
}

START_TEST(death_at_a_stage)
{
	enum stage last = (enum stage)_i;
	struct rig r = {.f = {.arg = &last}};
	uint64_t begin = clock_ns();

	fake_start(&r.f, die_after);
	struct gs_options opt = rig_options(&r);
	ck_fails(get_through(&r, &opt), ECONNRESET, "the server is gone");
	ck_assert_uint_lt(clock_ns() - begin, 4 * NS_PER_S);
	if (r.t) {
		ck_fails(gs_start(r.t), ECONNRESET, "the server is gone");
		ck_fails(gs_push(r.t, r.w, (float[W_ELEMS]){0}), ECONNRESET, "is gone");
		ck_fails(gs_leave(r.t), ECONNRESET, "is gone");
	}
	rig_down(&r);
}
END_TEST

static void refuse_after(struct fake *f)
{
	fake_up_to(f, *(enum stage *)f->arg);
	fake_send_error(f, WIRE_E_SHUTDOWN, "the server is being stopped");
	fake_close(f);
}

START_TEST(shutdown_at_a_stage)
{
	enum stage last = (enum stage)_i;
	struct rig r = {.f = {.arg = &last}};

	fake_start(&r.f, refuse_after);
	struct gs_options opt = rig_options(&r);
	ck_fails(get_through(&r, &opt), ESHUTDOWN, "the server is being stopped");
	if (r.t)
		ck_fails(gs_step_end(r.t), ESHUTDOWN, "the server is being stopped");
	rig_down(&r);
}
END_TEST

static void silent_after(struct fake *f)
{
	fake_up_to(f, *(enum stage *)f->arg);
	fake_expect_closed(f);
}

START_TEST(silence_at_a_stage)
{
	static const char *const for_what[] = {
	    [STAGE_ACCEPTED] = "welcome",
	    [STAGE_HELLO] = "welcome",
	    [STAGE_WELCOMED] = "to grant",
	    [STAGE_DECLARED] = "to grant",
	    [STAGE_GRANTED] = "get ready",
	    [STAGE_ATTACHED] = "get ready",
	    [STAGE_READY] = "for all 2 trainers to come",
	};
	enum stage last = (enum stage)_i;
	struct rig r = {.f = {.arg = &last, .mode = WIRE_SYNC}};
	uint64_t begin = clock_ns();

	fake_start(&r.f, silent_after);
	struct gs_options opt = rig_options(&r);
	opt.timeout_ms = 1000;
	opt.start_timeout_ms = 100;
	ck_fails(get_through(&r, &opt), ETIMEDOUT, for_what[_i]);
	ck_assert_uint_lt(clock_ns() - begin, 5 * NS_PER_S);
	rig_down(&r);
}
END_TEST

/* Ssp mode begins when all have come, as sync mode does; async mode waits for weights alone. */
START_TEST(who_is_waited_for)
{
	static const struct {
		enum wire_mode mode;
		const char *text;
	} cases[] = {
	    {WIRE_SYNC, "for all 2 trainers to come, and for initial weights"},
	    {WIRE_SSP, "for all 2 trainers to come, and for initial weights"},
	    {WIRE_ASYNC, "for the start: for initial weights"},
	};
	enum stage last = STAGE_READY;
	struct rig r = {.f = {.arg = &last, .mode = cases[_i].mode}};

	fake_start(&r.f, silent_after);
	struct gs_options opt = rig_options(&r);
	opt.start_timeout_ms = 100;
	ck_fails(get_through(&r, &opt), ETIMEDOUT, cases[_i].text);
	rig_down(&r);
}
END_TEST

/* A server that is killed says nothing at all. */
START_TEST(a_killed_server)
{
	struct rig r = {.f = {.mode = WIRE_SYNC}};
	float w[W_ELEMS];

	snprintf(r.f.uri, sizeof(r.f.uri), "shm:gs-killed-%d", (int)getpid());
	pid_t pid = fork();
	if (pid == 0) {
		fake_start(&r.f, serve);
		for (;;)
			pause();
	}
	ck_ok(rig_connect(&r));
	rig_declare(&r, NULL);
	ck_ok(gs_start(r.t));
	ck_ok(gs_pull(r.t, r.w, GS_RELAXED, w));
	ck_ok(gs_step_end(r.t));
	kill(pid, SIGSTOP);
	ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_step_post(r.t));
	uint64_t begin = clock_ns();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_fails(gs_step_wait(r.t), ECONNRESET, "the server is gone");
	ck_assert_uint_lt(clock_ns() - begin, 2 * NS_PER_S);
	ck_fails(gs_pull(r.t, r.w, GS_RELAXED, w), ECONNRESET, "the server is gone");
	gs_close(r.t);
}
END_TEST

Suite *start_suite(void)
{
	Suite *s = suite_create("trainer: start");
	TCase *c = tcase_create("start"), *e = tcase_create("the server's end");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, misused_descriptions);
	tcase_add_test(c, nothing_works_before_the_start);
	tcase_add_test(c, a_start);
	tcase_add_test(c, more_parameters_than_fit_a_message);
	tcase_add_test(c, initial_weights_async);
	tcase_add_test(c, initial_weights_sync);
	tcase_add_loop_test(c, a_hostile_grant, 0, sizeof(bad_grants) / sizeof(bad_grants[0]));
	tcase_add_test(c, memory_that_cannot_be_reached);
	suite_add_tcase(s, c);
	tcase_set_timeout(e, 60);
	tcase_add_loop_test(e, death_at_a_stage, STAGE_ACCEPTED, STAGE_STARTED);
	tcase_add_loop_test(e, shutdown_at_a_stage, STAGE_ACCEPTED, STAGE_STARTED);
	tcase_add_loop_test(e, silence_at_a_stage, STAGE_ACCEPTED, STAGE_STARTED);
	tcase_add_loop_test(e, who_is_waited_for, 0, 3);
	tcase_add_test(e, a_killed_server);
	suite_add_tcase(s, e);
	return s;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_connect: options, retries, refusals.
 */
#include "fake.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

/* ---- options --------------------------------------------------------------------------------- */

static void set_size(struct gs_options *o)
{
	o->size = 8;
}

static void set_no_uri(struct gs_options *o)
{
	o->uri = NULL;
}

static void set_bad_uri(struct gs_options *o)
{
	o->uri = "http://localhost";
}

static void set_rank(struct gs_options *o)
{
	o->rank = -2;
}

static void set_timeout(struct gs_options *o)
{
	o->timeout_ms = 0;
}

static void set_spin(struct gs_options *o)
{
	o->spin_us = -3;
}

static void set_long_name(struct gs_options *o)
{
	static char name[200];

	memset(name, 'n', sizeof(name) - 1);
	o->name = name;
}

static const struct {
	void (*set)(struct gs_options *o);
	const char *text;
} misuses[] = {
    {set_size, "size is 8"},
    {set_no_uri, "no uri"},
    {set_bad_uri, "http"},
    {set_rank, "rank -2"},
    {set_timeout, "timeout_ms 0"},
    {set_spin, "spin_us -3"},
    {set_long_name, "199 bytes; the limit is 127"},
};

START_TEST(misused_options)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	gs_trainer *t = (gs_trainer *)&opt;

	opt.uri = "shm:nobody-there";
	opt.timeout_ms = 100;
	misuses[_i].set(&opt);
	ck_fails(gs_connect(&opt, &t), EINVAL, misuses[_i].text);
	ck_assert_ptr_eq(t, &opt); /* untouched */
}
END_TEST

START_TEST(nulls)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	gs_trainer *t;

	ck_fails(gs_connect(NULL, &t), EINVAL, "NULL");
	ck_fails(gs_connect(&opt, NULL), EINVAL, "NULL");
	ck_fails(gs_start(NULL), EINVAL, "no trainer");
	ck_fails(gs_leave(NULL), EINVAL, "no trainer");
	gs_close(NULL);
	ck_assert_str_eq(gs_version_string(), "0.1.0");
}
END_TEST

/* ---- nobody there, or later ------------------------------------------------------------------ */

START_TEST(nobody_comes)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	gs_trainer *t;
	uint64_t begin = clock_ns();

	opt.uri = "shm:gs-nobody-there";
	opt.timeout_ms = 300;
	ck_fails(gs_connect(&opt, &t), ECONNREFUSED, "within 300 ms");
	ck_assert_uint_lt(clock_ns() - begin, 3 * NS_PER_S);
}
END_TEST

static void *connect_late(void *arg)
{
	struct rig *r = arg;
	int rc = rig_connect(r);

	ck_assert_msg(rc == 0, "%s", gs_last_error());
	return NULL;
}

static void welcome_and_wait(struct fake *f)
{
	fake_up_to(f, STAGE_WELCOMED);
	fake_expect_closed(f);
}

START_TEST(the_server_comes_later)
{
	struct rig r = {.f = {.mode = 0}};
	pthread_t thread;

	snprintf(r.f.uri, sizeof(r.f.uri), "shm:gs-late-%d", (int)getpid());
	pthread_create(&thread, NULL, connect_late, &r);
	usleep(150000);
	fake_start(&r.f, welcome_and_wait);
	pthread_join(thread, NULL);
	rig_down(&r);
}
END_TEST

/* ---- hello and welcome ----------------------------------------------------------------------- */

static void check_hello(struct fake *f)
{
	struct wire_msg w = {.kind = WIRE_WELCOME, .welcome = {WIRE_VERSION, 3, 5, WIRE_SYNC}};

	fake_up_to(f, STAGE_HELLO);
	ck_assert_uint_eq(f->msg.hello.version, WIRE_VERSION);
	ck_assert_int_eq(f->msg.hello.rank, 3);
	ck_assert_str_eq(f->msg.hello.name, "me");
	fake_send(f, &w);
	fake_expect_closed(f);
}

START_TEST(what_is_said)
{
	struct rig r = {.f = {.mode = 0}};
	struct gs_info info;

	fake_start(&r.f, check_hello);
	struct gs_options opt = rig_options(&r);
	opt.rank = 3;
	opt.name = "me";
	ck_ok(gs_connect(&opt, &r.t));
	gs_get_info(r.t, &info);
	ck_assert_uint_eq(info.rank, 3);
	ck_assert_uint_eq(info.trainers, 5);
	ck_assert_int_eq(info.mode, GS_SYNC);
	ck_assert_uint_eq(info.step, 0);
	ck_assert_uint_eq(info.blocks, 0);
	ck_assert_uint_eq(info.slots, 0);
	ck_assert_str_eq(info.transport, "shm");
	ck_assert_int_eq(info.load_store, 1);
	rig_down(&r);
}
END_TEST

static void name_of_the_process(struct fake *f)
{
	fake_up_to(f, STAGE_HELLO);
	ck_assert_str_eq(f->msg.hello.name, program_invocation_short_name);
	ck_assert_int_eq(f->msg.hello.rank, -1);
	fake_up_to(f, STAGE_WELCOMED);
	fake_expect_closed(f);
}

START_TEST(the_default_name)
{
	struct rig r = {.f = {.mode = 0}};

	fake_start(&r.f, name_of_the_process);
	ck_ok(rig_connect(&r));
	rig_down(&r);
}
END_TEST

static const struct {
	enum wire_error_code code;
	int err;
} refusals[] = {
    {WIRE_E_VERSION, EPROTONOSUPPORT},
    {WIRE_E_RANK, EEXIST},
    {WIRE_E_RANGE, ERANGE},
    {WIRE_E_FULL, EUSERS},
    {WIRE_E_SHUTDOWN, ESHUTDOWN},
    {WIRE_E_PROTOCOL, EPROTO},
    {WIRE_E_MEMORY, ENOMEM},
    {WIRE_E_MISMATCH, EINVAL},
    {WIRE_E_INTERNAL, EIO},
};

static void refuse(struct fake *f)
{
	fake_up_to(f, STAGE_HELLO);
	fake_send_error(f, *(const enum wire_error_code *)f->arg, "because of 7 of 5");
	fake_close(f);
}

START_TEST(refused)
{
	struct rig r = {.f = {.arg = (void *)(uintptr_t)&refusals[_i].code}};
	uint64_t begin = clock_ns();

	fake_start(&r.f, refuse);
	ck_fails(rig_connect(&r), refusals[_i].err, "the server says: because of 7 of 5");
	/* Not tried again: time doesn't heal it. */
	ck_assert_uint_lt(clock_ns() - begin, 3 * NS_PER_S);
	fake_join(&r.f);
}
END_TEST

static const struct {
	struct wire_welcome welcome;
	const char *text;
} bad_welcomes[] = {
    {{.version = WIRE_VERSION + 1, .rank = 1, .trainers = 2, .mode = WIRE_SYNC},
     "version 4 to our 3"},
    {{.version = WIRE_VERSION, .rank = 2, .trainers = 2, .mode = WIRE_SYNC},
     "rank 2 of 2 trainers"},
    {{.version = WIRE_VERSION, .rank = 0, .trainers = 0, .mode = WIRE_SYNC},
     "rank 0 of 0 trainers"},
    {{.version = WIRE_VERSION, .rank = 0, .trainers = 2, .mode = WIRE_SYNC},
     "rank 0; 1 was asked for"},
};

static void welcome_badly(struct fake *f)
{
	struct wire_msg w = {.kind = WIRE_WELCOME};

	w.welcome = *(const struct wire_welcome *)f->arg;
	fake_up_to(f, STAGE_HELLO);
	fake_send(f, &w);
	fake_expect(f, WIRE_ERROR);
	ck_assert_int_eq(f->msg.error.code, WIRE_E_PROTOCOL);
	fake_expect_closed(f);
}

START_TEST(a_bad_welcome)
{
	struct rig r = {.f = {.arg = (void *)(uintptr_t)&bad_welcomes[_i].welcome}};

	fake_start(&r.f, welcome_badly);
	struct gs_options opt = rig_options(&r);
	opt.rank = 1;
	ck_fails(gs_connect(&opt, &r.t), EPROTO, bad_welcomes[_i].text);
	fake_join(&r.f);
}
END_TEST

static void say_nothing(struct fake *f)
{
	fake_up_to(f, STAGE_HELLO);
	fake_expect_closed(f);
}

START_TEST(silence)
{
	struct rig r = {.f = {.mode = 0}};
	uint64_t begin = clock_ns();

	fake_start(&r.f, say_nothing);
	struct gs_options opt = rig_options(&r);
	opt.timeout_ms = 1000;
	ck_fails(gs_connect(&opt, &r.t), ETIMEDOUT, "for the server's welcome");
	ck_assert_uint_lt(clock_ns() - begin, 3 * NS_PER_S);
	fake_join(&r.f);
}
END_TEST

static void hang_up(struct fake *f)
{
	fake_up_to(f, STAGE_HELLO);
	fake_close(f);
}

START_TEST(hung_up_on)
{
	struct rig r = {.f = {.mode = 0}};

	fake_start(&r.f, hang_up);
	ck_fails(rig_connect(&r), ECONNRESET, "the server is gone");
	fake_join(&r.f);
}
END_TEST

Suite *connect_suite(void)
{
	Suite *s = suite_create("trainer: connect");
	TCase *c = tcase_create("connect");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, misused_options, 0, sizeof(misuses) / sizeof(misuses[0]));
	tcase_add_test(c, nulls);
	tcase_add_test(c, nobody_comes);
	tcase_add_test(c, the_server_comes_later);
	tcase_add_test(c, what_is_said);
	tcase_add_test(c, the_default_name);
	tcase_add_loop_test(c, refused, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_loop_test(c, a_bad_welcome, 0, sizeof(bad_welcomes) / sizeof(bad_welcomes[0]));
	tcase_add_test(c, silence);
	tcase_add_test(c, hung_up_on);
	suite_add_tcase(s, c);
	return s;
}

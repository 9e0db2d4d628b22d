/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_reconnect: what may come of the talk, a server that refuses, that is gone again, or is not
 * there.
 */
#include "keeper.h"

#include <unistd.h>

#include "base/clock.h"
#include "trainer/backoff.h"

/* It is gone again at a stage of the talk, twice. */
START_TEST(lost_in_the_talk)
{
	struct keeper k;

	keeper_init(&k, WIRE_SYNC, 2);
	k.end_after[0] = 7;
	k.end_at[1] = _i;
	k.end_at[2] = STAGE_STARTED - _i;
	keeper_up(&k);
	keeper_train(&k);
	ck_assert_int_ge(k.returns, 1);
	ck_assert_int_le(k.returns, 2); /* where it went as soon as it had said start */
	keeper_down(&k);
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

START_TEST(refused)
{
	struct rig r = {.f = {.arg = (void *)(uintptr_t)&refusals[_i].code}};
	float w[W_ELEMS];
	int rewound = 7;

	rig_up_for(&r, WIRE_ASYNC, refuse, 1000);
	rig_be_lost(&r);
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

START_TEST(nobody_there)
{
	struct rig r = {.f = {.mode = 0}};
	uint64_t begin, shortest;
	float w[W_ELEMS];
	int rewound = 7;

	rig_up_for(&r, WIRE_ASYNC, fake_end_for_good, 400);
	rig_be_lost(&r);
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

	rig_up_for(&r, WIRE_ASYNC, slam, 1200);
	rig_be_lost(&r);
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

	rig_up_for(&r, WIRE_ASYNC, slam_later, 5000);
	begin = clock_ns();
	for (int i = 0; i < 9; i++) {
		rig_be_lost(&r);
		ck_ok(gs_reconnect(r.t, &rewound));
	}
	/* Half of 5 + 10 + … + 320 + 500 + 500 ms. */
	ck_assert_uint_ge(clock_ns() - begin, 800 * NS_PER_MS);
	atomic_store(&r.f.done, true);
	rig_down(&r);
}
END_TEST

TCase *reconnect_talk_case(void)
{
	TCase *t = tcase_create("the talk");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, lost_in_the_talk, STAGE_ACCEPTED, STAGE_STARTED + 1);
	tcase_add_loop_test(t, refused, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(t, pauses);
	tcase_add_test(t, nobody_there);
	tcase_add_test(t, slammed);
	tcase_add_test(t, slammed_later);
	return t;
}

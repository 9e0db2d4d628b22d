/* SPDX-License-Identifier: Apache-2.0
 *
 * The vigil (server/vigil.h): whom is waited for, and for how long.
 */
#include "server/vigil.h"

#include "suite.h"

enum { WAIT = 1000, LATE = 300 };

static struct vigil vigil_of(uint32_t ranks)
{
	struct vigil v;

	ck_assert_int_eq(vigil_init(&v, ranks, WAIT, LATE), 0);
	return v;
}

START_TEST(a_lost_rank_has_its_time)
{
	struct vigil v = vigil_of(3);
	uint32_t rank = 9;

	ck_assert(!vigil_expire(&v, 1 << 30, &rank));
	vigil_lose(&v, 1, 100);
	ck_assert(vigil_waits(&v, 1) && !vigil_waits(&v, 0) && !vigil_waits(&v, 3));
	ck_assert_uint_eq(v.waited, 1);
	ck_assert_uint_eq(vigil_left(&v, 1, 100), WAIT);
	ck_assert_uint_eq(vigil_left(&v, 1, 100 + WAIT), 0);
	ck_assert(!vigil_expire(&v, 100 + WAIT - 1, &rank));
	ck_assert_uint_eq(rank, 9);
	ck_assert(vigil_expire(&v, 100 + WAIT, &rank));
	ck_assert_uint_eq(rank, 1);
	/* Once. */
	ck_assert(!vigil_waits(&v, 1) && v.waited == 0);
	ck_assert(!vigil_expire(&v, 1 << 30, &rank));
	vigil_fini(&v);
}
END_TEST

START_TEST(several_are_lost)
{
	struct vigil v = vigil_of(4);
	uint32_t rank;

	vigil_lose(&v, 3, 100);
	vigil_lose(&v, 0, 400);
	vigil_lose(&v, 2, 100);
	ck_assert_uint_eq(v.waited, 3);
	ck_assert(vigil_expire(&v, 100 + WAIT, &rank) && rank == 2);
	ck_assert(vigil_expire(&v, 100 + WAIT, &rank) && rank == 3);
	ck_assert(!vigil_expire(&v, 100 + WAIT, &rank));
	vigil_settle(&v, 0);
	ck_assert_uint_eq(v.waited, 0);
	vigil_settle(&v, 0); /* a repeat is harmless */
	ck_assert_uint_eq(v.waited, 0);
	vigil_fini(&v);
}
END_TEST

/* It was told that it has kept its place. */
START_TEST(who_is_on_its_way_is_not_given_up)
{
	struct vigil v = vigil_of(2);
	uint32_t rank;

	vigil_hold(&v, 1, true); /* not lost: nothing to hold */
	vigil_lose(&v, 1, 100);
	vigil_hold(&v, 1, true);
	ck_assert(!vigil_expire(&v, 100 + 5 * WAIT, &rank));
	ck_assert(vigil_waits(&v, 1));
	vigil_hold(&v, 1, false); /* it went again */
	ck_assert(vigil_expire(&v, 100 + 5 * WAIT, &rank));
	/* Lost anew: all its time, and nobody holds it. */
	vigil_lose(&v, 1, 9000);
	vigil_hold(&v, 1, true);
	vigil_settle(&v, 1);
	vigil_lose(&v, 1, 20000);
	ck_assert(!vigil_expire(&v, 20000 + WAIT - 1, &rank));
	ck_assert(vigil_expire(&v, 20000 + WAIT, &rank));
	vigil_fini(&v);
}
END_TEST

START_TEST(stragglers_are_told_of_once)
{
	struct vigil v = vigil_of(2);

	ck_assert(!vigil_straggles(&v, 0, 1 << 30)); /* no barrier came */
	ck_assert(!vigil_straggles(&v, 500, 500 + LATE - 1));
	ck_assert(vigil_straggles(&v, 500, 500 + LATE));
	ck_assert(!vigil_straggles(&v, 500, 500 + 10 * LATE));
	/* Somebody came back to the step; or it is another. */
	ck_assert(!vigil_straggles(&v, 2000, 2000 + LATE - 1));
	ck_assert(vigil_straggles(&v, 2000, 2000 + 2 * LATE));
	v.straggler_ns = 0;
	ck_assert(!vigil_straggles(&v, 9000, 1 << 30));
	vigil_fini(&v);
}
END_TEST

START_TEST(words_come_less_and_less_often)
{
	const uint64_t s = 1000000000;
	struct vigil v = vigil_of(2);
	uint32_t told = 0;

	for (uint64_t now = s; now < 3600 * s; now += s / 10)
		told += vigil_tells(&v, s, now);
	/* After 5 s, 10 s later, 20, 40, then every minute. */
	ck_assert_uint_ge(told, 60);
	ck_assert_uint_le(told, 64);
	ck_assert(!vigil_tells(&v, 0, 4000 * s));
	/* Another wait begins anew. */
	ck_assert(!vigil_tells(&v, 5000 * s, 5004 * s));
	ck_assert(vigil_tells(&v, 5000 * s, 5005 * s));
	ck_assert(!vigil_tells(&v, 5000 * s, 5014 * s));
	ck_assert(vigil_tells(&v, 5000 * s, 5015 * s));
	vigil_fini(&v);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("vigil");

	tcase_add_test(t, a_lost_rank_has_its_time);
	tcase_add_test(t, several_are_lost);
	tcase_add_test(t, who_is_on_its_way_is_not_given_up);
	tcase_add_test(t, stragglers_are_told_of_once);
	tcase_add_test(t, words_come_less_and_less_often);
	return run_suite("vigil", t);
}

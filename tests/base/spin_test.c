/* SPDX-License-Identifier: Apache-2.0
 *
 * The adaptive spin: polls while it pays, costs next to nothing when nothing comes, comes back.
 */
#include "base/clock.h"
#include "base/spin.h"
#include "run.h"

enum { BOUND_US = 50, WAKE_US = 28 };

/* Plays a wait for something that comes `us` after it began. Returns how long it polled, ns. */
static uint64_t wait_for(struct spin *s, uint64_t *now, uint64_t us)
{
	uint64_t began = *now, until = spin_begin(s, began), comes = began + us * NS_PER_US;

	if (comes <= until) {
		spin_found(s);
		*now = comes;
		return comes - began;
	}
	*now = comes + WAKE_US * NS_PER_US;
	spin_slept(s, *now);
	return until - began;
}

START_TEST(polls_under_load)
{
	struct spin s;
	uint64_t now = NS_PER_S;

	spin_init(&s, BOUND_US);
	for (int i = 0; i < 1000; i++)
		ck_assert_uint_eq(wait_for(&s, &now, 20), 20 * NS_PER_US);
}
END_TEST

START_TEST(stops_when_nothing_comes)
{
	struct spin s;
	uint64_t now = NS_PER_S, polled = 0, began;

	spin_init(&s, BOUND_US);
	for (int i = 0; i < 100; i++)
		wait_for(&s, &now, 20);
	began = now;
	for (int i = 0; i < 100; i++)
		polled += wait_for(&s, &now, 10000);
	ck_assert_uint_le(polled, 4 * BOUND_US * NS_PER_US);
	ck_assert_uint_lt(polled * 100, now - began);
	/* And then not at all. */
	ck_assert_uint_eq(wait_for(&s, &now, 10000), 0);
}
END_TEST

START_TEST(comes_back)
{
	struct spin s;
	uint64_t now = NS_PER_S;
	int slept = 0;

	spin_init(&s, BOUND_US);
	for (int i = 0; i < 100; i++)
		wait_for(&s, &now, 10000);
	while (wait_for(&s, &now, 20) == 0)
		ck_assert_int_lt(++slept, 4);
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(wait_for(&s, &now, 20), 20 * NS_PER_US);
}
END_TEST

START_TEST(one_late_answer_changes_nothing)
{
	struct spin s;
	uint64_t now = NS_PER_S;

	spin_init(&s, BOUND_US);
	for (int i = 0; i < 100; i++) {
		wait_for(&s, &now, 20);
		ck_assert_uint_eq(wait_for(&s, &now, 1000), BOUND_US * NS_PER_US);
	}
}
END_TEST

START_TEST(what_comes_just_too_late_is_slept_for)
{
	struct spin s;
	uint64_t now = NS_PER_S, polled = 0;

	spin_init(&s, BOUND_US);
	/* Longer than the bound, and than what waking adds. */
	for (int i = 0; i < 1000; i++)
		polled += wait_for(&s, &now, BOUND_US + 10);
	ck_assert_uint_lt(polled * 50, now);
}
END_TEST

START_TEST(never_and_for_ever)
{
	struct spin s;
	uint64_t now = NS_PER_S;

	spin_init(&s, 0);
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(wait_for(&s, &now, i), 0);
	spin_init(&s, SPIN_FOREVER);
	for (int i = 0; i < 100; i++) {
		ck_assert_uint_eq(spin_begin(&s, now), UINT64_MAX);
		spin_found(&s);
		now += 10 * NS_PER_S;
	}
}
END_TEST

START_TEST(yields_when_it_is_due)
{
	struct yields y;
	uint64_t now = clock_ns(), due;

	yields_init(&y, false);
	yields_begin(&y, now);
	due = y.at;
	ck_assert_uint_gt(due, now);
	ck_assert_uint_le(due - now, 10 * NS_PER_US);
	yields_turn(&y, due - 1);
	ck_assert_uint_eq(y.at, due);
	yields_turn(&y, due);
	ck_assert_uint_gt(y.at, due);
	/* By the clock as it is behind the yield, which may take long. */
	ck_assert_uint_le(y.at, clock_ns() + 10 * NS_PER_US);
}
END_TEST

/* Lost for 3 ms whenever it polls, at intervals of `gap` from when it may again. How long it polled, of all? */
static double share_of_polling(uint64_t gap, int times)
{
	struct yields y;
	uint64_t now = NS_PER_S, began = now, barred = 0;

	yields_init(&y, false);
	for (int i = 0; i < times; i++) {
		now += gap;
		yields_took(&y, now, now + 3 * NS_PER_MS);
		now += 3 * NS_PER_MS;
		ck_assert(yields_barred(&y, now));
		barred += y.until - now;
		now = y.until;
		ck_assert(!yields_barred(&y, now));
	}
	return 1 - (double)barred / (double)(now - began);
}

START_TEST(who_loses_the_processor_stops_polling)
{
	struct yields y;

	yields_init(&y, false);
	/* To peers that take what a hand-over does, it goes on. */
	for (uint64_t us = 0; us < 400; us++)
		yields_took(&y, NS_PER_S, NS_PER_S + us * NS_PER_US);
	ck_assert(!yields_barred(&y, NS_PER_S));
	/* One who computes all the time costs a few percent, and ever less. */
	ck_assert(share_of_polling(NS_PER_MS, 100) < 0.01);
	ck_assert(share_of_polling(NS_PER_MS, 3) > 0.05);
	/* One who does so now and then is soon forgotten. */
	ck_assert(share_of_polling(NS_PER_S, 100) > 0.95);
}
END_TEST

START_TEST(who_shares_a_processor_naps)
{
	enum { YIELDS = 100000, EACH_US = 3 };
	struct yields y;
	uint64_t now = NS_PER_S;
	int naps = 0;

	yields_init(&y, false);
	for (int i = 0; i < YIELDS; i++, now += EACH_US * NS_PER_US)
		naps += yields_took(&y, now, now + 2 * NS_PER_US);
	ck_assert_int_ge(naps, YIELDS * EACH_US / 1000 / 20);
	ck_assert_int_le(naps, YIELDS * EACH_US / 1000 / 10 + 1);
	/* Nobody else is there, or only now and then: it does not. */
	for (int i = 0; i < YIELDS; i++, now += EACH_US * NS_PER_US)
		ck_assert(!yields_took(&y, now, now + (i % 20 == 0 ? 2000 : 300)));
}
END_TEST

START_TEST(who_is_barred_sleeps_unless_it_never_does)
{
	struct spin s;
	uint64_t now = NS_PER_S;

	spin_init(&s, BOUND_US);
	ck_assert_uint_gt(spin_begin(&s, now), now);
	yields_took(&s.yields, now - 5 * NS_PER_MS, now);
	ck_assert_uint_eq(spin_begin(&s, now), now);
	ck_assert_uint_gt(spin_begin(&s, s.yields.until), s.yields.until);
	spin_init(&s, SPIN_FOREVER);
	yields_took(&s.yields, now - 5 * NS_PER_MS, now);
	ck_assert_uint_eq(spin_begin(&s, now), UINT64_MAX);
	for (int i = 0; i < 1000; i++)
		ck_assert(!yields_took(&s.yields, now, now + 5 * NS_PER_US));
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("spin");
	Suite *suite = suite_create("spin");

	tcase_add_test(t, polls_under_load);
	tcase_add_test(t, stops_when_nothing_comes);
	tcase_add_test(t, comes_back);
	tcase_add_test(t, one_late_answer_changes_nothing);
	tcase_add_test(t, what_comes_just_too_late_is_slept_for);
	tcase_add_test(t, never_and_for_ever);
	tcase_add_test(t, yields_when_it_is_due);
	tcase_add_test(t, who_loses_the_processor_stops_polling);
	tcase_add_test(t, who_shares_a_processor_naps);
	tcase_add_test(t, who_is_barred_sleeps_unless_it_never_does);
	suite_add_tcase(suite, t);
	return run_all(srunner_create(suite));
}

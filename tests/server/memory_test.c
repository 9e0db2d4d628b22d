/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan (server/memory.h): its sums, and what is said when a limit can't hold it.
 */
#include "server/memory.h"

#include <errno.h>

#include "suite.h"

#define MIB ((uint64_t)1 << 20)

static const struct memory_plan plan = {
    .weights = 64 * MIB,
    .state = 32 * MIB,
    .blocks = 1 * MIB,
    .tables = 11 * MIB,
    .slots = 128 * MIB,
    .bookkeeping = 2 * MIB,
    .backups = 17 * MIB,
    .parts = 13 * MIB,
    .staging = 3 * MIB,
    .trainers = 4,
};

START_TEST(sums)
{
	ck_assert_uint_eq(memory_total(&plan),
			  (64 + 32 + 1 + 11 + (128 + 2 + 17 + 13 + 3) * 4) * MIB);
	ck_assert_uint_eq(memory_pinned(&plan), (64 + 128 + 3) * 4 * MIB);
}
END_TEST

START_TEST(a_sum_that_overflows_is_not_small)
{
	struct memory_plan p = plan;
	struct memory_limits all = {UINT64_MAX - 1, "RAM", UINT64_MAX};

	p.slots = UINT64_MAX / 4 + 1;
	ck_assert_uint_eq(memory_total(&p), UINT64_MAX);
	ck_assert_uint_eq(memory_pinned(&p), UINT64_MAX);
	ck_assert_int_eq(memory_check(&p, &all), -ENOMEM);
	p = plan;
	p.weights = UINT64_MAX;
	ck_assert_uint_eq(memory_total(&p), UINT64_MAX);
}
END_TEST

START_TEST(describes_each_term)
{
	static const char *const words[] = {"weights 64.0", "state 32.0",  "blocks 1.0",
					    "tables 11.0",  "slots 128.0", "bookkeeping 2.0",
					    "backups 17.0", "parts 13.0",  "staging 3.0",
					    "4 trainers",   "760.0"};
	char text[320];

	memory_describe(&plan, text, sizeof(text));
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		ck_assert_msg(strstr(text, words[i]), "no \"%s\" in \"%s\"", words[i], text);
	memory_describe(&plan, text, 10);
	ck_assert_uint_eq(strlen(text), 9);
}
END_TEST

START_TEST(limits_are_met_exactly)
{
	struct memory_limits l = {memory_total(&plan), "RAM", memory_pinned(&plan)};

	ck_assert_int_eq(memory_check(&plan, &l), 0);
	l.ram--;
	ck_assert_int_eq(memory_check(&plan, &l), -ENOMEM);
	l.ram++;
	l.memlock--;
	ck_assert_int_eq(memory_check(&plan, &l), -ENOMEM);
}
END_TEST

START_TEST(says_the_sum_and_the_limit)
{
	struct memory_limits l = {100 * MIB, "--max-memory", UINT64_MAX};

	ck_assert_int_eq(memory_check(&plan, &l), -ENOMEM);
	EXPECT_TEXT("760.0 MiB", "--max-memory", "100.0 MiB");
	l.ram_what = "MemAvailable";
	ck_assert_int_eq(memory_check(&plan, &l), -ENOMEM);
	EXPECT_TEXT("760.0 MiB", "MemAvailable", "100.0 MiB");
	l = (struct memory_limits){UINT64_MAX, "MemAvailable", 8 * MIB};
	ck_assert_int_eq(memory_check(&plan, &l), -ENOMEM);
	EXPECT_TEXT("780.0 MiB", "RLIMIT_MEMLOCK", "8.0 MiB", "ulimit -l");
}
END_TEST

START_TEST(limits_of_this_machine)
{
	struct memory_limits l = memory_limits_now(0, false);

	ck_assert_str_eq(l.ram_what, "MemAvailable");
	ck_assert_uint_gt(l.ram, MIB);
	ck_assert_uint_eq(l.memlock, UINT64_MAX); /* no RDMA: nothing is pinned */
	l = memory_limits_now(MIB, false);
	ck_assert_str_eq(l.ram_what, "--max-memory");
	ck_assert_uint_eq(l.ram, MIB);
	/* More than there is does not make more. */
	l = memory_limits_now(UINT64_MAX, false);
	ck_assert_str_eq(l.ram_what, "MemAvailable");
}
END_TEST

/* The sessions of lost trainers may outnumber the trainers, as far as there is room. */
START_TEST(more_sessions_than_trainers)
{
	struct memory_plan one = plan;
	uint64_t each;

	one.trainers = 0;
	each = (memory_total(&plan) - memory_total(&one)) / plan.trainers;
	for (uint32_t i = 0; i < plan.trainers; i++)
		ck_assert_int_eq(memory_admit(&plan, i, 1), 0); /* it was looked at before */
	ck_assert_int_eq(memory_admit(&plan, plan.trainers, 0), 0);
	ck_assert_int_eq(memory_admit(&plan, plan.trainers, memory_total(&plan) + each), 0);
	ck_assert_int_eq(memory_admit(&plan, plan.trainers, memory_total(&plan) + each - 1),
			 -ENOMEM);
	EXPECT_TEXT("4 sessions", "--max-memory", "when the step is over");
	ck_assert_int_eq(memory_admit(&plan, UINT64_MAX / 2, memory_total(&plan) + each), -ENOMEM);
	one = plan;
	one.slots = UINT64_MAX / 8;
	ck_assert_int_eq(memory_admit(&one, one.trainers, 0), -ENOMEM);
	EXPECT_TEXT("MemAvailable");
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("memory");

	tcase_add_test(t, sums);
	tcase_add_test(t, a_sum_that_overflows_is_not_small);
	tcase_add_test(t, describes_each_term);
	tcase_add_test(t, limits_are_met_exactly);
	tcase_add_test(t, says_the_sum_and_the_limit);
	tcase_add_test(t, limits_of_this_machine);
	tcase_add_test(t, more_sessions_than_trainers);
	return run_suite("memory", t);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules: values worked out by hand, what happens at the edges of each, and what the error texts
 * say. tests/oracle/schedule.py compares them with other implementations.
 */
#include "suites.h"

#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "kernels/schedule.h"

static struct schedule parsed(const char *text)
{
	struct schedule s;

	memset(&s, 0x5a, sizeof(s));
	ck_assert_msg(!schedule_parse(text, &s), "\"%s\": %s", text, err_text());
	return s;
}

#define HUGE_CLOCK (1ULL << 63)

/* Base rate 0.5 throughout. */
static const struct {
	const char *text;
	uint64_t clock;
	double want;
} values[] = {
    {NULL, 0, 0.5},
    {"", HUGE_CLOCK, 0.5},
    {"constant", 7, 0.5},

    {"step:every=3,gamma=0.5", 0, 0.5},
    {"step:every=3,gamma=0.5", 2, 0.5},
    {"step:every=3,gamma=0.5", 3, 0.25},
    {"step:every=3,gamma=0.5", 5, 0.25},
    {"step:every=3,gamma=0.5", 6, 0.125},
    {"step:every=3,gamma=0.5", HUGE_CLOCK, 0},
    {"step:every=3", 3, 0.05},
    {"step:every=1,gamma=0", 0, 0.5},
    {"step:every=1,gamma=0", 1, 0},
    {"step:every=1,gamma=1", HUGE_CLOCK, 0.5},
    {"step:every=9007199254740992,gamma=0.5", 9007199254740991, 0.5},
    {"step:every=9007199254740992,gamma=0.5", 9007199254740992, 0.25},

    {"multistep:at=30/60/80,gamma=0.5", 0, 0.5},
    {"multistep:at=30/60/80,gamma=0.5", 29, 0.5},
    {"multistep:at=30/60/80,gamma=0.5", 30, 0.25},
    {"multistep:at=30/60/80,gamma=0.5", 31, 0.25},
    {"multistep:at=30/60/80,gamma=0.5", 79, 0.125},
    {"multistep:at=30/60/80,gamma=0.5", 80, 0.0625},
    {"multistep:at=30/60/80,gamma=0.5", HUGE_CLOCK, 0.0625},
    {"multistep:at=1", 1, 0.05},

    {"piecewise:at=10/20,rates=1/0.25/2", 0, 1},
    {"piecewise:at=10/20,rates=1/0.25/2", 9, 1},
    {"piecewise:at=10/20,rates=1/0.25/2", 10, 0.25},
    {"piecewise:at=10/20,rates=1/0.25/2", 11, 0.25},
    {"piecewise:at=10/20,rates=1/0.25/2", 20, 2},
    {"piecewise:at=10/20,rates=1/0.25/2", HUGE_CLOCK, 2},

    {"exponential:gamma=0.25", 0, 0.5},
    {"exponential:gamma=0.25", 2, 0.03125},
    {"exponential:gamma=0.25", HUGE_CLOCK, 0},
    {"exponential:gamma=0.25,every=4", 2, 0.25},
    {"exponential:gamma=0.25,every=4,staircase=1", 3, 0.5},
    {"exponential:gamma=0.25,every=4,staircase=1", 4, 0.125},
    {"exponential:gamma=2", 10, 512},
    {"exponential:gamma=2", HUGE_CLOCK, FLT_MAX},

    {"inverse_time:gamma=0.5", 0, 0.5},
    {"inverse_time:gamma=0.5", 2, 0.25},
    {"inverse_time:gamma=0.5,every=2", 1, 0.4},
    {"inverse_time:gamma=0.5,every=2,staircase=1", 1, 0.5},
    {"inverse_time:gamma=0.5,every=2,staircase=1", 2, 0.5 / 1.5},
    {"inverse_time:gamma=1", HUGE_CLOCK, 0x1p-64},
    {"inverse_time:gamma=1e308", UINT64_MAX, 0},

    {"polynomial:steps=10", 0, 0.5},
    {"polynomial:steps=10", 5, 0.25},
    {"polynomial:steps=10", 9, 0.05},
    {"polynomial:steps=10", 10, 0},
    {"polynomial:steps=10", 11, 0},
    {"polynomial:steps=10", HUGE_CLOCK, 0},
    {"polynomial:steps=10,end=0.1,power=2", 0, 0.5},
    {"polynomial:steps=10,end=0.1,power=2", 5, 0.2},
    {"polynomial:steps=10,end=0.1,power=2", 10, 0.1},
    {"polynomial:steps=10,end=0.1,power=0.5", 10, 0.1},
    {"polynomial:steps=10,end=0.1,power=2", HUGE_CLOCK, 0.1},
    {"polynomial:steps=10,power=1e300", 1, 0},
    {"polynomial:steps=10,cycle=1", 0, 0.5},
    {"polynomial:steps=10,cycle=1", 10, 0},
    {"polynomial:steps=10,cycle=1", 15, 0.125},
    {"polynomial:steps=10,cycle=1", 20, 0},
    {"polynomial:steps=10,cycle=1,end=0.1", HUGE_CLOCK, 0.1},

    {"cosine:steps=10", 0, 0.5},
    {"cosine:steps=10", 5, 0.25},
    {"cosine:steps=10", 10, 0},
    {"cosine:steps=10", 11, 0},
    {"cosine:steps=12,end=0.1", 0, 0.5},
    {"cosine:steps=12,end=0.1", 4, 0.4},
    {"cosine:steps=12,end=0.1", 8, 0.2},
    {"cosine:steps=12,end=0.1", 12, 0.1},
    {"cosine:steps=12,end=0.1", HUGE_CLOCK, 0.1},
    {"cosine:steps=12,cycle=1", 11, 0.0085185434277329317},
    {"cosine:steps=12,cycle=1", 12, 0.5},
    {"cosine:steps=12,cycle=1", 18, 0.25},
    {"cosine:steps=16,cycle=1", HUGE_CLOCK, 0.5},
    {"cosine:steps=12,cycle=1,mult=3", 11, 0.0085185434277329317},
    {"cosine:steps=12,cycle=1,mult=3", 12, 0.5},
    {"cosine:steps=12,cycle=1,mult=3", 30, 0.25},
    {"cosine:steps=12,cycle=1,mult=3", 48, 0.5},
    /* The cycle that begins at 2^63 - 1 would end at 2^64 - 1. */
    {"cosine:steps=1,cycle=1,mult=2", HUGE_CLOCK - 1, 0.5},
    {"cosine:steps=1,cycle=1,mult=2", HUGE_CLOCK + (HUGE_CLOCK >> 1), 0.25},
    {"cosine:steps=1,cycle=1,mult=2", UINT64_MAX, 0.5},
    /* Its second cycle is longer than a clock can be: 2^106. */
    {"cosine:steps=9007199254740992,cycle=1,mult=9007199254740992", UINT64_MAX, 0.5},

    /* Rises over 0 .. 4, falls over 4 .. 9. */
    {"one_cycle:steps=10,pct_start=0.5,div_factor=5", 0, 0.1},
    {"one_cycle:steps=10,pct_start=0.5,div_factor=5", 2, 0.3},
    {"one_cycle:steps=10,pct_start=0.5,div_factor=5", 4, 0.5},
    {"one_cycle:steps=10,pct_start=0.5,div_factor=5", 9, 1e-5},
    {"one_cycle:steps=10,pct_start=0.5,div_factor=5", 10, 1e-5},
    {"one_cycle:steps=10,pct_start=0.5,div_factor=5", HUGE_CLOCK, 1e-5},
    {"one_cycle:steps=10,pct_start=0.5,div_factor=5,final_div_factor=1,linear=1", 1, 0.2},
    {"one_cycle:steps=10,pct_start=0.5,div_factor=5,final_div_factor=1,linear=1", 5, 0.42},
    {"one_cycle:steps=10,pct_start=0.5,div_factor=5,final_div_factor=1,linear=1", 9, 0.1},
    {"one_cycle:steps=10", 0, 0.02},
    {"one_cycle:steps=10", 2, 0.5},
    {"one_cycle:steps=10", 9, 2e-6},
    /* No rise, a rise of one step, no fall. */
    {"one_cycle:steps=9,pct_start=0,linear=1,final_div_factor=1", 2, 0.34},
    {"one_cycle:steps=10,pct_start=0.1", 0, 0.5},
    {"one_cycle:steps=10,pct_start=1", 9, 0.5},
    {"one_cycle:steps=10,pct_start=1", HUGE_CLOCK, 0.5},
    {"one_cycle:steps=1", 0, 2e-6},
    {"one_cycle:steps=1,pct_start=1", 0, 0.5},

    {"noam:d_model=4,warmup=4", 0, 0.03125},
    {"noam:d_model=4,warmup=4", 2, 0.09375},
    {"noam:d_model=4,warmup=4", 3, 0.125},
    {"noam:d_model=4,warmup=4", 15, 0.0625},
    {"noam:d_model=1,warmup=1", UINT64_MAX, 0x1p-33},

    {"warmup:steps=4", 0, 0},
    {"warmup:steps=4", 3, 0.375},
    {"warmup:steps=4", 4, 0.5},
    {"warmup:steps=4", HUGE_CLOCK, 0.5},
    {"warmup:steps=4,from=0.5+step:every=2,gamma=0.5", 0, 0.25},
    {"warmup:steps=4,from=0.5+step:every=2,gamma=0.5", 2, 0.375},
    {"warmup:steps=4,from=0.5+step:every=2,gamma=0.5", 4, 0.5},
    {"warmup:steps=4,from=0.5+step:every=2,gamma=0.5", 5, 0.5},
    {"warmup:steps=4,from=0.5+step:every=2,gamma=0.5", 6, 0.25},
    {"warmup:steps=4,from=1+cosine:steps=2", 1, 0.5},
    {"warmup:steps=4,from=1+cosine:steps=2", 6, 0},
    /* It rises to where the schedule behind it begins. */
    {"warmup:steps=2+piecewise:at=1,rates=3/1", 1, 1.5},
    {"warmup:steps=2+piecewise:at=1,rates=3/1", 2, 3},
    {"warmup:steps=9007199254740992+constant", 1ULL << 52, 0.25},

    /* An exponent's sign does not part two schedules. */
    {"polynomial:steps=1e+1,end=1e-1", 5, 0.3},
    {"warmup:steps=1e+1+step:every=.2e+1,gamma=0.5", 12, 0.25},
    {"cosine:steps=10,end=-0", 10, 0},
};

START_TEST(by_hand)
{
	struct schedule s = parsed(values[_i].text);
	double got = schedule_rate(&s, 0.5, values[_i].clock), want = values[_i].want;

	ck_assert_msg(fabs(got - want) <= 1e-14 * want, "%s: %.17g at %llu, not %.17g",
		      values[_i].text, got, (unsigned long long)values[_i].clock, want);
}
END_TEST

static const char *const all[] = {
    "constant",
    "step:every=7",
    "multistep:at=1/9007199254740992,gamma=1e300",
    "piecewise:at=7,rates=0/1",
    "exponential:gamma=1.5",
    "exponential:gamma=0",
    "exponential:gamma=0.999999999999",
    "inverse_time:gamma=0",
    "inverse_time:gamma=1e300",
    "polynomial:steps=7,cycle=1,power=0.25",
    "polynomial:steps=9007199254740992,end=1e300",
    "cosine:steps=7,cycle=1,mult=2",
    "cosine:steps=9007199254740992",
    "one_cycle:steps=7,div_factor=1e-300,final_div_factor=1e-300",
    "one_cycle:steps=9007199254740992,div_factor=1e300,final_div_factor=1e300",
    "noam:d_model=9007199254740992,warmup=9007199254740992",
    "warmup:steps=9007199254740992+exponential:gamma=1e300",
};

/* Whatever the clock and the base rate, a rate is a number that an optimizer can take. */
START_TEST(bounds)
{
	static const double rates[] = {0, 1e-45, 0.1, FLT_MAX, DBL_MAX};
	struct schedule s = parsed(all[_i]);

	for (unsigned bit = 0; bit < 64; bit++)
		for (int d = -1; d <= 1; d++)
			for (unsigned r = 0; r < sizeof(rates) / sizeof(rates[0]); r++) {
				uint64_t clock = (1ULL << bit) + (uint64_t)d;
				double rate = schedule_rate(&s, rates[r], clock);

				ck_assert_msg(rate >= 0 && rate <= FLT_MAX, "%s: %g at %llu of %g",
					      all[_i], rate, (unsigned long long)clock, rates[r]);
			}
}
END_TEST

static const struct {
	const char *text;
	const char *says[3]; /* each must be in the text */
} refused[] = {
    /* names */
    {"linear", {"\"linear\": unknown", "constant, step, multistep, piecewise", "noam"}},
    {"Step:every=3", {"\"Step\": unknown"}},
    {" step:every=3", {"\" step\": unknown"}},
    {":every=3", {"\"\": unknown"}},
    {"step every=3", {"\"step every=3\": unknown"}},
    /* keys */
    {"constant:lr=1", {"constant has no key \"lr\"", "it has none"}},
    {"step:gamma=0.5", {"step: every must be given", "every, gamma"}},
    {"step", {"every must be given"}},
    {"step:every=3,every=4", {"step: every is given twice"}},
    {"step:every=3,gama=0.5", {"step has no key \"gama\"", "it has every, gamma"}},
    {"step:every=3,steps=4", {"no key \"steps\""}},
    {"multistep:gamma=0.5", {"multistep: at must be given"}},
    {"piecewise:at=3", {"rates must be given"}},
    {"cosine:end=0", {"cosine: steps must be given", "steps, end, cycle, mult"}},
    {"noam:d_model=3", {"noam: warmup must be given"}},
    {"warmup", {"warmup: steps must be given", "steps, from"}},
    /* syntax */
    {"step:", {"step: \"\" is not key=value"}},
    {"constant:", {"constant: \"\" is not key=value"}},
    {"step:every", {"\"every\" is not key=value"}},
    {"step:every=3,", {"\"\" is not key=value"}},
    {"step:every=3,,gamma=1", {"\"\" is not key=value"}},
    {"step:=3", {"no key \"\""}},
    {"step:every=3 ", {"every is \"3 \"", "a decimal number"}},
    {"step:every= 3", {"every is \" 3\""}},
    {"step:every=3x", {"every is \"3x\""}},
    {"step:every=", {"every is \"\"", "a whole number from 1 to 2^53"}},
    {"step:every=3=4", {"every is \"3=4\""}},
    {"step:every=3:gamma=1", {"every is \"3:gamma=1\""}},
    {"step:every=3;gamma=1", {"every is \"3;gamma=1\""}},
    {"step:every=3/4", {"every is \"3/4\""}},
    /* numbers */
    {"step:every=3,gamma=nan", {"gamma is \"nan\""}},
    {"step:every=3,gamma=inf", {"gamma is \"inf\"", "at least 0 and finite"}},
    {"step:every=3,gamma=0x1p-1", {"gamma is \"0x1p-1\""}},
    {"step:every=3,gamma=1e400", {"gamma is 1e400", "at least 0 and finite"}},
    {"step:every=3,gamma=1e-310", {"gamma is 1e-310"}},
    {"step:every=3,gamma=-0.5", {"gamma is -0.5", "at least 0 and finite"}},
    {"step:every=3,gamma=1e", {"gamma is \"1e\""}},
    {"step:every=3,gamma=1.2.3", {"gamma is \"1.2.3\""}},
    {"step:every=3,gamma=.", {"gamma is \".\""}},
    {"step:every=3,gamma=0,5", {"\"5\" is not key=value"}},
    {"step:every=0", {"every is 0", "a whole number from 1 to 2^53"}},
    {"step:every=-3", {"every is -3"}},
    {"step:every=1.5", {"every is 1.5"}},
    {"step:every=1e16", {"every is 1e16", "2^53"}},
    {"step:every=1e400", {"every is 1e400"}},
    {"cosine:steps=0", {"cosine: steps is 0"}},
    {"polynomial:steps=0", {"polynomial: steps is 0"}},
    {"polynomial:steps=1,power=0", {"power is 0", "above 0"}},
    {"polynomial:steps=1,cycle=2", {"cycle is 2", "0 or 1"}},
    {"polynomial:steps=1,cycle=0.5", {"cycle is 0.5"}},
    {"cosine:steps=9,mult=2", {"mult is 2", "cycle=1"}},
    {"cosine:steps=9,cycle=1,mult=0", {"mult is 0"}},
    {"one_cycle:steps=9,pct_start=1.5", {"pct_start is 1.5", "from 0 to 1"}},
    {"one_cycle:steps=9,div_factor=0", {"div_factor is 0", "above 0"}},
    {"one_cycle:steps=9,final_div_factor=0", {"final_div_factor is 0"}},
    {"noam:d_model=0,warmup=1", {"d_model is 0"}},
    {"noam:d_model=1,warmup=0", {"warmup is 0"}},
    {"warmup:steps=0", {"warmup: steps is 0"}},
    {"warmup:steps=1,from=1.5", {"from is 1.5"}},
    /* lists */
    {"multistep:at=30/60/60", {"at has 60 behind 60", "above the one before"}},
    {"multistep:at=30/20", {"at has 20 behind 30"}},
    {"multistep:at=0/20", {"at is 0", "a whole number from 1"}},
    {"multistep:at=", {"at is \"\""}},
    {"multistep:at=1/", {"at is \"\""}},
    {"multistep:at=1//2", {"at is \"\""}},
    {"multistep:at=1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17", {"at has more than 16 numbers"}},
    {"piecewise:at=1/2,rates=1/2", {"rates has 2 numbers for 2 of at", "one more: 3"}},
    {"piecewise:rates=1/2/3,at=1", {"rates has 3 numbers for 1 of at", "one more: 2"}},
    {"piecewise:at=1,rates=1/-2", {"rates is -2"}},
    {"piecewise:at=1,rates=1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18",
     {"rates has more than 17 numbers"}},
    /* parts */
    {"+", {"\"\": unknown"}},
    {"+constant", {"\"\": unknown"}},
    {"warmup:steps=3+", {"\"\": unknown"}},
    {"step:every=3+cosine:steps=9", {"step stands before a +", "only warmup may"}},
    {"constant+warmup:steps=3", {"constant stands before a +"}},
    {"warmup:steps=3+warmup:steps=3", {"warmup is given twice"}},
    {"warmup:steps=3+constant+constant", {"\"constant\" is one too many"}},
    {"warmup:steps=3+ constant", {"\" constant\": unknown"}},
};

START_TEST(refusals)
{
	struct schedule s, before;

	memset(&s, 0x5a, sizeof(s));
	memcpy(&before, &s, sizeof(s));
	ck_assert_int_eq(schedule_parse(refused[_i].text, &s), -EINVAL);
	for (unsigned i = 0; i < 3 && refused[_i].says[i]; i++)
		ck_assert_msg(strstr(err_text(), refused[_i].says[i]), "\"%s\" is not in \"%s\"",
			      refused[_i].says[i], err_text());
	ck_assert_msg(!memcmp(&s, &before, sizeof(s)), "the output was touched");
}
END_TEST

START_TEST(length)
{
	char text[4096];
	struct schedule s;

	/* Zeros in front of a number make it as long as one likes. */
	memset(text, '0', sizeof(text));
	memcpy(text, "step:every=", 11);
	strcpy(text + SCHEDULE_TEXT - 1, "7");
	ck_assert_uint_eq(strlen(text), SCHEDULE_TEXT);
	s = parsed(text);
	ck_assert_double_eq(s.value[SCHEDULE_EVERY], 7);

	strcpy(text + SCHEDULE_TEXT - 1, "07");
	ck_assert_int_eq(schedule_parse(text, &s), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "longer than 255 bytes"));
	/* No more of it is read than tells that. */
	memset(text, 'x', sizeof(text));
	ck_assert_int_eq(schedule_parse(text, &s), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "longer than 255 bytes"));
}
END_TEST

START_TEST(most_points)
{
	struct schedule s = parsed("piecewise:at=1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16,"
				   "rates=0/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16");

	for (uint64_t clock = 0; clock <= 20; clock++)
		ck_assert_double_eq(schedule_rate(&s, 1, clock), clock < 16 ? (double)clock : 16);
}
END_TEST

/* A decimal comma in the process's locale, where the machine has such a one, changes nothing. */
START_TEST(locales)
{
	static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
	struct schedule s;

	for (unsigned i = 0; i < 4; i++)
		if (setlocale(LC_ALL, commas[i]))
			break;
	s = parsed("step:every=3,gamma=0.5");
	ck_assert_double_eq(s.value[SCHEDULE_GAMMA], 0.5);
	ck_assert_int_eq(schedule_parse("piecewise:at=3,rates=1,5/2", &s), -EINVAL);
	setlocale(LC_ALL, "C");
}
END_TEST

START_TEST(sameness)
{
	static const char *const different[] = {
	    "constant",
	    "step:every=3",
	    "step:every=4",
	    "step:every=3,gamma=0.2",
	    "multistep:at=3",
	    "multistep:at=4",
	    "multistep:at=3/4",
	    "piecewise:at=3,rates=1/2",
	    "piecewise:at=3,rates=1/3",
	    "exponential:gamma=0.1",
	    "warmup:steps=3",
	    "warmup:steps=3,from=0.5",
	    "warmup:steps=4",
	    "warmup:steps=3+step:every=3",
	};
	static const char *const same[][2] = {
	    {NULL, "constant"},
	    {"", "constant"},
	    {"step:every=3", "step:gamma=0.1,every=3.0"},
	    {"cosine:steps=1e3,end=0", "cosine:steps=1000,end=-0,mult=1,cycle=0"},
	    {"warmup:steps=3", "warmup:from=0,steps=3+constant"},
	};
	const unsigned n = sizeof(different) / sizeof(different[0]);

	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < n; j++) {
			struct schedule a = parsed(different[i]), b = parsed(different[j]);

			ck_assert_msg(schedule_same(&a, &b) == (i == j), "%s, %s", different[i],
				      different[j]);
		}
	for (unsigned i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		struct schedule a = parsed(same[i][0]), b = parsed(same[i][1]);

		ck_assert_msg(schedule_same(&a, &b), "%s, %s", same[i][0], same[i][1]);
	}
}
END_TEST

/* Each name that there is stands for a kind, and the text of an unknown one has them all. */
START_TEST(names)
{
	struct schedule s;
	unsigned n = 0;

	for (; schedule_at(n); n++) {
		int rc = schedule_parse(schedule_at(n), &s);

		ck_assert_msg(!rc || strstr(err_text(), "must be given"), "%s", err_text());
		schedule_parse("?", &s);
		ck_assert_ptr_nonnull(strstr(err_text(), schedule_at(n)));
	}
	ck_assert_uint_eq(n, SCHEDULE_KINDS);
	ck_assert_ptr_null(schedule_at(n + 1));
	ck_assert_ptr_null(schedule_at(UINT32_MAX));
}
END_TEST

Suite *schedule_suite(void)
{
	Suite *suite = suite_create("schedules");
	TCase *rate = tcase_create("rate"), *parse = tcase_create("parse");

	tcase_add_loop_test(rate, by_hand, 0, sizeof(values) / sizeof(values[0]));
	tcase_add_loop_test(rate, bounds, 0, sizeof(all) / sizeof(all[0]));
	suite_add_tcase(suite, rate);
	tcase_add_loop_test(parse, refusals, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_test(parse, length);
	tcase_add_test(parse, most_points);
	tcase_add_test(parse, locales);
	tcase_add_test(parse, sameness);
	tcase_add_test(parse, names);
	suite_add_tcase(suite, parse);
	return suite;
}

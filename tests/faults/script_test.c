/* SPDX-License-Identifier: Apache-2.0
 *
 * Scripts: what they say, and what is wrong with those that say nothing.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "run.h"
#include "script.h"

static struct fault_script parsed(const char *text)
{
	struct fault_script s;
	int rc = fault_script_parse(text, &s);

	ck_assert_msg(rc == 0, "'%s': %d: %s", text, rc, err_text());
	return s;
}

static void is(const struct fault_rule *r, enum fault_action action, enum fault_point at,
	       uint64_t n)
{
	ck_assert_int_eq(r->action, action);
	ck_assert_int_eq(r->at, at);
	ck_assert_uint_eq(r->n, n);
}

START_TEST(empty)
{
	static const char *const texts[] = {"", ";", " ; ;;", "\n"};

	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct fault_script s = parsed(texts[i]);

		ck_assert_uint_eq(s.n, 0);
		ck_assert_uint_eq(s.seed, 1);
		ck_assert_uint_eq(s.chunk, 0);
		ck_assert(!s.noimm);
	}
}
END_TEST

START_TEST(everything)
{
	struct fault_script s =
	    parsed("seed=7; delay done p=0.25 us=500; reorder done; dup imm p=0.01; drop send n=3;"
		   "fail expose n=2 err=ENOMEM; fail post n=10 err=EAGAIN; cap chunk=65536; noimm;"
		   "freeze peer at=post-imm n=5; kill at=poll-imm n=12; truncate imm p=0.01;"
		   "truncate msg n=4; reorder conns; kill at=close");

	ck_assert_uint_eq(s.seed, 7);
	ck_assert_uint_eq(s.chunk, 65536);
	ck_assert(s.noimm);
	ck_assert_uint_eq(s.n, 12);
	is(&s.rule[0], FAULT_DELAY, AT_DONE, 0);
	ck_assert(s.rule[0].p == 0.25);
	ck_assert_uint_eq(s.rule[0].us, 500);
	is(&s.rule[1], FAULT_REORDER, AT_DONE, 0);
	ck_assert(s.rule[1].p == 1);
	is(&s.rule[2], FAULT_DUP, AT_IMM, 0);
	is(&s.rule[3], FAULT_DROP, AT_SEND, 3);
	is(&s.rule[4], FAULT_FAIL, AT_EXPOSE, 2);
	ck_assert_int_eq(s.rule[4].err, ENOMEM);
	is(&s.rule[5], FAULT_FAIL, AT_POST, 10);
	ck_assert_int_eq(s.rule[5].err, EAGAIN);
	is(&s.rule[6], FAULT_FREEZE, AT_POST_IMM, 5);
	is(&s.rule[7], FAULT_KILL, AT_IMM, 12);
	is(&s.rule[8], FAULT_TRUNCATE, AT_IMM, 0);
	is(&s.rule[9], FAULT_TRUNCATE, AT_MSG, 4);
	is(&s.rule[10], FAULT_REORDER, AT_CONNS, 0);
	is(&s.rule[11], FAULT_KILL, AT_CLOSE, 0);
}
END_TEST

static const struct {
	const char *text, *says;
} bad[] = {
    {"seed=", "'seed='"},
    {"seed=-1", "whole number"},
    {"seed=1x", "whole number"},
    {"seed=99999999999999999999", "whole number"},
    {"explode done", "no action 'explode'"},
    {"explode", "'explode' is not an item"},
    {"noimm now", "no action 'noimm'"},
    {"cap", "cap chunk=BYTES"},
    {"cap chunk=63", "from 64"},
    {"cap chunk=64 now", "cap chunk=BYTES"},
    {"drop", "where is not said"},
    {"drop p=0.5", "where is not said"},
    {"drop nothing", "'nothing': there is no such point"},
    {"drop expose", "drop does not act on expose"},
    {"truncate done", "truncate does not act on done"},
    {"reorder post", "reorder does not act on post"},
    {"kill at=conns", "kill does not act on conns"},
    {"kill at=poll-post", "no such point"},
    {"kill imm", "one word too many"},
    {"drop imm msg", "'msg' is one word too many"},
    {"freeze at=imm", "freeze peer"},
    {"freeze peer", "where is not said"},
    {"drop imm n=0", "from 1"},
    {"drop imm p=0", "probability"},
    {"drop imm p=1.5", "probability"},
    {"drop imm p=nan", "probability"},
    {"drop imm p=0.1 n=2", "exclude"},
    {"delay done", "us is for delay"},
    {"drop done us=5", "us is for delay"},
    {"delay done us=0", "from 1"},
    {"fail post", "err is for fail"},
    {"drop post err=EIO", "err is for fail"},
    {"fail post err=EWHATEVER", "no such error"},
    {"fail expose err=EAGAIN", "EAGAIN is for posts"},
    {"drop imm q=1", "the keys are"},
    {"seed=1; drop imm; drop", "'drop'"},
};

START_TEST(wrong)
{
	struct fault_script s, before;

	memset(&s, 0x5a, sizeof(s));
	before = s;
	ck_assert_int_eq(fault_script_parse(bad[_i].text, &s), -EINVAL);
	ck_assert_msg(strstr(err_text(), bad[_i].says), "'%s' says: %s", bad[_i].text, err_text());
	ck_assert(memcmp(&s, &before, sizeof(s)) == 0);
}
END_TEST

START_TEST(too_much)
{
	char text[1024] = "";
	struct fault_script s;

	for (int i = 0; i < FAULT_RULES; i++)
		strcat(text, "drop imm;");
	ck_assert_uint_eq(parsed(text).n, FAULT_RULES);
	strcat(text, "drop msg");
	ck_assert_int_eq(fault_script_parse(text, &s), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "no more than 32 rules"));
	memset(text, 'x', 1000);
	ck_assert_int_eq(fault_script_parse(text, &s), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "127 at most"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault scripts");
	TCase *t = tcase_create("text");

	tcase_add_test(t, empty);
	tcase_add_test(t, everything);
	tcase_add_loop_test(t, wrong, 0, (int)(sizeof(bad) / sizeof(bad[0])));
	tcase_add_test(t, too_much);
	suite_add_tcase(suite, t);
	return run_all(srunner_create(suite));
}

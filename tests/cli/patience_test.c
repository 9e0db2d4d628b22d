/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a server waits, as text (cli/patience.h).
 */
#include <check.h>
#include <string.h>

#include "base/err.h"
#include "cli/patience.h"
#include "run.h"

START_TEST(losses)
{
	struct patience_loss loss = {SRV_LOSS_STOP, 77};

	ck_assert_int_eq(patience_parse_loss("continue", &loss), 0);
	ck_assert_int_eq(loss.policy, SRV_LOSS_CONTINUE);
	ck_assert_int_eq(patience_parse_loss("wait:2.5", &loss), 0);
	ck_assert(loss.policy == SRV_LOSS_WAIT && loss.wait_ms == 2500);
	ck_assert_int_eq(patience_parse_loss("wait:0", &loss), 0);
	ck_assert_uint_eq(loss.wait_ms, 0);
	ck_assert_int_eq(patience_parse_loss("wait:1000000", &loss), 0);
	ck_assert_uint_eq(loss.wait_ms, 1000000000);
	ck_assert_int_eq(patience_parse_loss("stop", &loss), 0);
	ck_assert_int_eq(loss.policy, SRV_LOSS_STOP);
}
END_TEST

START_TEST(stragglers)
{
	struct patience_straggler s;

	ck_assert_int_eq(patience_parse_straggler("0", &s), 0);
	ck_assert(s.policy == SRV_STRAGGLER_WAIT && s.after_ms == 0);
	ck_assert_int_eq(patience_parse_straggler("900", &s), 0);
	ck_assert(s.policy == SRV_STRAGGLER_WAIT && s.after_ms == 900000);
	ck_assert_int_eq(patience_parse_straggler("0.001:drop", &s), 0);
	ck_assert(s.policy == SRV_STRAGGLER_DROP && s.after_ms == 1);
	ck_assert_int_eq(patience_parse_straggler("60:stop", &s), 0);
	ck_assert(s.policy == SRV_STRAGGLER_STOP && s.after_ms == 60000);
	ck_assert_int_eq(patience_parse_straggler("1.25:wait", &s), 0);
	ck_assert(s.policy == SRV_STRAGGLER_WAIT && s.after_ms == 1250);
}
END_TEST

START_TEST(keepalives)
{
	uint32_t ms = 7;

	ck_assert_int_eq(patience_parse_keepalive("0", &ms), 0);
	ck_assert_uint_eq(ms, 0);
	ck_assert_int_eq(patience_parse_keepalive("0.3", &ms), 0);
	ck_assert_uint_eq(ms, 300);
	ck_assert_int_lt(patience_parse_keepalive("0.299", &ms), 0);
	ck_assert_ptr_nonnull(strstr(err_text(), "0.3 to 1000000 seconds"));
	ck_assert_uint_eq(ms, 300);
}
END_TEST

START_TEST(nothing_else)
{
	static const char *const bad[] = {
	    "", "wait", "wait:", "wait:-1", "wait:x", "wait:1s", "wait: 1", "wait:1.", "wait:.5",
	    "wait:1.2345", "wait:1000001", "wait:1000000.1", "wait:99999999999999999999", "Stop",
	    "stop:1", "30"};
	static const char *const worse[] = {"", "-1", "x", "1:", "1:go", "1drop", "1:drop:", "1.:drop",
					    ":drop", "1000001"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct patience_loss loss = {SRV_LOSS_WAIT, 77};

		ck_assert_msg(patience_parse_loss(bad[i], &loss) < 0, "'%s'", bad[i]);
		ck_assert_ptr_nonnull(strstr(err_text(), "wait:SECONDS"));
		ck_assert(loss.policy == SRV_LOSS_WAIT && loss.wait_ms == 77);
	}
	for (size_t i = 0; i < sizeof(worse) / sizeof(worse[0]); i++) {
		struct patience_straggler s = {SRV_STRAGGLER_STOP, 77};

		ck_assert_msg(patience_parse_straggler(worse[i], &s) < 0, "'%s'", worse[i]);
		ck_assert_ptr_nonnull(strstr(err_text(), "0 to 1000000 seconds"));
		ck_assert(s.policy == SRV_STRAGGLER_STOP && s.after_ms == 77);
	}
}
END_TEST

START_TEST(the_server_gets_them)
{
	struct patience p = patience_default();
	struct srv_options opt = srv_options_default(), same = opt;

	patience_apply(&p, &opt);
	ck_assert_int_eq(opt.on_loss, same.on_loss);
	ck_assert_uint_eq(opt.loss_wait_ms, 30000); /* as --help says */
	ck_assert_uint_eq(opt.straggler_ms, 0);
	ck_assert_uint_eq(opt.keepalive_ms, 5000);
	p = (struct patience){{SRV_LOSS_STOP, 1}, {SRV_STRAGGLER_DROP, 2}, 3};
	patience_apply(&p, &opt);
	ck_assert(opt.on_loss == SRV_LOSS_STOP && opt.loss_wait_ms == 1 &&
		  opt.on_straggler == SRV_STRAGGLER_DROP && opt.straggler_ms == 2 &&
		  opt.keepalive_ms == 3);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("patience");
	TCase *tc = tcase_create("text");

	tcase_add_test(tc, losses);
	tcase_add_test(tc, stragglers);
	tcase_add_test(tc, keepalives);
	tcase_add_test(tc, nothing_else);
	tcase_add_test(tc, the_server_gets_them);
	suite_add_tcase(suite, tc);
	return run_all(srunner_create(suite));
}

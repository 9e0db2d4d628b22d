/* SPDX-License-Identifier: Apache-2.0
 *
 * Modes as text (cli/mode.h).
 */
#include <check.h>
#include <string.h>

#include "base/err.h"
#include "cli/mode.h"
#include "run.h"

START_TEST(there_and_back)
{
	static const struct {
		const char *text;
		struct mode mode;
		bool sync;
	} known[] = {
	    {"sync", {SRV_SYNC, 0}, true},
	    {"async", {SRV_ASYNC, 0}, false},
	    {"ssp:0", {SRV_SSP, 0}, true},
	    {"ssp:1", {SRV_SSP, 1}, false},
	    {"ssp:1048576", {SRV_SSP, SRV_MAX_STALENESS}, false},
	};
	char buf[MODE_TEXT];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct mode mode = {0};

		ck_assert_int_eq(mode_parse(known[i].text, &mode), 0);
		ck_assert_int_eq(mode.kind, known[i].mode.kind);
		ck_assert_uint_eq(mode.staleness, known[i].mode.staleness);
		ck_assert_str_eq(mode_text(&mode, buf), known[i].text);
		ck_assert_int_eq(mode_is_sync(&mode), known[i].sync);
	}
}
END_TEST

START_TEST(nothing_else)
{
	static const char *const bad[] = {
	    "",      "ssp",    "ssp:",   "ssp:-1",      "ssp:+1",
	    "ssp:x", "ssp:1x", "ssp: 1", "ssp:1048577", "ssp:18446744073709551617",
	    "Sync",  "sync:1"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct mode mode = {.kind = SRV_ASYNC, .staleness = 77};

		ck_assert_msg(mode_parse(bad[i], &mode) < 0, "'%s'", bad[i]);
		ck_assert_ptr_nonnull(strstr(err_text(), "sync, async or ssp:K"));
		ck_assert_ptr_nonnull(strstr(err_text(), "0 to 1048576"));
		ck_assert(mode.kind == SRV_ASYNC && mode.staleness == 77);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mode");
	TCase *tc = tcase_create("text");

	tcase_add_test(tc, there_and_back);
	tcase_add_test(tc, nothing_else);
	suite_add_tcase(suite, tc);
	return run_all(srunner_create(suite));
}

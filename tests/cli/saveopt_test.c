/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints as options (cli/saveopt.h).
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "cli/saveopt.h"
#include "run.h"

START_TEST(how_often)
{
	static const struct {
		const char *text;
		struct saveopt_every every;
	} good[] = {
	    {"1", {1, 0}},
	    {"100000", {100000, 0}},
	    {"30s", {0, 30000}},
	    {"5m", {0, 300000}},
	    {"2h", {0, 7200000}},
	    {"8784h", {0, 31622400000}},
	    {"999999999999999999", {999999999999999999, 0}},
	};
	static const char *const bad[] = {"",
					  "0",
					  "0s",
					  "s",
					  "-1",
					  "+1",
					  "1 s",
					  "1.5s",
					  "1d",
					  "1S",
					  "1sx",
					  "8785h",
					  "1000000000000000000"};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct saveopt_every e = {7, 7};

		ck_assert_int_eq(saveopt_parse_every(good[i].text, &e), 0);
		ck_assert_msg(e.steps == good[i].every.steps && e.ms == good[i].every.ms, "%s",
			      good[i].text);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct saveopt_every e = {7, 7};

		ck_assert_msg(saveopt_parse_every(bad[i], &e) == -EINVAL, "'%s'", bad[i]);
		ck_assert_ptr_nonnull(strstr(err_text(), "30s"));
		ck_assert(e.steps == 7 && e.ms == 7);
	}
}
END_TEST

START_TEST(what_is_restored)
{
	char dir[] = "/tmp/saveopt-XXXXXX", one[64];
	struct srv_options o = srv_options_default();
	struct saveopt so = saveopt_default();

	log_set_level(LOG_ERROR);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(saveopt_settle(&so, &o), 0);
	ck_assert(o.n_restore == 0 && !o.checkpoint_dir && o.keep == 3 && o.stop_ms == 10000);

	/* auto: nothing there, no directory at all, one there */
	so.dir = dir;
	ck_assert_int_eq(saveopt_settle(&so, &o), 0);
	ck_assert_uint_eq(o.n_restore, 0);
	so.dir = "/tmp/nowhere/at/all";
	ck_assert_int_eq(saveopt_settle(&so, &o), 0);
	ck_assert_uint_eq(o.n_restore, 0);
	snprintf(one, sizeof(one), "%s/checkpoint-00000001", dir);
	ck_assert_int_eq(mkdir(one, 0700), 0);
	so.dir = dir;
	ck_assert_int_eq(saveopt_settle(&so, &o), 0);
	ck_assert(o.n_restore == 1 && o.restore[0] == dir);
	so.restore = (struct opt_texts){{"auto"}, 1};
	ck_assert_int_eq(saveopt_settle(&so, &o), 0);
	ck_assert_uint_eq(o.n_restore, 1);

	so.restore = (struct opt_texts){{"none"}, 1};
	ck_assert_int_eq(saveopt_settle(&so, &o), 0);
	ck_assert_uint_eq(o.n_restore, 0);
	so.restore = (struct opt_texts){{"a", "b"}, 2};
	ck_assert_int_eq(saveopt_settle(&so, &o), 0);
	ck_assert(o.n_restore == 2 && strcmp(o.restore[1], "b") == 0);
	so.restore = (struct opt_texts){{"a", "auto"}, 2};
	ck_assert_int_eq(saveopt_settle(&so, &o), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "auto"));
	rmdir(one);
	rmdir(dir);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("saveopt");
	TCase *tc = tcase_create("options");

	tcase_add_test(tc, how_often);
	tcase_add_test(tc, what_is_restored);
	suite_add_tcase(suite, tc);
	return run_all(srunner_create(suite));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Error texts, log lines, the clock.
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/proc.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "run.h"

START_TEST(err_first)
{
	ck_assert_str_eq(err_text(), "");
	ck_assert_int_eq(err_set(EINVAL, "slot %u: the ring has %u", 7, 4), -EINVAL);
	ck_assert_str_eq(err_text(), "slot 7: the ring has 4");
}
END_TEST

START_TEST(err_nested)
{
	err_set(ENOENT, "no such thing");
	ck_assert_int_eq(err_set(EIO, "block %d: %s", 3, err_text()), -EIO);
	ck_assert_str_eq(err_text(), "block 3: no such thing");
	ck_assert_int_eq(err_wrap(-EIO, "read %s", "x"), -EIO);
	ck_assert_str_eq(err_text(), "read x: block 3: no such thing");
}
END_TEST

START_TEST(err_wrap_without_text)
{
	ck_assert_int_eq(err_wrap(-ENOENT, "open"), -ENOENT);
	ck_assert_str_eq(err_text(), "open: No such file or directory");
}
END_TEST

START_TEST(err_cut)
{
	char big[2000];

	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	err_set(EIO, "%s", big);
	ck_assert_uint_eq(strlen(err_text()), 511);
	err_wrap(-EIO, "%s", big);
	ck_assert_uint_eq(strlen(err_text()), 511);
	err_wrap(-EIO, "short");
	ck_assert_uint_eq(strlen(err_text()), 511);
	ck_assert(!strncmp(err_text(), "short: aaa", 10));
}
END_TEST

static void *other_thread(void *arg)
{
	ck_assert_str_eq(err_text(), "");
	err_set(EIO, "theirs");
	return NULL;
}

START_TEST(err_by_thread)
{
	pthread_t thread;

	err_set(EIO, "ours");
	pthread_create(&thread, NULL, other_thread, NULL);
	pthread_join(thread, NULL);
	ck_assert_str_eq(err_text(), "ours");
}
END_TEST

/* What stderr got while `log` ran. */
static void capture(void (*log)(void), char *out, size_t room)
{
	FILE *file = tmpfile();
	int saved = dup(STDERR_FILENO);

	fflush(stderr);
	dup2(fileno(file), STDERR_FILENO);
	log();
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(file);
	size_t n = fread(out, 1, room - 1, file);

	out[n] = 0;
	fclose(file);
}

static void log_some(void)
{
	log_error("bad %d", 1);
	log_info("fine");
	log_debug("detail");
}

static void log_long(void)
{
	char big[5000];

	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	log_warn("%s", big);
}

START_TEST(log_lines)
{
	char out[8192];
	int h, m, s, ms;

	capture(log_some, out, sizeof(out));
	ck_assert_int_eq(sscanf(out, "%2d:%2d:%2d.%3d error bad 1\n", &h, &m, &s, &ms), 4);
	ck_assert(strstr(out, " info fine\n"));
	ck_assert(!strstr(out, "detail"));
	log_set_level(LOG_DEBUG);
	capture(log_some, out, sizeof(out));
	ck_assert(strstr(out, " debug detail\n"));
	log_set_level(LOG_ERROR);
	capture(log_some, out, sizeof(out));
	ck_assert(!strstr(out, "fine"));
}
END_TEST

START_TEST(log_cut)
{
	char out[8192];

	capture(log_long, out, sizeof(out));
	ck_assert_uint_le(strlen(out), 1024);
	ck_assert_int_eq(out[strlen(out) - 1], '\n');
	ck_assert_ptr_eq(strchr(out, '\n'), out + strlen(out) - 1);
}
END_TEST

static void log_ends(void)
{
	log_warn("it says: %s", "over\n00:00:00.000 error all is lost\r\x1b[2J\t\x7f.");
}

START_TEST(log_is_one_line)
{
	char out[4096];

	capture(log_ends, out, sizeof(out));
	ck_assert_ptr_nonnull(strstr(out, "over 00:00:00.000 error all is lost  [2J  .\n"));
	ck_assert_ptr_eq(strchr(out, '\n'), out + strlen(out) - 1);
}
END_TEST

START_TEST(clock_goes_on)
{
	uint64_t last = clock_ns();

	for (int i = 0; i < 10000; i++) {
		uint64_t now = clock_ns();

		ck_assert_uint_ge(now, last);
		last = now;
		cpu_relax();
	}
}
END_TEST

START_TEST(proc_numbers)
{
	ck_assert_uint_eq(proc_number("/proc/self/status", "Pid", 10, 7), (uint64_t)getpid());
	ck_assert_uint_eq(proc_number("/proc/self/status", "Pi", 10, 7), 7);
	ck_assert_uint_eq(proc_number("/proc/self/no-such-file", "Pid", 10, 7), 7);
	ck_assert_uint_gt(proc_number("/proc/meminfo", "MemTotal", 10, 0), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base");
	TCase *t = tcase_create("base");

	tcase_add_test(t, err_first);
	tcase_add_test(t, err_nested);
	tcase_add_test(t, err_wrap_without_text);
	tcase_add_test(t, err_cut);
	tcase_add_test(t, err_by_thread);
	tcase_add_test(t, log_lines);
	tcase_add_test(t, log_cut);
	tcase_add_test(t, log_is_one_line);
	tcase_add_test(t, clock_goes_on);
	tcase_add_test(t, proc_numbers);
	suite_add_tcase(s, t);

	SRunner *runner = srunner_create(s);
	return run_all(runner);
}

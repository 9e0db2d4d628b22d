/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU time of this process and of another one, and counters over a process's threads.
 */
#include <check.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "perf/counter.h"
#include "perf/meter.h"
#include "run.h"

static uint64_t own_cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void burn(uint64_t ns)
{
	uint64_t until = own_cpu() + ns;

	while (own_cpu() < until)
		;
}

START_TEST(own_time)
{
	struct meter_reading r;
	struct meter m;

	meter_begin(&m, 0);
	burn(5 * NS_PER_MS);
	meter_end(&m, &r);
	ck_assert_uint_ge(r.cpu_ns, 5 * NS_PER_MS);
	/* A sanitizer has a thread of its own, which helps to burn. */
	ck_assert_uint_ge(r.wall_ns, 2 * NS_PER_MS);
	ck_assert_uint_eq(r.server_cpu_ns, 0);
	ck_assert(!r.counted);
}
END_TEST

/* The other one says when it has burned enough. */
START_TEST(another_process)
{
	struct meter_reading r;
	struct meter m;
	int go[2], done[2];
	char c = 0;

	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(done), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (read(go[0], &c, 1) == 1)
			burn(5 * NS_PER_MS);
		if (write(done[1], &c, 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	ck_assert_int_gt(pid, 0);
	meter_begin(&m, pid);
	ck_assert_int_eq(write(go[1], &c, 1), 1);
	ck_assert_int_eq(read(done[0], &c, 1), 1);
	meter_end(&m, &r);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_uint_ge(r.server_cpu_ns, 5 * NS_PER_MS);
}
END_TEST

START_TEST(counts)
{
	struct counter *c;
	int rc = counter_open(0, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, &c);

	/* A container may forbid all of it. */
	if (rc == -EACCES || rc == -EPERM || rc == -ENOSYS)
		return;
	ck_assert_int_eq(rc, 0);
	burn(5 * NS_PER_MS);
	ck_assert_uint_ge(counter_read(c), 4 * NS_PER_MS);
	counter_close(c);
	counter_close(NULL);
}
END_TEST

START_TEST(refuses)
{
	struct counter *c = NULL;

	ck_assert_int_eq(counter_open(0x7fffffff, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, &c),
			 -ESRCH);
	ck_assert_int_lt(counter_open(0, 0xffff, 0, &c), 0);
	ck_assert_ptr_null(c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("meter");
	TCase *tc = tcase_create("meter");

	tcase_add_test(tc, own_time);
	tcase_add_test(tc, another_process);
	tcase_add_test(tc, counts);
	tcase_add_test(tc, refuses);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	return run_all(runner);
}

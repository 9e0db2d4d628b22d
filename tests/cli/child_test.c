/* SPDX-License-Identifier: Apache-2.0
 *
 * Child processes: this program is its own child, since children are /proc/self/exe.
 */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/child.h"
#include "run.h"

enum { LONG_LINE = 3 << 20 };

/* ---- what the children do -------------------------------------------------------------------- */

static int act_lines(void)
{
	printf("one\n\ntwo\n");
	printf("without an end");
	return 0;
}

static int act_long(void)
{
	for (int i = 0; i < LONG_LINE; i++)
		putchar('x');
	printf("\nlast\n");
	return 0;
}

static _Noreturn void act_stubborn(void)
{
	signal(SIGTERM, SIG_IGN);
	printf("ignoring\n");
	fflush(stdout);
	for (;;)
		pause();
}

static _Noreturn void act_wait(void)
{
	printf("%d\n", (int)getpid());
	fflush(stdout);
	for (;;)
		pause();
}

/* The state that a child must start with, whatever its parent's is. */
static int act_state(void)
{
	sigset_t mask;
	struct sigaction pipe_action;

	sigprocmask(SIG_SETMASK, NULL, &mask);
	sigaction(SIGPIPE, NULL, &pipe_action);
	printf("%s\n",
	       sigismember(&mask, SIGTERM) || sigismember(&mask, SIGINT) ? "blocked" : "open");
	printf("%s\n", pipe_action.sa_handler == SIG_IGN ? "ignored" : "default");
	printf("%d\n", getchar());
	return 0;
}

/* A parent that starts a child, says its pid and waits to be killed. */
static int act_parent(void)
{
	struct children *set;
	struct child_event ev;
	struct child_args args = {0};
	struct child *child;

	child_arg(&args, "wait");
	if (children_create(&set) < 0 || child_start(set, "grandchild", &args, &child) < 0 ||
	    children_wait(set, 10000, &ev) < 0 || ev.kind != CHILD_LINE)
		return 1;
	printf("%s\n", ev.line);
	fflush(stdout);
	for (;;)
		pause();
}

static int act(const char *what)
{
	if (!strcmp(what, "lines"))
		return act_lines();
	if (!strcmp(what, "long"))
		return act_long();
	if (!strcmp(what, "stubborn"))
		act_stubborn();
	if (!strcmp(what, "wait"))
		act_wait();
	if (!strcmp(what, "state"))
		return act_state();
	if (!strcmp(what, "parent"))
		return act_parent();
	if (!strcmp(what, "abort"))
		abort();
	return atoi(what);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static struct children *set;
static struct child_event ev;

static struct child *start(const char *what)
{
	struct child_args args = {0};
	struct child *child;

	child_arg(&args, "%s", what);
	ck_assert_int_eq(child_start(set, what, &args, &child), 0);
	return child;
}

static void next(enum child_event_kind kind)
{
	ck_assert_int_eq(children_wait(set, 20000, &ev), 0);
	ck_assert_int_eq(ev.kind, kind);
}

static void next_line(const char *line)
{
	next(CHILD_LINE);
	ck_assert_str_eq(ev.line, line);
}

static void setup(void)
{
	ck_assert_int_eq(children_create(&set), 0);
}

static void teardown(void)
{
	children_destroy(set);
}

START_TEST(lines_come_before_the_end)
{
	struct child *child = start("lines");
	char reason[128];

	next_line("one");
	ck_assert_ptr_eq(ev.child, child);
	next_line("");
	next_line("two");
	next_line("without an end");
	next(CHILD_ENDED);
	ck_assert_ptr_eq(ev.child, child);
	ck_assert(!child_failed(child, reason, sizeof(reason)));
	ck_assert(!child_running(child));
	ck_assert_int_eq(children_wait(set, 50, &ev), 0);
	ck_assert_int_eq(ev.kind, CHILD_TIMEOUT);
}
END_TEST

START_TEST(long_lines_come_whole)
{
	start("long");
	next(CHILD_LINE);
	ck_assert_uint_eq(strlen(ev.line), LONG_LINE);
	ck_assert_uint_eq(strspn(ev.line, "x"), LONG_LINE);
	next_line("last");
	next(CHILD_ENDED);
}
END_TEST

START_TEST(reasons)
{
	char reason[128];

	start("3");
	next(CHILD_ENDED);
	ck_assert(child_failed(ev.child, reason, sizeof(reason)));
	ck_assert_str_eq(reason, "exited with status 3");
	start("abort");
	next(CHILD_ENDED);
	ck_assert(child_failed(ev.child, reason, sizeof(reason)));
	ck_assert_str_eq(reason, "was killed by signal 6 (Aborted)");
}
END_TEST

START_TEST(a_child_starts_with_a_clean_state)
{
	signal(SIGPIPE, SIG_IGN);
	start("state");
	next_line("open");
	next_line("default");
	next_line("-1");
	next(CHILD_ENDED);
	signal(SIGPIPE, SIG_DFL);
}
END_TEST

START_TEST(signals_come_as_events)
{
	start("wait");
	next(CHILD_LINE);
	kill(getpid(), SIGINT);
	next(CHILD_SIGNAL);
	ck_assert_int_eq(ev.signal, SIGINT);
}
END_TEST

START_TEST(the_stubborn_are_killed)
{
	struct child *stubborn = start("stubborn"), *meek = start("wait");
	char reason[128];
	uint64_t began;

	next(CHILD_LINE);
	next(CHILD_LINE);
	began = clock_ns();
	children_end(set, 300);
	ck_assert_uint_ge(clock_ns() - began, 300 * NS_PER_MS);
	ck_assert(!child_running(stubborn));
	ck_assert(!child_running(meek));
	ck_assert(child_failed(stubborn, reason, sizeof(reason)));
	ck_assert(strstr(reason, "signal 9") != NULL);
	ck_assert(child_failed(meek, reason, sizeof(reason)));
	ck_assert(strstr(reason, "signal 15") != NULL);
}
END_TEST

START_TEST(no_child_outlives_its_parent)
{
	struct child *parent;
	pid_t grandchild;
	int status;

	/* The orphan comes to this process, which can then see how it ends. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	parent = start("parent");
	next(CHILD_LINE);
	grandchild = (pid_t)atoi(ev.line);
	ck_assert_int_eq(kill(grandchild, 0), 0);
	kill(child_pid(parent), SIGKILL);
	next(CHILD_ENDED);
	ck_assert_int_eq(waitpid(grandchild, &status, 0), grandchild);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
END_TEST

START_TEST(arguments_are_bounded)
{
	struct child_args args = {0};
	struct child *child;

	for (int i = 0; i < 100; i++)
		child_arg(&args, "argument %d", i);
	ck_assert_int_eq(child_start(set, "many", &args, &child), -E2BIG);
	memset(&args, 0, sizeof(args));
	child_arg(&args, "%5000d", 1);
	ck_assert_int_eq(child_start(set, "long", &args, &child), -E2BIG);
}
END_TEST

int main(int argc, char **argv)
{
	if (argc > 1)
		return act(argv[1]);
	Suite *suite = suite_create("child");
	TCase *tc = tcase_create("processes");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, lines_come_before_the_end);
	tcase_add_test(tc, long_lines_come_whole);
	tcase_add_test(tc, reasons);
	tcase_add_test(tc, a_child_starts_with_a_clean_state);
	tcase_add_test(tc, signals_come_as_events);
	tcase_add_test(tc, the_stubborn_are_killed);
	tcase_add_test(tc, no_child_outlives_its_parent);
	tcase_add_test(tc, arguments_are_bounded);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	return run_all(runner);
}

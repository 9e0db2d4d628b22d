/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that a test kills: this program again, in a role (roles.c). A child writes lines to a
 * pipe that the test reads; it dies with the test.
 */
#ifndef GS_TESTS_E2E_CHILD_H
#define GS_TESTS_E2E_CHILD_H

#include <stdio.h>
#include <sys/types.h>

struct child {
	pid_t pid;
	FILE *out;
	char line[512];
};

/* Runs `e2e --role ROLE ARG…`, up to a NULL. */
void child_start(struct child *c, const char *role, ...) __attribute__((sentinel));
/* Waits for its next line, which must begin with `word`; returns what follows. */
const char *child_says(struct child *c, const char *word);
void child_signal(struct child *c, int sig);
/* SIGKILL, and reaps it. */
void child_kill(struct child *c);
/* Waits for its end; gives the exit status, or 128 + signal. */
int child_end(struct child *c);

/* In the child. */
int role_main(const char *role, int argc, char **argv);
int hostile_role(char **arg);
int rogue_role(char **arg);
/* Writes a line to the test. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Says the word, and waits to be killed. */
void say_and_stay(const char *word) __attribute__((noreturn));

#endif

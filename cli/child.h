/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes that a command starts: a server, trainers. Each is this same program again
 * (/proc/self/exe), because a process that forks after RDMA devices were opened can't use them in
 * the child. A child's stdout is a pipe to the parent, read line by line; its stderr is the
 * parent's.
 *
 * Invariants:
 *  1. No child outlives the parent: the kernel kills it when the parent dies, however it dies
 *     (PR_SET_PDEATHSIG), and children_end ends and reaps all that are left.
 *  2. Every line that a child wrote is handed out before its end is.
 *  3. While a set exists SIGINT, SIGTERM, SIGHUP and SIGCHLD reach the parent only through
 *     children_wait.
 *
 * One thread, one set at a time.
 */
#ifndef GS_CLI_CHILD_H
#define GS_CLI_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct children;
struct child;

enum child_event_kind {
	CHILD_LINE,   /* line: without its end, valid until the next children_wait */
	CHILD_ENDED,  /* see child_failed */
	CHILD_SIGNAL, /* somebody wants this process to end: signal */
	CHILD_TIMEOUT,
};

struct child_event {
	enum child_event_kind kind;
	struct child *child;
	char *line;
	int signal;
};

/* Errors of all: negative errno with err_text(). */
int children_create(struct children **out);
/* Ends what still runs: SIGTERM, after `grace_ms` SIGKILL; then reaps it. Lines that come meanwhile
 * are dropped. */
void children_end(struct children *set, int grace_ms);
/* children_end with a short grace, then frees the set and gives signals back. NULL is allowed. */
void children_destroy(struct children *set);

/* A child's arguments; begins as {0}. */
struct child_args {
	unsigned n;
	size_t used;
	const char *v[48];
	char text[4096];
};
/* Adds one argument. One that does not fit makes child_start fail. */
void child_arg(struct child_args *args, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Starts /proc/self/exe with these arguments (the first is the command). `name` is for messages
 * ("trainer 1"). *out lives as long as the set. */
int child_start(struct children *set, const char *name, const struct child_args *args,
		struct child **out);
/* After its CHILD_ENDED: frees it, so that a set in which children come and go doesn't grow. */
void child_forget(struct children *set, struct child *child);
const char *child_name(const struct child *child);
bool child_running(const struct child *child);
pid_t child_pid(const struct child *child);
/* After CHILD_ENDED: true unless it exited with status 0. Then `reason` says how, as a text that
 * follows the child's name: "was killed by signal 9 (Killed)", "exited with status 1". */
bool child_failed(const struct child *child, char *reason, size_t size);

/* Waits for the next event, at most timeout_ms (-1: no limit). Returns 0, or a negative errno. */
int children_wait(struct children *set, int timeout_ms, struct child_event *ev);

#endif

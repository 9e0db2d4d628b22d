/* SPDX-License-Identifier: Apache-2.0
 *
 * Child processes: one poll(2) over a signalfd and the children's pipes.
 */
#include "cli/child.h"

#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* A benchmark of 1024 trainers, its server, and the oracle; and how many bytes one line may have.
 */
enum { CHILDREN_MAX = 1026, LINE_MAX_BYTES = 64 << 20, READ_CHUNK = 64 << 10 };

enum { ARGS_MAX = sizeof(((struct child_args *)0)->v) / sizeof(const char *) };

struct child {
	char name[48];
	pid_t pid;     /* 0 once reaped */
	int status;    /* of waitpid */
	int out;       /* -1 once its end was read */
	bool reported; /* CHILD_ENDED was handed out */
	char *buf;     /* [taken, len) was read and not handed out yet */
	size_t taken, len, cap;
};

struct children {
	int signals;
	sigset_t before;
	unsigned n, turn;
	struct child *list[CHILDREN_MAX];
};

int children_create(struct children **out)
{
	struct children *set = calloc(1, sizeof(*set));
	sigset_t mask;

	if (!set)
		return err_set(ENOMEM, "no memory for a set of processes");
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, &set->before);
	set->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (set->signals < 0) {
		int rc = err_set(errno, "signalfd: %s", strerror(errno));
		sigprocmask(SIG_SETMASK, &set->before, NULL);
		free(set);
		return rc;
	}
	*out = set;
	return 0;
}

/* Runs in the new process, where only async-signal-safe functions are allowed. */
static void run(const struct children *set, pid_t parent, int out, char *const *argv)
{
	static const char lost[] = "gradslot: /proc/self/exe can't be started\n";
	int null = open("/dev/null", O_RDONLY);

	/* The parent may have died before the request was made; then nobody would send the signal.
	 */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &set->before, NULL);
	execv("/proc/self/exe", argv);
	if (write(STDERR_FILENO, lost, sizeof(lost) - 1) < 0)
		_exit(126);
	_exit(127);
}

void child_arg(struct child_args *args, const char *fmt, ...)
{
	char *at = args->text + args->used;
	size_t room = sizeof(args->text) - args->used;
	va_list ap;

	va_start(ap, fmt);
	int len = vsnprintf(at, room, fmt, ap);
	va_end(ap);
	/* An argument that does not fit leaves n past the end for child_start to find. */
	if (len < 0 || (size_t)len >= room || args->n >= ARGS_MAX) {
		args->n = ARGS_MAX + 1;
		return;
	}
	args->v[args->n++] = at;
	args->used += (size_t)len + 1;
}

int child_start(struct children *set, const char *name, const struct child_args *args,
		struct child **out)
{
	const char *argv[ARGS_MAX + 2] = {"gradslot"};
	struct child *c = calloc(1, sizeof(*c));
	int ends[2];

	if (args->n > ARGS_MAX) {
		free(c);
		return err_set(E2BIG, "too many arguments for %s", name);
	}
	memcpy(argv + 1, args->v, args->n * sizeof(args->v[0]));
	if (!c || set->n == CHILDREN_MAX) {
		free(c);
		return err_set(ENOMEM, "no room for one more process than %u", set->n);
	}
	if (pipe2(ends, O_CLOEXEC) < 0) {
		free(c);
		return err_set(errno, "pipe for %s: %s", name, strerror(errno));
	}
	snprintf(c->name, sizeof(c->name), "%s", name);
	c->out = ends[0];
	fcntl(c->out, F_SETFL, O_NONBLOCK);
	pid_t parent = getpid();
	c->pid = fork();
	if (c->pid == 0)
		run(set, parent, ends[1], (char *const *)argv);
	int failed = errno;
	close(ends[1]);
	if (c->pid < 0) {
		close(ends[0]);
		free(c);
		return err_set(failed, "can't start %s: %s", name, strerror(failed));
	}
	set->list[set->n++] = c;
	*out = c;
	return 0;
}

static void child_free(struct child *c)
{
	if (c->out >= 0)
		close(c->out);
	free(c->buf);
	free(c);
}

void child_forget(struct children *set, struct child *child)
{
	for (unsigned i = 0; i < set->n; i++) {
		if (set->list[i] != child)
			continue;
		memmove(&set->list[i], &set->list[i + 1],
			(--set->n - i) * sizeof(set->list[0]));
		child_free(child);
		return;
	}
}

const char *child_name(const struct child *child)
{
	return child->name;
}

bool child_running(const struct child *child)
{
	return child->pid != 0;
}

pid_t child_pid(const struct child *child)
{
	return child->pid;
}

bool child_failed(const struct child *child, char *reason, size_t size)
{
	int status = child->status;

	if (WIFSIGNALED(status))
		snprintf(reason, size, "was killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		snprintf(reason, size, "exited with status %d", WEXITSTATUS(status));
	else
		return false;
	return true;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Takes the next whole line out of what was read; what follows the last line end counts as a line
 * once the pipe has ended. */
static char *next_line(struct child *c)
{
	char *from = c->buf + c->taken;
	char *end = c->len > c->taken ? memchr(from, '\n', c->len - c->taken) : NULL;

	if (end) {
		*end = 0;
		c->taken = (size_t)(end - c->buf) + 1;
		return from;
	}
	if (c->out < 0 && c->taken < c->len) {
		c->buf[c->len] = 0;
		c->taken = c->len;
		return from;
	}
	return NULL;
}

static int make_room(struct child *c)
{
	if (c->taken) {
		memmove(c->buf, c->buf + c->taken, c->len - c->taken);
		c->len -= c->taken;
		c->taken = 0;
	}
	if (c->cap - c->len > READ_CHUNK)
		return 0;
	if (c->len > LINE_MAX_BYTES)
		return err_set(EMSGSIZE, "%s wrote a line of more than %d bytes", c->name,
			       LINE_MAX_BYTES);
	size_t cap = c->cap ? 2 * c->cap : 4 * READ_CHUNK;
	char *buf = realloc(c->buf, cap);
	if (!buf)
		return err_set(ENOMEM, "no memory for the output of %s", c->name);
	c->buf = buf;
	c->cap = cap;
	return 0;
}

static int read_some(struct child *c)
{
	int rc = make_room(c);

	if (rc < 0)
		return rc;
	ssize_t n = read(c->out, c->buf + c->len, READ_CHUNK);
	if (n > 0) {
		c->len += (size_t)n;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		close(c->out);
		c->out = -1;
	}
	return 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void reap(struct children *set)
{
	for (unsigned i = 0; i < set->n; i++) {
		struct child *c = set->list[i];
		if (c->pid && waitpid(c->pid, &c->status, WNOHANG) == c->pid)
			c->pid = 0;
	}
}

/* An event that needs no system call; children take turns. */
static bool take_event(struct children *set, struct child_event *ev)
{
	for (unsigned i = 0; i < set->n; i++) {
		struct child *c = set->list[(set->turn + i) % set->n];
		char *line = next_line(c);

		if (line || (!c->pid && c->out < 0 && !c->reported)) {
			set->turn = (set->turn + i + 1) % set->n;
			c->reported |= !line;
			*ev = (struct child_event){
			    .kind = line ? CHILD_LINE : CHILD_ENDED, .child = c, .line = line};
			return true;
		}
	}
	return false;
}

/* Returns the signal that asks this process to end, or 0. */
static int take_signals(struct children *set)
{
	struct signalfd_siginfo info;

	while (read(set->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGCHLD)
			return (int)info.ssi_signo;
		reap(set);
	}
	return 0;
}

static int poll_once(struct children *set, int timeout_ms, int *signal_out)
{
	struct pollfd fds[CHILDREN_MAX + 1] = {{.fd = set->signals, .events = POLLIN}};

	for (unsigned i = 0; i < set->n; i++)
		fds[i + 1] = (struct pollfd){.fd = set->list[i]->out, .events = POLLIN};
	if (poll(fds, set->n + 1, timeout_ms) < 0 && errno != EINTR)
		return err_set(errno, "poll: %s", strerror(errno));
	for (unsigned i = 0; i < set->n; i++) {
		if (!fds[i + 1].revents)
			continue;
		int rc = read_some(set->list[i]);
		if (rc < 0)
			return rc;
	}
	if (fds[0].revents)
		*signal_out = take_signals(set);
	return 0;
}

int children_wait(struct children *set, int timeout_ms, struct child_event *ev)
{
	uint64_t end = clock_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * NS_PER_MS;

	for (bool late = false;;) {
		int left = -1, signo = 0;

		if (take_event(set, ev))
			return 0;
		if (late) {
			*ev = (struct child_event){.kind = CHILD_TIMEOUT};
			return 0;
		}
		if (timeout_ms >= 0) {
			uint64_t now = clock_ns();
			late = now >= end;
			left = late ? 0 : (int)((end - now + NS_PER_MS - 1) / NS_PER_MS);
		}
		int rc = poll_once(set, left, &signo);
		if (rc < 0)
			return rc;
		if (signo) {
			*ev = (struct child_event){.kind = CHILD_SIGNAL, .signal = signo};
			return 0;
		}
	}
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool all_reaped(const struct children *set)
{
	for (unsigned i = 0; i < set->n; i++) {
		if (set->list[i]->pid)
			return false;
	}
	return true;
}

static void kill_all(const struct children *set, int signo)
{
	for (unsigned i = 0; i < set->n; i++) {
		if (set->list[i]->pid)
			kill(set->list[i]->pid, signo);
	}
}

void children_end(struct children *set, int grace_ms)
{
	uint64_t deadline = clock_ns() + (uint64_t)grace_ms * NS_PER_MS;
	bool killed = false;

	kill_all(set, SIGTERM);
	for (reap(set); !all_reaped(set); reap(set)) {
		struct pollfd fd = {.fd = set->signals, .events = POLLIN};

		if (!killed && clock_ns() >= deadline) {
			kill_all(set, SIGKILL);
			killed = true;
		}
		/* SIGCHLD wakes it; the timeout is for the grace, and for a SIGCHLD that was taken
		 * together with an earlier one. */
		poll(&fd, 1, 20);
		take_signals(set);
	}
}

void children_destroy(struct children *set)
{
	if (!set)
		return;
	children_end(set, 2000);
	for (unsigned i = 0; i < set->n; i++)
		child_free(set->list[i]);
	close(set->signals);
	sigprocmask(SIG_SETMASK, &set->before, NULL);
	free(set);
}

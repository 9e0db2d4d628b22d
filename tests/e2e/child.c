/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting, hearing and ending child processes.
 */
#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

extern char **environ;

void child_start(struct child *c, const char *role, ...)
{
	const char *argv[16] = {"e2e", "--role", role};
	posix_spawn_file_actions_t actions;
	int fd[2], n = 3, rc;
	va_list ap;

	va_start(ap, role);
	while ((argv[n] = va_arg(ap, const char *)))
		must(++n < 16, "too many arguments");
	va_end(ap);
	must(pipe2(fd, O_CLOEXEC) == 0, "no pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
	rc = posix_spawn(&c->pid, "/proc/self/exe", &actions, NULL, (char *const *)(uintptr_t)argv,
			 environ);
	posix_spawn_file_actions_destroy(&actions);
	must(rc == 0, "no child: %s", strerror(rc));
	close(fd[1]);
	c->out = fdopen(fd[0], "r");
	setvbuf(c->out, NULL, _IONBF, 0);
}

const char *child_says(struct child *c, const char *word)
{
	struct pollfd fd = {.fd = fileno(c->out), .events = POLLIN};
	size_t n = strlen(word);

	must(poll(&fd, 1, (int)scaled(20000, 90000)) == 1, "the child never said \"%s\"", word);
	must(fgets(c->line, sizeof(c->line), c->out), "the child ended without \"%s\"", word);
	c->line[strcspn(c->line, "\n")] = 0;
	must(strncmp(c->line, word, n) == 0, "the child said \"%s\", not \"%s\"", c->line, word);
	return c->line[n] ? c->line + n + 1 : c->line + n;
}

void child_signal(struct child *c, int sig)
{
	must(kill(c->pid, sig) == 0, "kill: %s", strerror(errno));
}

int child_end(struct child *c)
{
	int status;

	must(waitpid(c->pid, &status, 0) == c->pid, "waitpid: %s", strerror(errno));
	fclose(c->out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void child_kill(struct child *c)
{
	child_signal(c, SIGKILL);
	must(child_end(c) == 128 + SIGKILL, "it was not killed");
}

/* ---- in the child
 * -------------------------------------------------------------------------------- */

void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

void say_and_stay(const char *word)
{
	say("%s", word);
	for (;;)
		pause();
}

bool e2e_in_role;

void role_fails(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "%s:%d: ", file, line);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	_exit(3);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * One file descriptor a thread.
 */
#include "perf/counter.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"

enum { THREADS_MAX = 512 };

struct counter {
	unsigned n;
	int fd[THREADS_MAX];
};

static int open_one(struct counter *c, pid_t thread, struct perf_event_attr *attr)
{
	long fd = syscall(SYS_perf_event_open, attr, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return err_set(errno, "perf_event_open: %s", strerror(errno));
	c->fd[c->n++] = (int)fd;
	return 0;
}

static int open_all(struct counter *c, pid_t pid, struct perf_event_attr *attr)
{
	char path[64];
	struct dirent *e;
	int rc = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *dir = opendir(path);
	if (!dir)
		return err_set(ESRCH, "there is no process %d", (int)pid);
	while (rc == 0 && c->n < THREADS_MAX && (e = readdir(dir))) {
		if (e->d_name[0] != '.')
			rc = open_one(c, (pid_t)atoi(e->d_name), attr);
	}
	closedir(dir);
	return rc;
}

int counter_open(pid_t pid, uint32_t type, uint64_t config, struct counter **out)
{
	struct perf_event_attr attr = {
	    .type = type,
	    .size = sizeof(attr),
	    .config = config,
	    .exclude_kernel = 1,
	    .exclude_hv = 1,
	};
	struct counter *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(ENOMEM, "no memory for a counter");
	int rc = open_all(c, pid ? pid : getpid(), &attr);
	if (rc < 0) {
		counter_close(c);
		return rc;
	}
	*out = c;
	return 0;
}

uint64_t counter_read(const struct counter *c)
{
	uint64_t sum = 0, value;

	for (unsigned i = 0; i < c->n; i++) {
		if (read(c->fd[i], &value, sizeof(value)) == sizeof(value))
			sum += value;
	}
	return sum;
}

void counter_close(struct counter *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < c->n; i++)
		close(c->fd[i]);
	free(c);
}

int counter_open_instructions(pid_t pid, struct counter **out)
{
	return counter_open(pid, PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, out);
}

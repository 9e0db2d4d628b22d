/* SPDX-License-Identifier: Apache-2.0
 *
 * Watching this process's address space.
 */
#include "transport/verbs/vmwatch.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define EVENTS (UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE)

/* `life` is for joining and leaving and comes first; `lock` is the one of vmwatch_lock. */
static struct {
	pthread_mutex_t life, lock;
	struct vmwatch *members;
	int fd, stop;
	pthread_t thread;
} watch = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, NULL, -1, -1, 0};

void vmwatch_lock(void)
{
	pthread_mutex_lock(&watch.lock);
}

void vmwatch_unlock(void)
{
	pthread_mutex_unlock(&watch.lock);
}

/* ---- the thread -------------------------------------------------------------------------------- */

static void tell(uint64_t first, uint64_t end)
{
	for (struct vmwatch *w = watch.members; w; w = w->next)
		w->gone(w, (uintptr_t)first, (uintptr_t)end);
}

static void on_event(const struct uffd_msg *msg)
{
	switch (msg->event) {
	case UFFD_EVENT_UNMAP:
	case UFFD_EVENT_REMOVE:
		tell(msg->arg.remove.start, msg->arg.remove.end);
		break;
	case UFFD_EVENT_REMAP:
		tell(msg->arg.remap.from, msg->arg.remap.from + msg->arg.remap.len);
		tell(msg->arg.remap.to, msg->arg.remap.to + msg->arg.remap.len);
		break;
	default:
		break; /* no other was asked for */
	}
}

/* Reading is what lets the caller of munmap go on, so it is done under the lock. Nothing here may
 * allocate or free. */
static void drain(void)
{
	struct uffd_msg msg;

	vmwatch_lock();
	while (read(watch.fd, &msg, sizeof(msg)) == (ssize_t)sizeof(msg))
		on_event(&msg);
	vmwatch_unlock();
}

static void *monitor(void *arg)
{
	struct pollfd fds[2] = {{.fd = watch.fd, .events = POLLIN},
				{.fd = watch.stop, .events = POLLIN}};

	while (!fds[1].revents) {
		if (poll(fds, 2, -1) > 0 && fds[0].revents)
			drain();
	}
	return arg;
}

/* ---- beginning and end ------------------------------------------------------------------------- */

static int refused(int err, const char *what)
{
	return err_set(EOPNOTSUPP,
		       "changes of the address space can't be watched: %s: %s%s", what,
		       strerror(err),
		       err == EPERM ? " (a container may forbid userfaultfd; on kernels before 5.11 "
				      "the sysctl vm.unprivileged_userfaultfd must be 1)"
				    : "");
}

static int open_fd(void)
{
	struct uffdio_api api = {.api = UFFD_API, .features = EVENTS};
	long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

	if (fd < 0 && errno == EINVAL) /* before 5.11 */
		fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return refused(errno, "userfaultfd");
	if (ioctl((int)fd, UFFDIO_API, &api) != 0) {
		int err = errno;

		close((int)fd);
		return refused(err, "its events");
	}
	return (int)fd;
}

static int start_thread(void)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&watch.thread, NULL, monitor, NULL);

	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc ? err_set(ENOMEM, "no thread to watch the address space: %s", strerror(rc)) : 0;
}

static void close_fds(void)
{
	if (watch.fd >= 0)
		close(watch.fd);
	if (watch.stop >= 0)
		close(watch.stop);
	watch.fd = watch.stop = -1;
}

/* A child has none of it; what its parent had stays the parent's. */
static void in_child(void)
{
	pthread_mutex_init(&watch.life, NULL);
	pthread_mutex_init(&watch.lock, NULL);
	watch.members = NULL;
	close_fds();
}

static void register_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

static int begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_fork);
	int rc = open_fd();

	if (rc < 0)
		return rc;
	watch.fd = rc;
	watch.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = watch.stop < 0 ? err_set(ENOMEM, "eventfd: %s", strerror(errno)) : start_thread();
	if (rc < 0)
		close_fds();
	return rc;
}

int vmwatch_join(struct vmwatch *w)
{
	pthread_mutex_lock(&watch.life);
	int rc = watch.members ? 0 : begin();

	if (rc == 0) {
		vmwatch_lock();
		w->next = watch.members;
		watch.members = w;
		vmwatch_unlock();
	}
	pthread_mutex_unlock(&watch.life);
	return rc;
}

void vmwatch_leave(struct vmwatch *w)
{
	struct vmwatch **at = &watch.members;
	uint64_t one = 1;

	pthread_mutex_lock(&watch.life);
	vmwatch_lock();
	while (*at && *at != w)
		at = &(*at)->next;
	bool last = *at && !w->next && at == &watch.members;

	if (*at)
		*at = w->next;
	vmwatch_unlock();
	if (last && write(watch.stop, &one, sizeof(one)) == (ssize_t)sizeof(one)) {
		pthread_join(watch.thread, NULL);
		/* With it go all ranges that are watched. */
		close_fds();
	}
	pthread_mutex_unlock(&watch.life);
}

/* ---- ranges ------------------------------------------------------------------------------------ */

/* A line of /proc/self/maps: of a mapping that is private, and of no file. */
static bool takes_part(const char *line, uintptr_t *first, uintptr_t *end)
{
	char flags[5];
	uint64_t inode;

	return sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %" SCNu64, first, end, flags,
		      &inode) == 4 &&
	       flags[3] == 'p' && inode == 0;
}

bool vmwatch_is_anonymous(uintptr_t first, uintptr_t end)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];

	while (maps && first < end && fgets(line, sizeof(line), maps)) {
		uintptr_t from, to;

		/* They come in ascending order. */
		if (takes_part(line, &from, &to) && from <= first && first < to)
			first = to;
	}
	if (maps)
		fclose(maps);
	return first >= end;
}

int vmwatch_add(uintptr_t first, uintptr_t end)
{
	struct uffdio_register range = {.range = {.start = first, .len = end - first},
					.mode = UFFDIO_REGISTER_MODE_WP};

	return ioctl(watch.fd, UFFDIO_REGISTER, &range) == 0 ? 0 : refused(errno, "UFFDIO_REGISTER");
}

void vmwatch_drop(uintptr_t first, uintptr_t end)
{
	struct uffdio_range range = {.start = first, .len = end - first};

	for (struct vmwatch *w = watch.members; w; w = w->next)
		if (w->wants(w, first, end))
			return;
	/* What is no longer mapped, or of another kind by now, is not watched as it is. */
	(void)ioctl(watch.fd, UFFDIO_UNREGISTER, &range);
}

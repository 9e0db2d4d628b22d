/* SPDX-License-Identifier: Apache-2.0
 *
 * Two processes that wake each other by turns.
 */
#include "perf/wake.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "perf/percentile.h"

enum { WARMUP = 20 };

static bool wake(int fd)
{
	const uint64_t one = 1;

	return write(fd, &one, sizeof(one)) == sizeof(one);
}

static bool sleep_on(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) == sizeof(count);
}

static _Noreturn void answer(int mine, int other)
{
	while (sleep_on(mine) && wake(other))
		;
	_exit(1);
}

/* Keeps a process on the which-th core of those that it may run on. */
static bool stay_on(pid_t pid, unsigned which)
{
	cpu_set_t may, one;

	if (sched_getaffinity(pid, sizeof(may), &may))
		return false;
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &may) && which-- == 0) {
			CPU_SET(i, &one);
			return sched_setaffinity(pid, sizeof(one), &one) == 0;
		}
	}
	errno = EINVAL;
	return false;
}

static bool measure(int mine, int other, uint64_t *ns, unsigned trips)
{
	for (unsigned i = 0; i < WARMUP + trips; i++) {
		uint64_t began = clock_ns();

		if (!wake(other) || !sleep_on(mine))
			return false;
		if (i >= WARMUP)
			ns[i - WARMUP] = clock_ns() - began;
	}
	return true;
}

static bool place(pid_t parent, pid_t child)
{
	return stay_on(child, 1) && stay_on(parent, 0);
}

static double with_child(int mine, int other, uint64_t *ns, unsigned trips, bool apart)
{
	pid_t parent = getpid(), child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			answer(other, mine);
		_exit(1);
	}
	bool ok = child > 0 && (!apart || place(parent, child)) && measure(mine, other, ns, trips);
	int error = errno;
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	if (!ok) {
		err_set(error, "two processes could not wake one another");
		return NAN;
	}
	perf_sort(ns, trips);
	return (double)perf_percentile(ns, trips, 5000) / 1e3;
}

double wake_round_trip_us(unsigned trips, bool apart)
{
	uint64_t *ns = calloc(trips, sizeof(*ns));
	int mine = eventfd(0, EFD_CLOEXEC), other = eventfd(0, EFD_CLOEXEC);
	cpu_set_t before;
	double us = NAN;

	if (ns && mine >= 0 && other >= 0 && !sched_getaffinity(0, sizeof(before), &before)) {
		us = with_child(mine, other, ns, trips, apart);
		sched_setaffinity(0, sizeof(before), &before);
	} else {
		err_set(errno, "no eventfd, or no memory for %u times", trips);
	}
	if (mine >= 0)
		close(mine);
	if (other >= 0)
		close(other);
	free(ns);
	return us;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Round trips between two processes over a pair of eventfds.
 */
#include "perf/wake.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "perf/percentile.h"

enum { WARMUP = 20 };

/* Answers until it is killed. */
static void answer(int from, int to)
{
	eventfd_t count;

	while (eventfd_read(from, &count) == 0 && eventfd_write(to, 1) == 0)
		if (count > 1)
			break; /* told to end */
	_exit(0);
}

/* The set is read once: a thread that was pinned sees one CPU. */
void wake_pin(unsigned i)
{
	static cpu_set_t all;
	cpu_set_t one;

	if (CPU_COUNT(&all) == 0 && sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	i %= (unsigned)CPU_COUNT(&all);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && i-- == 0)
			CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static int round_trip(int to, int from, uint64_t *ns)
{
	eventfd_t count;
	uint64_t began = clock_ns();

	if (eventfd_write(to, 1) < 0 || eventfd_read(from, &count) < 0)
		return -1;
	*ns = clock_ns() - began;
	return 0;
}

static double median_us(int to, int from, unsigned rounds)
{
	uint64_t *times = malloc((rounds + WARMUP) * sizeof(*times));
	double us = 0;
	unsigned n = 0;

	while (times && n < rounds + WARMUP && round_trip(to, from, &times[n]) == 0)
		n++;
	if (n == rounds + WARMUP) {
		perf_sort(times + WARMUP, rounds);
		us = (double)perf_percentile(times + WARMUP, rounds, 5000) / 1e3;
	}
	free(times);
	return us;
}

double wake_round_trip_us(unsigned rounds)
{
	int there = eventfd(0, EFD_CLOEXEC), back = eventfd(0, EFD_CLOEXEC);
	double us = 0;
	pid_t pid;

	if (there >= 0 && back >= 0 && (pid = fork()) >= 0) {
		if (pid == 0) {
			wake_pin(1);
			answer(there, back);
		}
		us = median_us(there, back, rounds);
		eventfd_write(there, 2);
		waitpid(pid, NULL, 0);
	}
	close(there);
	close(back);
	return us;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Two threads and a ball. Round trips are timed in batches, so that the clock's own cost does not
 * count; the median over batches leaves out those in which a core was taken away.
 */
#include "perf/probe.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "perf/percentile.h"

enum {
	BATCH = 64, /* round trips under one look at the clock */
	BATCHES_MAX = 1024,
	MEASURE_MS = 2,
	PATIENCE_MS = 100,
	LOOK_EVERY = 4096, /* turns of a wait between looks at the clock */
	LINE = 128,        /* adjacent lines are fetched in pairs by some CPUs */
};

struct game {
	_Alignas(LINE) atomic_uint ball; /* odd: the second player's turn */
	_Alignas(LINE) atomic_bool over;
	_Alignas(LINE) uint64_t give_up; /* on the clock */
	uint64_t ns[BATCHES_MAX];
	size_t n;
};

/* False when the game is over, or has taken too long. */
static bool wait_for(struct game *g, unsigned value)
{
	for (unsigned turn = 1; atomic_load_explicit(&g->ball, memory_order_acquire) != value;
	     turn++) {
		if (turn % LOOK_EVERY == 0 && (atomic_load(&g->over) || clock_ns() > g->give_up))
			return false;
	}
	return true;
}

static bool batch(struct game *g, unsigned *value)
{
	for (unsigned i = 0; i < BATCH; i++) {
		atomic_store_explicit(&g->ball, *value + 1, memory_order_release);
		*value += 2;
		if (!wait_for(g, *value))
			return false;
	}
	return true;
}

static void *first(void *arg)
{
	struct game *g = arg;
	unsigned value = 0;

	/* The first batch waits for the other player to come, and is not counted. */
	bool on = batch(g, &value);
	uint64_t last = clock_ns(), until = last + MEASURE_MS * NS_PER_MS;
	while (on && g->n < BATCHES_MAX && last < until) {
		on = batch(g, &value);
		uint64_t now = clock_ns();
		if (on)
			g->ns[g->n++] = now - last;
		last = now;
	}
	atomic_store(&g->over, true);
	return NULL;
}

static void *second(void *arg)
{
	struct game *g = arg;

	for (unsigned value = 1; wait_for(g, value); value += 2)
		atomic_store_explicit(&g->ball, value + 1, memory_order_release);
	return NULL;
}

static bool start(pthread_t *thread, int core, void *(*play)(void *), struct game *g)
{
	pthread_attr_t attr;
	cpu_set_t cores;

	if (core < 0 || core >= CPU_SETSIZE || pthread_attr_init(&attr))
		return false;
	CPU_ZERO(&cores);
	CPU_SET(core, &cores);
	bool ok = pthread_attr_setaffinity_np(&attr, sizeof(cores), &cores) == 0 &&
		  pthread_create(thread, &attr, play, g) == 0;
	pthread_attr_destroy(&attr);
	return ok;
}

double probe_pair_ns(int a, int b)
{
	struct game g = {.give_up = clock_ns() + PATIENCE_MS * NS_PER_MS};
	pthread_t one, two;

	if (a == b || !start(&two, b, second, &g))
		return NAN;
	if (start(&one, a, first, &g))
		pthread_join(one, NULL);
	atomic_store(&g.over, true);
	pthread_join(two, NULL);
	if (g.n == 0)
		return NAN;
	perf_sort(g.ns, g.n);
	return (double)perf_percentile(g.ns, g.n, 5000) / (2.0 * BATCH);
}

double probe_core_to_core_ns(void)
{
	cpu_set_t cores;
	int found[2], n = 0;

	if (sched_getaffinity(0, sizeof(cores), &cores))
		return NAN;
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++) {
		if (CPU_ISSET(i, &cores))
			found[n++] = i;
	}
	return n == 2 ? probe_pair_ns(found[0], found[1]) : NAN;
}

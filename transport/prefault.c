/* SPDX-License-Identifier: Apache-2.0
 *
 * Touching memory before it is used: the kernel clears each page, which takes longer than any later
 * use of it, and clears on as many CPUs as ask.
 */
#include "transport/prefault.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* A thread costs less than a hundredth of a chunk. Whole huge pages, so that no two threads want the
 * same one. */
#define CHUNK ((size_t)32 << 20)

enum { HELPERS_MAX = 31 };

struct work {
	char *base;
	size_t size;
	atomic_size_t next; /* nobody has taken what is from here on */
	atomic_int err;
};

static int touch(char *base, size_t size)
{
	if (madvise(base, size, MADV_POPULATE_WRITE) == 0)
		return 0;
	/* EINVAL: a kernel before 5.14, where each page is touched by hand. */
	if (errno != EINVAL)
		return -errno;
	for (size_t at = 0; at < size; at += 4096)
		((volatile char *)base)[at] = 0;
	return 0;
}

static void *take_chunks(void *arg)
{
	struct work *w = arg;

	while (!atomic_load(&w->err)) {
		size_t at = atomic_fetch_add(&w->next, CHUNK);

		if (at >= w->size)
			break;
		int rc = touch(w->base + at, w->size - at < CHUNK ? w->size - at : CHUNK);

		if (rc < 0)
			atomic_store(&w->err, rc);
	}
	return NULL;
}

static unsigned helpers(size_t size)
{
	cpu_set_t cpus;
	size_t n = (size - 1) / CHUNK;

	if (n > HELPERS_MAX)
		n = HELPERS_MAX;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return 0;
	size_t others = (size_t)CPU_COUNT(&cpus) - 1;

	return (unsigned)(n < others ? n : others);
}

int tp_prefault(void *base, size_t size)
{
	struct work w = {.base = base, .size = size};
	pthread_t thread[HELPERS_MAX];
	unsigned n = 0, want = helpers(size);
	sigset_t all, before;

	/* The program's signals are not for these. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* One less is no failure: the others do its part. */
	while (n < want && pthread_create(&thread[n], NULL, take_chunks, &w) == 0)
		n++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	take_chunks(&w);
	for (unsigned i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	return atomic_load(&w.err);
}

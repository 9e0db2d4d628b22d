/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls out of instrumented code that touch memory for it (the linker's --wrap), and those that say
 * what memory and what threads are.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "perf/sharing.d/observe.h"
#include "server/queue.h"

#define HERE	     ((uintptr_t)__builtin_return_address(0))
#define WRAP(type, name, ...)                                                                      \
	type __real_##name(__VA_ARGS__);                                                           \
	type __wrap_##name(__VA_ARGS__);                                                           \
	type __wrap_##name(__VA_ARGS__)

WRAP(void *, memcpy, void *to, const void *from, size_t len)
{
	observe_access(from, len, OBSERVE_READ, HERE);
	observe_access(to, len, OBSERVE_WRITE, HERE);
	return __real_memcpy(to, from, len);
}

WRAP(void *, memset, void *to, int value, size_t len)
{
	observe_access(to, len, OBSERVE_WRITE, HERE);
	return __real_memset(to, value, len);
}

/* A lock is a word that is taken. */
WRAP(int, pthread_spin_lock, pthread_spinlock_t *lock)
{
	observe_access(lock, sizeof(*lock), OBSERVE_WRITE, HERE);
	return __real_pthread_spin_lock(lock);
}

WRAP(int, pthread_spin_unlock, pthread_spinlock_t *lock)
{
	observe_access(lock, sizeof(*lock), OBSERVE_WRITE, HERE);
	return __real_pthread_spin_unlock(lock);
}

WRAP(int, pthread_mutex_lock, pthread_mutex_t *lock)
{
	observe_access(lock, sizeof(*lock), OBSERVE_WRITE, HERE);
	return __real_pthread_mutex_lock(lock);
}

WRAP(int, pthread_mutex_unlock, pthread_mutex_t *lock)
{
	observe_access(lock, sizeof(*lock), OBSERVE_WRITE, HERE);
	return __real_pthread_mutex_unlock(lock);
}

/* The exchange in it is assembly. */
WRAP(void, queue_push, struct queue *q, struct queue_node *node)
{
	observe_access(&q->tail, sizeof(q->tail.p), OBSERVE_WRITE, HERE);
	__real_queue_push(q, node);
}

WRAP(void *, malloc, size_t len)
{
	void *at = __real_malloc(len);

	observe_allocated(at, len, HERE);
	return at;
}

WRAP(void *, calloc, size_t n, size_t len)
{
	void *at = __real_calloc(n, len);

	observe_allocated(at, n * len, HERE);
	return at;
}

WRAP(void *, realloc, void *old, size_t len)
{
	void *at = __real_realloc(old, len);

	observe_allocated(at, len, HERE);
	return at;
}

WRAP(void *, aligned_alloc, size_t align, size_t len)
{
	void *at = __real_aligned_alloc(align, len);

	observe_allocated(at, len, HERE);
	return at;
}

struct start {
	struct observe_birth birth;
	void *(*entry)(void *);
	void *arg;
};

static void *begin(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	observe_born(&start.birth);
	return start.entry(start.arg);
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attr, void *(*entry)(void *),
     void *arg)
{
	struct start *start = __real_malloc(sizeof(*start));

	if (!start)
		abort();
	*start = (struct start){.birth = observe_birth(entry), .entry = entry, .arg = arg};
	int rc = __real_pthread_create(thread, attr, begin, start);

	if (rc)
		free(start);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The allocations, wrapped.
 */
#include "alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

/* WRAP(type, name, (parameters), (arguments), what a failure gives) */
#define WRAP(type, name, params, args, failure)                     \
	type __real_##name params;                                  \
	type __wrap_##name params;                                  \
	type __wrap_##name params                                   \
	{                                                           \
		return fails(#name) ? failure : __real_##name args; \
	}

static atomic_uint_fast64_t count;
static uint64_t victim;
static _Atomic(const char *) failed;
static _Thread_local bool exempt_here;

void alloc_fail_at(uint64_t n)
{
	victim = n;
	atomic_store(&count, 0);
	atomic_store(&failed, NULL);
}

uint64_t alloc_count(void)
{
	return atomic_load(&count);
}

const char *alloc_failed(void)
{
	return atomic_load(&failed);
}

void alloc_exempt(bool exempt)
{
	exempt_here = exempt;
}

static bool fails(const char *name)
{
	if (exempt_here || atomic_fetch_add(&count, 1) + 1 != victim)
		return false;
	atomic_store(&failed, name);
	errno = ENOMEM;
	return true;
}

WRAP(void *, malloc, (size_t n), (n), NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL)
WRAP(void *, realloc, (void *p, size_t n), (p, n), NULL)
WRAP(void *, aligned_alloc, (size_t to, size_t n), (to, n), NULL)
WRAP(int, posix_memalign, (void **p, size_t to, size_t n), (p, to, n), ENOMEM)
WRAP(char *, strdup, (const char *s), (s), NULL)
WRAP(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t off),
     (at, n, prot, flags, fd, off), MAP_FAILED)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1)
WRAP(int, eventfd, (unsigned value, int flags), (value, flags), -1)
WRAP(int, epoll_create1, (int flags), (flags), -1)
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
     (thread, attr, run, arg), EAGAIN)

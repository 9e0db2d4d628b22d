/* SPDX-License-Identifier: Apache-2.0 */
#include "pages.h"

#include <errno.h>
#include <sys/mman.h>

#include "harness.h"

float *pages_map(void *at, size_t bytes)
{
	void *mem = mmap(at, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	must(mem != MAP_FAILED, "mmap: %d", errno);
	return mem;
}

static float *unmap_and_map(float *mem, size_t bytes)
{
	munmap(mem, bytes);
	return pages_map(mem, bytes);
}

static float *map_over(float *mem, size_t bytes)
{
	return pages_map(mem, bytes);
}

static float *give_back(float *mem, size_t bytes)
{
	must(madvise(mem, bytes, MADV_DONTNEED) == 0, "madvise: %d", errno);
	return mem;
}

static float *move_away_and_map(float *mem, size_t bytes)
{
	char *to = (char *)pages_map(NULL, bytes), *from = (char *)mem;

	/* Page by page: not across the edges of what is registered. */
	for (size_t at = 0; at < bytes; at += 4096)
		must(mremap(from + at, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, to + at) == to + at,
		     "mremap: %d", errno);
	munmap(to, bytes);
	return pages_map(mem, bytes);
}

static float *keep(float *mem, size_t bytes)
{
	return mem;
}

float *pages_change(int how, float *mem, size_t bytes)
{
	static float *(*const changes[PAGES_CHANGES])(float *mem, size_t bytes) = {
	    unmap_and_map, map_over, give_back, move_away_and_map, keep};

	return changes[how](mem, bytes);
}

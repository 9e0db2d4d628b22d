/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping a memfd so that huge pages can be used.
 */
#include "transport/map.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

static size_t whole_pages(size_t size)
{
	return (size + 4095) & ~(size_t)4095;
}

/* Maps it again, where huge pages fit. Address space is reserved with room to spare, and what is not
 * needed is given back. NULL if it can't be done. */
static void *map_aligned(int fd, size_t size, int prot)
{
	size_t whole = size + MAP_HUGE_BYTES, end = whole_pages(size);
	char *base =
	    mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return NULL;
	size_t head = (size_t)(-(uintptr_t)base & (MAP_HUGE_BYTES - 1));
	char *at = base + head;
	bool mapped = mmap(at, size, prot, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;

	/* The ends only: a MAP_FIXED that failed has unmapped the middle, and by now another thread
	 * may have got memory there. */
	if (head)
		munmap(base, head);
	if (whole - head > end)
		munmap(at + end, whole - head - end);
	return mapped ? at : NULL;
}

int tp_map(int fd, size_t size, int prot, void **out)
{
	void *at = mmap(NULL, size, prot, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	/* Reserved huge pages are aligned as they come. */
	if (size >= MAP_HUGE_BYTES && size < SIZE_MAX - 2 * MAP_HUGE_BYTES &&
	    (uintptr_t)at % MAP_HUGE_BYTES) {
		void *aligned = map_aligned(fd, size, prot);

		if (aligned) {
			munmap(at, size);
			at = aligned;
		}
	}
	/* Where the machine gives none to shared memory this changes nothing. */
	if (size >= MAP_HUGE_BYTES)
		madvise(at, size, MADV_HUGEPAGE);
	*out = at;
	return 0;
}

void tp_unmap(void *base, size_t size)
{
	munmap(base, size);
}

size_t tp_huge_bytes(const void *base)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long long begin, end, kib = 0;
	bool here = false;
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		/* "BEGIN-END rw-s ...", then lines of "Key: number kB". */
		if (sscanf(line, "%llx-%llx ", &begin, &end) == 2)
			here = begin == (uintptr_t)base;
		else if (here && sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1)
			break;
	}
	if (f)
		fclose(f);
	return (size_t)kib << 10;
}

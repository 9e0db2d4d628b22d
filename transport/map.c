/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping a memfd so that huge pages can be used.
 */
#include "transport/map.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

static int map_aligned(int fd, size_t size, int prot, void **out)
{
	/* Address space is reserved with room to spare, and what is not needed is given back. */
	size_t whole = size + MAP_HUGE_BYTES;
	char *base =
	    mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return -errno;
	size_t head = (size_t)(-(uintptr_t)base & (MAP_HUGE_BYTES - 1));
	char *at = base + head;
	if (mmap(at, size, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int rc = -errno;

		munmap(base, whole);
		return rc;
	}
	/* Where the machine gives none to shared memory this changes nothing. */
	madvise(at, size, MADV_HUGEPAGE);
	size_t page = 4096, end = (size + page - 1) & ~(page - 1);
	if (head)
		munmap(base, head);
	if (whole - head > end)
		munmap(at + end, whole - head - end);
	*out = at;
	return 0;
}

int tp_map(int fd, size_t size, int prot, void **out)
{
	if (size >= MAP_HUGE_BYTES && size < SIZE_MAX - 2 * MAP_HUGE_BYTES)
		return map_aligned(fd, size, prot, out);

	void *at = mmap(NULL, size, prot, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	*out = at;
	return 0;
}

void tp_unmap(void *base, size_t size)
{
	munmap(base, size);
}

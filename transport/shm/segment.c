/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a connection.
 */
#include "transport/shm/segment.h"

#include "base/err.h"
#include "transport/shm/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* In small pages: most of the message buffers are never touched. */
static int map_segment(int fd, size_t size, void **out)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return err_set(errno, "mapping a connection's %zu bytes: %s", size,
			       strerror(errno));
	*out = at;
	return 0;
}

int segment_create(uint32_t depth, int *out_fd, void **out)
{
	size_t size = shm_segment_bytes(depth);
	int fd = memfd_create("gradslot-conn", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc;

	if (fd < 0)
		return err_set(errno, "memfd_create: %s", strerror(errno));
	if (ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		rc = err_set(errno, "a connection's %zu bytes: %s", size, strerror(errno));
		goto close_fd;
	}
	rc = map_segment(fd, size, out);
	if (rc < 0)
		goto close_fd;
	*out_fd = fd;
	return 0;

close_fd:
	close(fd);
	return rc;
}

int segment_check_sealed(int fd, uint64_t size)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0)
		return err_set(EPROTO, "the peer passed a descriptor that is no memfd");
	if (!(seals & F_SEAL_SHRINK))
		return err_set(EPROTO,
			       "the peer passed a memfd that is not sealed against shrinking");
	if (fstat(fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size < size)
		return err_set(EPROTO, "the peer passed a memfd of %lld bytes, said to have %llu",
			       (long long)st.st_size, (unsigned long long)size);
	return seals;
}

bool segment_is_hugetlb(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) < 0 || fs.f_type == HUGETLBFS_MAGIC;
}

int segment_open(int fd, uint32_t depth, uint64_t size, void **out)
{
	size_t want = shm_segment_bytes(depth);

	if (size != want)
		return err_set(EPROTO,
			       "the listener's segment has %llu bytes, %zu for depth %u here",
			       (unsigned long long)size, want, depth);
	int rc = segment_check_sealed(fd, want);

	if (rc < 0)
		return rc;
	if (segment_is_hugetlb(fd))
		return err_set(EPROTO, "the listener's segment is in reserved huge pages");
	return map_segment(fd, want, out);
}

void segment_unmap(void *segment, uint32_t depth)
{
	munmap(segment, shm_segment_bytes(depth));
}

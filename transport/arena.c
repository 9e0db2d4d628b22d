/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas: memory that can be given to peers.
 *
 * Invariants:
 *  1. The file is sealed against shrinking and growing before anyone else can have it, so a mapping
 *     of it never faults beyond its end.
 *  2. With TP_ARENA_READ_ONLY_TO_PEERS the one writable mapping is this process's own, made before
 *     the seal; no other can ever be made, whatever descriptor a peer gets hold of.
 */
#include "base/err.h"
#include "base/proc.h"
#include "transport/backend.h"
#include "transport/map.h"
#include "transport/prefault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

struct tp_arena {
	void *base;
	size_t size;
	int fd;
	unsigned flags;
	enum { SMALL, TRANSPARENT, HUGE } kind;
	char pages[64]; /* the same in words */
};

/* In bytes; 0 when it can't be told. */
static unsigned long long mem_available(void)
{
	return (unsigned long long)proc_number("/proc/meminfo", "MemAvailable", 10, 0) << 10;
}

static int no_memory(const char *name, size_t size, const char *what, int err)
{
	return err_set(ENOMEM,
		       "arena %s: %zu bytes can't be had (%s: %s); MemAvailable is %llu bytes: "
		       "use a smaller size or free memory",
		       name, size, what, strerror(err), mem_available());
}

/* Whether the kernel gives huge pages to shared memory that asks for them. */
static bool transparent_allowed(void)
{
	char line[128] = "";
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");

	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	return strstr(line, "[advise]") || strstr(line, "[always]") ||
	       strstr(line, "[within_size]") || strstr(line, "[force]");
}

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* One way to get the file and the mapping; on failure nothing is left and errno's value, negated,
 * is returned without a text. */
static int map_file(struct tp_arena *a, const char *name, size_t size, unsigned memfd_flags)
{
	int rc;
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | memfd_flags);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) < 0) {
		rc = -errno;
		goto close_fd;
	}
	rc = tp_map(fd, size, PROT_READ | PROT_WRITE, &a->base);
	if (rc < 0)
		goto close_fd;
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	if (a->flags & TP_ARENA_READ_ONLY_TO_PEERS)
		seals |= F_SEAL_FUTURE_WRITE;
	if (fcntl(fd, F_ADD_SEALS, seals) < 0) {
		rc = -errno;
		goto unmap;
	}
	a->fd = fd;
	a->size = size;
	return 0;

unmap:
	tp_unmap(a->base, size);
close_fd:
	close(fd);
	return rc;
}

static int no_huge_pages(const char *name, size_t size, const char *why)
{
	size_t n = round_up(size, MAP_HUGE_BYTES) / MAP_HUGE_BYTES;

	return err_set(ENOMEM,
		       "arena %s: huge pages are required, and %s: `sysctl "
		       "vm.nr_hugepages=N` reserves some (it takes %zu, %llu are free); `echo advise "
		       ">/sys/kernel/mm/transparent_hugepage/shmem_enabled` lets the kernel make them",
		       name, why, n,
		       (unsigned long long)proc_number("/proc/meminfo", "HugePages_Free", 10, 0));
}

static bool map_huge(struct tp_arena *a, const char *name, size_t size)
{
	if (size < MAP_HUGE_BYTES || (a->flags & TP_ARENA_SMALL_PAGES) ||
	    map_file(a, name, round_up(size, MAP_HUGE_BYTES), MFD_HUGETLB | MFD_HUGE_2MB) < 0)
		return false;
	a->kind = HUGE;
	snprintf(a->pages, sizeof(a->pages), "2 MiB huge pages");
	return true;
}

static int map_any(struct tp_arena *a, const char *name, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	bool fits = size >= MAP_HUGE_BYTES;
	int rc;

	if (map_huge(a, name, size))
		return 0;
	if (fits && (a->flags & TP_ARENA_HUGE_PAGES) && !transparent_allowed())
		return no_huge_pages(name, size, "too few are free, and the kernel makes none for "
						 "shared memory");
	rc = map_file(a, name, round_up(size, page), 0);
	if (rc == -EMFILE || rc == -ENFILE)
		return err_set(-rc, "arena %s: %s; raise the limit on open files (ulimit -n)", name,
			       strerror(-rc));
	if (rc < 0)
		return no_memory(name, size, "memfd", -rc);
	snprintf(a->pages, sizeof(a->pages), "4 KiB pages");
	if (a->flags & TP_ARENA_SMALL_PAGES) {
		/* tp_map asked for huge ones. A kernel that has none knows no such advice. */
		madvise(a->base, a->size, MADV_NOHUGEPAGE);
	} else if (fits && transparent_allowed()) {
		a->kind = TRANSPARENT;
		snprintf(a->pages, sizeof(a->pages), "transparent huge pages (asked for)");
	}
	return 0;
}

/* What the kernel made of an arena that asked for transparent ones. */
static int look_at_pages(struct tp_arena *a, const char *name)
{
	size_t huge = tp_huge_bytes(a->base), most = a->size & ~(MAP_HUGE_BYTES - 1);

	if (huge == 0) {
		a->kind = SMALL;
		snprintf(a->pages, sizeof(a->pages), "4 KiB pages (the kernel made no huge ones)");
	} else {
		snprintf(a->pages, sizeof(a->pages), "transparent huge pages (%zu of %zu MiB)",
			 huge >> 20, a->size >> 20);
	}
	if ((a->flags & TP_ARENA_HUGE_PAGES) && huge < most)
		return no_huge_pages(name, a->size, "the kernel made too few");
	return 0;
}

static int touch_pages(struct tp_arena *a, const char *name)
{
	int rc = tp_prefault(a->base, a->size);

	if (rc < 0)
		return no_memory(name, a->size, "prefault", -rc);
	return a->kind == TRANSPARENT ? look_at_pages(a, name) : 0;
}

static int check_arguments(const char *name, size_t size, unsigned flags)
{
	const unsigned pages = TP_ARENA_SMALL_PAGES | TP_ARENA_HUGE_PAGES;

	if (!name || !*name || strlen(name) > 200)
		return err_set(EINVAL, "an arena needs a name of 1 to 200 bytes");
	if (flags & ~(TP_ARENA_READ_ONLY_TO_PEERS | TP_ARENA_PREFAULT | pages))
		return err_set(EINVAL, "arena %s: unknown flags 0x%x", name, flags);
	if ((flags & pages) == pages ||
	    ((flags & TP_ARENA_HUGE_PAGES) && !(flags & TP_ARENA_PREFAULT)))
		return err_set(EINVAL, "arena %s: flags 0x%x do not go together", name, flags);
	if (size == 0)
		return err_set(EINVAL, "arena %s: its size must be 1 byte at least", name);
	return size > SIZE_MAX / 4 ? no_memory(name, size, "size", EFBIG) : 0;
}

int tp_arena_create(const char *name, size_t size, unsigned flags, struct tp_arena **out)
{
	int rc = check_arguments(name, size, flags);

	if (rc < 0)
		return rc;
	/* Asked before the pages are touched: after that the kernel kills instead of refusing. */
	unsigned long long available = mem_available();

	if ((flags & TP_ARENA_PREFAULT) && available && size > available)
		return no_memory(name, size, "prefault", ENOMEM);

	struct tp_arena *a = calloc(1, sizeof(*a));

	if (!a)
		return no_memory(name, sizeof(*a), "malloc", ENOMEM);
	a->flags = flags;
	a->fd = -1;
	rc = map_any(a, name, size);
	if (rc < 0)
		goto free_arena;
	if (flags & TP_ARENA_PREFAULT) {
		rc = touch_pages(a, name);
		if (rc < 0)
			goto destroy;
	}
	*out = a;
	return 0;

destroy:
	tp_arena_destroy(a);
	return rc;
free_arena:
	free(a);
	return rc;
}

void tp_arena_destroy(struct tp_arena *a)
{
	if (!a)
		return;
	tp_unmap(a->base, a->size);
	close(a->fd);
	free(a);
}

void *tp_arena_base(const struct tp_arena *a)
{
	return a->base;
}

size_t tp_arena_size(const struct tp_arena *a)
{
	return a->size;
}

const char *tp_arena_pages(const struct tp_arena *a)
{
	return a->pages;
}

int tp_arena_fd(const struct tp_arena *a)
{
	return a->fd;
}

bool tp_arena_read_only_to_peers(const struct tp_arena *a)
{
	return a->flags & TP_ARENA_READ_ONLY_TO_PEERS;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: registering arenas with a connection, and the backend's own buffers.
 *
 * A region is registered in the connection's own protection domain, so its rkey is good on this
 * connection's QP only. Relaxed ordering is asked for only where whoever exposes it says that it is
 * looked at behind completions alone: a peer's credits and versions are read from memory that it
 * writes, and must not overtake what was written before them. It is an optional access flag: a kernel
 * that does not know it is not shown it (libibverbs), a device that does not ignores it.
 */
#include "base/err.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

void *mem_map(size_t size)
{
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return mem == MAP_FAILED ? NULL : mem;
}

void mem_unmap(void *mem, size_t size)
{
	if (mem)
		munmap(mem, size);
}

static const char *limit_text(char *text, size_t size)
{
	struct rlimit limit = {0};

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		snprintf(text, size, "unlimited");
	else
		snprintf(text, size, "%llu KiB", (unsigned long long)limit.rlim_cur / 1024);
	return text;
}

int mem_error(int err, const char *what, size_t size)
{
	char limit[32];

	if (!err)
		err = ENOMEM;
	if (err != ENOMEM && err != EAGAIN)
		return err_set(err, "%s: %s", what, strerror(err));
	return err_set(ENOMEM,
		       "%s needs %zu KiB of locked memory, and the limit of all that this process "
		       "locks is %s: raise it with `ulimit -l unlimited`, a `memlock` line in "
		       "/etc/security/limits.d/, or LimitMEMLOCK=infinity in a systemd unit",
		       what, (size + 1023) / 1024, limit_text(limit, sizeof(limit)));
}

int mem_register(struct ibv_pd *pd, void *mem, size_t size, int access, const char *what,
		 struct ibv_mr **out)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, size, access);

	if (!mr)
		return mem_error(errno, what, size);
	/* ibv_fork_init has the pages kept from children; shared ones need not be, and are used. */
	if (ibv_is_fork_initialized() == IBV_FORK_ENABLED)
		madvise(mem, size, MADV_DOFORK);
	*out = mr;
	return 0;
}

/* ---- regions and remotes ----------------------------------------------------------------------
 */

static int access_flags(const struct conn *conn, unsigned access, bool *sink)
{
	int flags = IBV_ACCESS_LOCAL_WRITE;

	if (access & TP_PEER_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	if (access & TP_PEER_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE;
	if ((access & TP_COMPLETION_ORDERED) && conn->tuning.relaxed)
		flags |= IBV_ACCESS_RELAXED_ORDERING;
	/* iWARP answers a READ by writing to its target as a peer. Its key is given to the peer
	 * with each READ, so only regions that the peer can't read as well are opened for that. */
	if (conn->dev->iwarp && !(access & TP_PEER_READ))
		flags |= IBV_ACCESS_REMOTE_WRITE;
	*sink = !conn->dev->iwarp || (flags & IBV_ACCESS_REMOTE_WRITE);
	return flags;
}

static bool conn_is_shut(struct conn *conn)
{
	pthread_spin_lock(&conn->lock);
	bool shut = conn->posting == POST_SHUT;

	pthread_spin_unlock(&conn->lock);
	return shut;
}

int verbs_expose(struct tp_conn *base, struct tp_arena *arena, unsigned access,
		 struct tp_region **out)
{
	struct conn *conn = conn_of(base);
	struct region *region;
	bool sink;

	if (conn_is_shut(conn))
		return err_set(ENOTCONN, "expose: the connection is closed");
	region = calloc(1, sizeof(*region));
	if (!region)
		return err_set(ENOMEM, "no memory for a region");
	int flags = access_flags(conn, access, &sink);
	void *mem = tp_arena_base(arena);
	size_t size = tp_arena_size(arena);
	int rc = mem_register(conn->pd, mem, size, flags, "registering the memory", &region->mr);

	if (rc < 0) {
		free(region);
		return rc;
	}
	region->base = (struct tp_region){
	    .conn = base,
	    .arena = arena,
	    .ref = {.addr = (uintptr_t)mem, .len = size, .key = region->mr->rkey},
	};
	region->sink = sink;
	region->next = conn->regions;
	if (region->next)
		region->next->prev = region;
	conn->regions = region;
	*out = &region->base;
	return 0;
}

void verbs_region_destroy(struct tp_region *base)
{
	struct region *region = (struct region *)base;
	struct conn *conn = conn_of(base->conn);

	if (region->prev)
		region->prev->next = region->next;
	else
		conn->regions = region->next;
	if (region->next)
		region->next->prev = region->prev;
	ibv_dereg_mr(region->mr);
	free(region);
}

int verbs_attach(struct tp_conn *base, const struct tp_ref *ref, unsigned access,
		 struct tp_remote **out)
{
	struct conn *conn = conn_of(base);

	if (ref->key > UINT32_MAX)
		return err_set(EPROTO, "attach: the peer's key 0x%llx is not an rkey",
			       (unsigned long long)ref->key);
	if (conn_is_shut(conn))
		return err_set(ENOTCONN, "attach: the connection is closed");
	struct remote *remote = calloc(1, sizeof(*remote));

	if (!remote)
		return err_set(ENOMEM, "no memory for a remote");
	remote->base = (struct tp_remote){.conn = base, .ref = *ref, .access = access};
	remote->next = conn->remotes;
	if (remote->next)
		remote->next->prev = remote;
	conn->remotes = remote;
	*out = &remote->base;
	return 0;
}

void verbs_remote_destroy(struct tp_remote *base)
{
	struct remote *remote = (struct remote *)base;

	if (remote->prev)
		remote->prev->next = remote->next;
	else
		conn_of(base->conn)->remotes = remote->next;
	if (remote->next)
		remote->next->prev = remote->prev;
	free(remote);
}

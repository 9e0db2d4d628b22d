/* SPDX-License-Identifier: Apache-2.0
 *
 * Regions and remotes: files passed to the peer, and the peer's files mapped.
 *
 * What the peer passes is mapped only if it can't shrink, so no access faults beyond its end. One
 * hole is closed as well: pages of the reserved pool of huge pages can be taken out of a file from
 * outside, and when the pool is empty the next access dies. A listener, which does not choose who
 * connects, therefore takes no such file unless it is sealed against writing by others.
 */
#include "base/err.h"
#include "transport/map.h"
#include "transport/shm/segment.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* How often the socket is read for a region: more than it holds, and an end to a peer's chatter. */
#define ROUNDS_MAX 32

/* ---- given to the peer ------------------------------------------------------------------------
 */

/* A descriptor through which the file can't be written or mapped for it. The peer might open the
 * file anew, which only TP_ARENA_READ_ONLY_TO_PEERS makes useless: its seal lies on the file. */
static int reopen_read_only(int fd)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int ro = open(path, O_RDONLY | O_CLOEXEC);

	return ro < 0 ? err_set(errno, "expose: %s: %s", path, strerror(errno)) : ro;
}

static int pass_region(struct shm_conn *conn, struct tp_arena *arena, unsigned access, uint64_t key)
{
	int fd = tp_arena_fd(arena);

	if (access & TP_PEER_WRITE)
		return shm_send_region(conn, key, access, fd);
	fd = reopen_read_only(fd);
	if (fd < 0)
		return fd;
	int rc = shm_send_region(conn, key, access, fd);

	close(fd);
	return rc;
}

int shm_expose(struct tp_conn *base, struct tp_arena *arena, unsigned access,
	       struct tp_region **out)
{
	struct shm_conn *conn = to_shm(base);

	if (!shm_conn_open(conn))
		return err_set(ENOTCONN, "expose: the connection is over");
	struct shm_region *region = calloc(1, sizeof(*region));

	if (!region)
		return err_set(ENOMEM, "no memory for a region");
	region->base = (struct tp_region){
	    .conn = base,
	    .arena = arena,
	    .ref = {.len = tp_arena_size(arena), .key = ++conn->last_key},
	};
	access &= TP_PEER_READ | TP_PEER_WRITE; /* the CPU's stores are ordered as they are */
	if (access != TP_LOCAL) {
		int rc = pass_region(conn, arena, access, region->base.ref.key);

		if (rc < 0) {
			free(region);
			return rc;
		}
		region->passed = true;
	}
	LIST_INSERT_HEAD(&conn->exposed, region, link);
	*out = &region->base;
	return 0;
}

void shm_region_destroy(struct tp_region *base)
{
	struct shm_region *region = (struct shm_region *)base;

	if (region->passed)
		shm_send_region_gone(to_shm(base->conn), base->ref.key);
	LIST_REMOVE(region, link);
	free(region);
}

/* ---- taken from the peer ----------------------------------------------------------------------
 */

static int check_passed(const struct shm_conn *conn, const struct shm_passed *p, uint64_t len,
			unsigned access)
{
	int seals = segment_check_sealed(p->fd, len);

	if (seals < 0)
		return seals;
	if (conn->accepted && segment_is_hugetlb(p->fd) && !(seals & F_SEAL_FUTURE_WRITE))
		return err_set(EPROTO,
			       "attach: a connecting peer's memory in reserved huge pages is "
			       "taken only when it is sealed read-only");
	if (access & ~p->access)
		return err_set(EACCES, "attach: asked to %s, the peer gave no such access",
			       access & ~p->access & TP_PEER_WRITE ? "write" : "read");
	return 0;
}

static int map_passed(const struct shm_conn *conn, const struct shm_passed *p,
		      const struct tp_ref *ref, unsigned access, void **map)
{
	int rc = check_passed(conn, p, ref->len, access);

	if (rc < 0)
		return rc;
	rc = tp_map(p->fd, ref->len, PROT_READ | (access & TP_PEER_WRITE ? PROT_WRITE : 0), map);
	/* EPERM: sealed against writing. */
	if (rc == -EPERM || rc == -EACCES)
		return err_set(EACCES, "attach: the peer's memory can't be mapped to write");
	if (rc < 0)
		return err_set(-rc, "attach: mapping %llu bytes: %s", (unsigned long long)ref->len,
			       strerror(-rc));
	return 0;
}

/* The file was sent before the ref could be known, so it is here or in the socket: nothing is
 * waited for. */
static int find_and_map(struct shm_conn *conn, const struct tp_ref *ref, unsigned access,
			void **map)
{
	struct shm_passed *p;
	bool bell = false;
	int rc, rounds = 0;

	pthread_mutex_lock(&conn->sock_lock);
	while (!(p = shm_find_region(conn, ref->key)) && rounds++ < ROUNDS_MAX &&
	       shm_conn_open(conn) && shm_read_socket(conn, &bell) > 0)
		;
	if (p)
		rc = map_passed(conn, p, ref, access, map);
	else if (shm_conn_open(conn))
		rc = err_set(EPROTO, "attach: the peer passed no region %llu",
			     (unsigned long long)ref->key);
	else
		rc = err_set(ENOTCONN, "attach: the connection is over");
	pthread_mutex_unlock(&conn->sock_lock);
	/* Taken here, a doorbell would be lost to a poller about to sleep. */
	if (bell)
		tp_cq_nudge(conn->base.cq);
	return rc;
}

int shm_attach(struct tp_conn *base, const struct tp_ref *ref, unsigned access,
	       struct tp_remote **out)
{
	struct shm_conn *conn = to_shm(base);

	if (!shm_conn_open(conn))
		return err_set(ENOTCONN, "attach: the connection is over");
	if (ref->addr != 0 || ref->len > SIZE_MAX / 4)
		return err_set(EPROTO,
			       "attach: a ref of shm has address 0 (0x%llx) and less than %zu "
			       "bytes (%llu)",
			       (unsigned long long)ref->addr, SIZE_MAX / 4,
			       (unsigned long long)ref->len);
	struct shm_remote *remote = calloc(1, sizeof(*remote));

	if (!remote)
		return err_set(ENOMEM, "no memory for a remote");
	remote->base = (struct tp_remote){.conn = base, .ref = *ref, .access = access};
	int rc = find_and_map(conn, ref, access, &remote->base.map);

	if (rc < 0) {
		free(remote);
		return rc;
	}
	LIST_INSERT_HEAD(&conn->attached, remote, link);
	*out = &remote->base;
	return 0;
}

void shm_remote_destroy(struct tp_remote *base)
{
	struct shm_remote *remote = (struct shm_remote *)base;

	tp_unmap(base->map, base->ref.len);
	LIST_REMOVE(remote, link);
	free(remote);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The program's own memory as a source of WRITEs and a target of READs: registered when it is first lent,
 * and kept registered (regcache.h) until it is no longer what it was (vmwatch.h), its room is needed, or
 * the connection ends.
 *
 * A source is registered for reading by this side's device alone, so nothing can write it, and read-only
 * memory will do. A target is registered once more, for this side's READs to write; no peer has a key to
 * it. (iWARP would need to give it one, to whole pages of the program's: there nothing is lent as a
 * target.) Registrations are made and ended without vmwatch_lock: both may unmap memory. The watch
 * begins before the registration, so there is no moment at which a change would go unnoticed; a range
 * that changes while it is registered dies, and is not found again.
 *
 * fork(2): a kernel that copies pinned pages for the child (5.12 and later) leaves the parent's where
 * the device has them. On older ones the parent's next write would go to a copy that the device does not
 * have; there nothing is lent.
 */
#include "base/err.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lent {
	struct vmwatch watch;
	struct conn *conn;
	struct regcache cache;
};

static struct lent *lent_of(struct vmwatch *w)
{
	return (struct lent *)((char *)w - offsetof(struct lent, watch));
}

static void on_gone(struct vmwatch *w, uintptr_t first, uintptr_t end)
{
	regcache_gone(&lent_of(w)->cache, first, end);
}

static bool wants(struct vmwatch *w, uintptr_t first, uintptr_t end)
{
	return regcache_overlaps(&lent_of(w)->cache, first, end);
}

static int lent_new(struct conn *conn)
{
	if (ibv_is_fork_initialized() != IBV_FORK_UNNEEDED)
		return err_set(EOPNOTSUPP, "this kernel does not keep registered memory through a "
					   "fork (5.12 and later do)");
	struct lent *lent = calloc(1, sizeof(*lent));

	if (!lent)
		return err_set(ENOMEM, "no memory for a registration cache");
	lent->watch = (struct vmwatch){.gone = on_gone, .wants = wants};
	lent->conn = conn;
	regcache_init(&lent->cache, conn->lend_limit);
	int rc = vmwatch_join(&lent->watch);

	if (rc < 0)
		free(lent);
	else
		conn->lent = lent;
	return rc;
}

/* Made when it is first needed: most connections lend nothing. NULL where nothing was lent, if none is to be
 * made. */
static int lent_get(struct conn *conn, bool make, struct lent **out)
{
	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&making);
	int rc = conn->lent || !make ? 0 : lent_new(conn);

	*out = conn->lent;
	pthread_mutex_unlock(&making);
	return rc;
}

/* ---- registering ------------------------------------------------------------------------------- */

static void destroy(const struct regcache_entry *e)
{
	struct region *region = e->handle;

	ibv_dereg_mr(region->mr);
	free(region);
	vmwatch_lock();
	vmwatch_drop(e->first, e->end);
	vmwatch_unlock();
}

/* Ends one registration: a dead one, or the one that was used longest ago if `any` is to. */
static bool drop_one(struct lent *lent, bool any)
{
	struct regcache_entry e;

	vmwatch_lock();
	bool found = regcache_take_out(&lent->cache, any, &e);

	vmwatch_unlock();
	if (found)
		destroy(&e);
	return found;
}

static bool has_room(struct lent *lent, uintptr_t first, uintptr_t end)
{
	vmwatch_lock();
	bool room = regcache_has_room(&lent->cache, first, end);

	vmwatch_unlock();
	return room;
}

/* A watched entry. */
static int reserve(struct lent *lent, uintptr_t first, uintptr_t end, bool target,
		   struct regcache_entry **out)
{
	struct regcache *c = &lent->cache;
	uint64_t bytes;
	int rc = -ENOBUFS;

	while (drop_one(lent, false))
		;
	while (end - first <= c->limit && !has_room(lent, first, end) && drop_one(lent, true))
		;
	vmwatch_lock();
	bytes = c->bytes;
	if (regcache_has_room(c, first, end)) {
		*out = regcache_add(c, first, end, target);
		rc = vmwatch_add(first, end);
		if (rc < 0)
			regcache_cancel(c, *out);
	}
	vmwatch_unlock();
	if (rc != -ENOBUFS)
		return rc < 0 ? err_set(EFAULT, "%s", err_text()) : 0;
	return err_set(ENOBUFS,
		       "%llu bytes more do not fit: all of the %llu bytes that are registered are in "
		       "use, and the limit is %llu",
		       (unsigned long long)(end - first), (unsigned long long)bytes,
		       (unsigned long long)c->limit);
}

/* Where locked memory is short, what is not in use gives way. */
static struct ibv_mr *register_range(struct lent *lent, const struct regcache_entry *e)
{
	int access = e->target ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct ibv_mr *mr;

	/* Nobody looks at what is read before its READ has completed. */
	if (e->target && lent->conn->tuning.relaxed)
		access |= IBV_ACCESS_RELAXED_ORDERING;
	do {
		mr = ibv_reg_mr(lent->conn->pd, (void *)e->first, e->end - e->first, access);
	} while (!mr && errno == ENOMEM && drop_one(lent, true));
	return mr;
}

static int fill(struct lent *lent, struct regcache_entry *e)
{
	struct region *region = calloc(1, sizeof(*region));
	struct ibv_mr *mr = region ? register_range(lent, e) : NULL;
	int err = errno;

	vmwatch_lock();
	if (mr) {
		*region = (struct region){
		    .base = {.conn = &lent->conn->base,
			     .ref = {.addr = e->first, .len = e->end - e->first}},
		    .mr = mr,
		    .sink = e->target,
		    .entry = e,
		};
		regcache_set(e, region);
	} else {
		uintptr_t first = e->first, end = e->end;

		regcache_cancel(&lent->cache, e);
		vmwatch_drop(first, end);
	}
	vmwatch_unlock();
	if (mr)
		return 0;
	free(region);
	return mem_error(err, "registering the program's memory", e->end - e->first);
}

/* Not found: registers it. */
static int register_anew(struct lent *lent, uintptr_t first, uintptr_t end, bool target,
			 struct regcache_entry **out)
{
	if (!vmwatch_is_anonymous(first, end))
		return err_set(EFAULT,
			       "the pages from %p to %p are not private anonymous memory, changes of "
			       "which are noticed",
			       (void *)first, (void *)end);
	int rc = reserve(lent, first, end, target, out);

	return rc < 0 ? rc : fill(lent, *out);
}

int verbs_register(struct tp_conn *base, const void *at, size_t len, unsigned how,
		   struct tp_region **out)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)at & ~(page - 1);
	uintptr_t end = ((uintptr_t)at + len + page - 1) & ~(page - 1);
	bool target = how & TP_LEND_TARGET, known = how & TP_LEND_KNOWN;
	struct regcache_entry *e = NULL;
	struct lent *lent;

	if (target && conn_of(base)->dev->iwarp)
		return err_set(EOPNOTSUPP, "over iWARP a READ's target would be open to the peer's "
					   "writes");
	int rc = lent_get(conn_of(base), !known, &lent);
	if (rc < 0)
		return rc;
	vmwatch_lock();
	if (lent)
		e = regcache_find(&lent->cache, first, end, target);
	vmwatch_unlock();
	if (!e && known)
		return -ENOENT; /* often: not worth a text */
	if (!e)
		rc = register_anew(lent, first, end, target, &e);
	if (rc < 0)
		return rc;
	*out = &((struct region *)e->handle)->base;
	return 0;
}

void verbs_hold(struct tp_region *base)
{
	vmwatch_lock();
	regcache_hold(((struct region *)base)->entry);
	vmwatch_unlock();
}

void verbs_unregister(struct tp_region *base)
{
	struct region *region = (struct region *)base;
	struct lent *lent = conn_of(base->conn)->lent;

	vmwatch_lock();
	regcache_put(&lent->cache, region->entry);
	vmwatch_unlock();
	while (drop_one(lent, false))
		;
}

void lend_free(struct conn *conn)
{
	struct lent *lent = conn->lent;

	if (!lent)
		return;
	vmwatch_lock();
	regcache_end(&lent->cache); /* the queue pair is gone: nothing is under way */
	vmwatch_unlock();
	while (drop_one(lent, false))
		;
	vmwatch_leave(&lent->watch);
	free(lent);
	conn->lent = NULL;
}

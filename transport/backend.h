/* SPDX-License-Identifier: Apache-2.0
 *
 * What a backend implements. Private to transport/. The meaning of each op is that of the function
 * of the same name in transport.h; only what is not said there stands here. Generic checks (NULLs,
 * bounds of ops, message sizes, URI syntax) were made before a backend is called:
 *  - `opt` is never NULL and every field has its value (max_chunk alone stays 0 for "the device's
 *    limit"); depth is 1..TP_DEPTH_MAX;
 *  - every op of a chain given to `post` has a valid kind and flags, a remote of this connection
 *    attached for that access, and lies within the remote and within its region;
 *  - a message has 1..TP_MSG_MAX bytes;
 *  - `attach` has 1 <= ref->len <= max_len, and ref->addr + ref->len does not wrap.
 */
#ifndef GS_TRANSPORT_BACKEND_H
#define GS_TRANSPORT_BACKEND_H

#include "transport/transport.h"
#include "transport/uri.h"

#include <stdatomic.h>

struct bundle;

#define TP_DEPTH_MAX URI_DEPTH_MAX

/* Heads of the public objects: a backend's own struct begins with one. */
struct tp_listener {
	const struct tp_backend *backend;
	char uri[384];
};

struct tp_conn {
	const struct tp_backend *backend;
	struct tp_cq *cq;
	void *user;
	struct bundle *bundle; /* whose rail number `rail` it is; NULL: it is the user's */
	uint8_t rail;
	struct tp_limits limits; /* complete before the connection is handed out; then constant */
	uint8_t binding[TP_BINDING_LEN]; /* likewise */
	bool closed_given;       /* the generic CQ's: TP_EV_CLOSED was handed to the caller */
	char peer[96];
	char transport[192];
	char reason[256]; /* written once, before TP_EV_CLOSED is handed out */
};

/* Whose a new connection is: copied into it before it is bound to its queue. */
struct tp_owner {
	void *user;
	struct bundle *bundle; /* NULL: there is one rail, and no more of the following */
	uint64_t bundle_id;    /* connecting side: what the hello says */
	uint8_t rail, rails;
	/* Connecting: another rail has failed, so nobody need wait for this one any longer; looked at
	 * every TP_GIVE_UP_MS. NULL: there is none. */
	const atomic_bool *given_up;
};
enum { TP_GIVE_UP_MS = 20 };

static inline bool tp_given_up(const struct tp_owner *owner)
{
	return owner->given_up && atomic_load_explicit(owner->given_up, memory_order_relaxed);
}

static inline void tp_conn_own(struct tp_conn *conn, const struct tp_owner *owner)
{
	conn->user = owner->user;
	conn->bundle = owner->bundle;
	conn->rail = owner->rail;
}

struct tp_region {
	struct tp_conn *conn;
	struct tp_arena *arena; /* NULL: tp_register's; ref says where it is */
	struct tp_ref ref;
};

struct tp_remote {
	struct tp_conn *conn;
	struct tp_ref ref;
	unsigned access;
	void *map; /* NULL where it can't be reached by loads */
};

/* A backend's part of a tp_cq, made when the first connection of that backend is bound to it. All
 * but `create` and binding run on the polling thread. Binding a connection may happen beside polls;
 * a backend that needs the poller to notice calls tp_cq_nudge after it.
 *
 * The generic CQ polls ahead into a small stash while it waits. Whatever `poll` hands out (messages
 * above all) must stay valid until the next `poll`, `arm` or `conn_destroy`; after it has handed out
 * TP_EV_CLOSED a backend does not touch the connection again on the polling thread, since another
 * thread may destroy it. */
struct tp_subcq {
	const struct tp_backend *backend;
	struct tp_cq *cq;
};

struct tp_backend {
	const char *scheme;

	int (*available)(void);
	void (*describe)(void (*line)(void *arg, const char *text), void *arg);

	int (*subcq_create)(struct tp_cq *cq, struct tp_subcq **out);
	void (*subcq_destroy)(struct tp_subcq *sub);
	int (*poll)(struct tp_subcq *sub, struct tp_event *ev, int max);
	/* Prepares to sleep: after it, anything new makes one of the watched descriptors readable or
	 * calls tp_cq_nudge. Returns true if there is something to poll already (then no sleep
	 * follows). Every arm is followed by a disarm before the next poll, true or not. */
	bool (*arm)(struct tp_subcq *sub);
	void (*disarm)(struct tp_subcq *sub);

	int (*listen)(const struct tp_uri *uri, const struct tp_options *opt,
		      struct tp_listener **out);
	void (*listener_destroy)(struct tp_listener *listener);
	int (*listener_fd)(const struct tp_listener *listener);
	/* Rails of one bundle are gathered (gather.h) before any is taken, and then given out as one
	 * connection (bundle_accept). */
	int (*accept)(struct tp_listener *listener, struct tp_subcq *sub, void *user,
		      struct tp_conn **out);
	/* One rail. Several threads may connect at once. */
	int (*connect)(const struct tp_uri *uri, const struct tp_options *opt,
		       struct tp_subcq *sub, const struct tp_owner *owner, struct tp_conn **out);

	int (*expose)(struct tp_conn *conn, struct tp_arena *arena, unsigned access,
		      struct tp_region **out);
	void (*region_destroy)(struct tp_region *region);
	/* These three NULL where no memory needs to be registered (load_store). */
	int (*reg)(struct tp_conn *conn, const void *at, size_t len, unsigned lend,
		   struct tp_region **out);
	void (*hold)(struct tp_region *region);
	void (*unreg)(struct tp_region *region);
	int (*attach)(struct tp_conn *conn, const struct tp_ref *ref, unsigned access,
		      struct tp_remote **out);
	void (*remote_destroy)(struct tp_remote *remote);

	int (*post)(struct tp_conn *conn, const struct tp_op *ops, int n);
	int (*send)(struct tp_conn *conn, const void *msg, size_t len);
	void (*close)(struct tp_conn *conn);
	void (*conn_destroy)(struct tp_conn *conn);
};

extern const struct tp_backend tp_shm_backend;
extern const struct tp_backend tp_verbs_backend;

/* The memfd behind an arena, and whether peers may only read it. */
int tp_arena_fd(const struct tp_arena *arena);
bool tp_arena_read_only_to_peers(const struct tp_arena *arena);

/* ---- services of the generic CQ to its backends ------------------------------------------------ */

/* A descriptor that wakes the sleeper; when readable, `ready` runs on the polling thread (while
 * spinning it is looked at every 200 µs or so), inside tp_cq_poll or tp_cq_wait, never inside a
 * backend's own op. Level triggered: `ready` takes what made it readable. `watch` outlives the
 * watching. Any thread. */
struct tp_watch {
	int fd;
	void (*ready)(struct tp_watch *watch, uint32_t epoll_events);
};
int tp_cq_watch(struct tp_cq *cq, struct tp_watch *watch);
/* After it returns `ready` does not run again. Polling thread (also from within a `ready`), or
 * while nobody polls. */
void tp_cq_unwatch(struct tp_cq *cq, struct tp_watch *watch);
/* Makes a sleeping tp_cq_wait poll once more (it goes back to sleep if that finds nothing). For what
 * this process brings about itself: a connection bound, an op completed at once, a close asked for.
 * Costs one atomic read-modify-write when nobody sleeps. Any thread. */
void tp_cq_nudge(struct tp_cq *cq);

/* ---- the sub-CQs of a tp_cq (transport.c) ------------------------------------------------------ */

/* The backend's part of `cq`, made when there is none yet. Any thread. */
int tp_cq_sub(struct tp_cq *cq, const struct tp_backend *backend, struct tp_subcq **out);
/* Bundles whose rails are bound to it, and those of which some have ended: bundle.c. */
struct tp_cq_bundles {
	_Atomic uint32_t n;
	struct bundle *ending; /* the polling thread's */
};
struct tp_cq_bundles *tp_cq_bundles(struct tp_cq *cq);

/* Forgets events of a connection that is destroyed before its TP_EV_CLOSED was handed out. */
void tp_cq_forget(struct tp_cq *cq, const struct tp_conn *conn);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a backend implements. Private to transport/. The meaning of each op is that of the function
 * of the same name in transport.h; only what is not said there stands here. Generic checks (NULLs,
 * bounds of ops, message sizes, URI syntax) were made before a backend is called.
 */
#ifndef GS_TRANSPORT_BACKEND_H
#define GS_TRANSPORT_BACKEND_H

#include "transport/transport.h"
#include "transport/uri.h"

/* Heads of the public objects: a backend's own struct begins with one. */
struct tp_listener {
	const struct tp_backend *backend;
	char uri[384];
};

struct tp_conn {
	const struct tp_backend *backend;
	struct tp_cq *cq;
	void *user;
	struct tp_limits limits;
	char peer[96];
	char transport[96];
	char reason[256]; /* written once, before TP_EV_CLOSED is handed out */
};

struct tp_region {
	struct tp_conn *conn;
	struct tp_arena *arena;
	struct tp_ref ref;
};

struct tp_remote {
	struct tp_conn *conn;
	struct tp_ref ref;
	unsigned access;
	void *map; /* NULL where it can't be reached by loads */
};

/* A backend's part of a tp_cq, made when the first connection of that backend is bound to it. All
 * but `create` and binding run on the polling thread. */
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
	/* Prepares to sleep: after it, anything new makes one of the watched descriptors readable.
	 * Returns true if there is something to poll already (then no sleep follows). */
	bool (*arm)(struct tp_subcq *sub);
	void (*disarm)(struct tp_subcq *sub);

	int (*listen)(const struct tp_uri *uri, const struct tp_options *opt,
		      struct tp_listener **out);
	void (*listener_destroy)(struct tp_listener *listener);
	int (*listener_fd)(const struct tp_listener *listener);
	int (*accept)(struct tp_listener *listener, struct tp_subcq *sub, void *user,
		      struct tp_conn **out);
	int (*connect)(const struct tp_uri *uri, const struct tp_options *opt,
		       struct tp_subcq *sub, void *user, struct tp_conn **out);

	int (*expose)(struct tp_conn *conn, struct tp_arena *arena, unsigned access,
		      struct tp_region **out);
	void (*region_destroy)(struct tp_region *region);
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

/* The memfd behind an arena. */
int tp_arena_fd(const struct tp_arena *arena);

/* ---- services of the generic CQ to its backends ------------------------------------------------ */

/* A descriptor that wakes the sleeper; when readable, `ready` runs on the polling thread (while
 * spinning it is looked at every 200 µs or so). `watch` outlives the watching. Any thread. */
struct tp_watch {
	int fd;
	void (*ready)(struct tp_watch *watch, uint32_t epoll_events);
};
int tp_cq_watch(struct tp_cq *cq, struct tp_watch *watch);
/* After it returns `ready` does not run again. Polling thread, or while nobody polls. */
void tp_cq_unwatch(struct tp_cq *cq, struct tp_watch *watch);
/* The eventfd of tp_cq_wake, for a backend whose peers wake this CQ themselves. */
int tp_cq_eventfd(const struct tp_cq *cq);

#endif

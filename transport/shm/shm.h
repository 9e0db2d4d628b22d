/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared-memory backend's own objects. Each file of this folder says what it does with them.
 *
 * A connection's life: OPEN until somebody ends it, the caller, the peer's hang-up or a lie of the
 * peer's; then ENDING, when nothing more is posted and the poller delivers what is there already;
 * at last TP_EV_CLOSED, which takes it off the poller's list. shm_conn_end is the one way from
 * OPEN.
 *
 * Who touches what:
 *   `post_lock` (spin)   tx, done_reserved, starved, state, status, reason
 *   `sock_lock` (mutex)  reading the socket, regions[]
 *   polling thread       rx, done_taken, msg, drain_left, its place in the list
 *   anyone               the segment, as in order.h; its words are never believed
 */
#ifndef GS_TRANSPORT_SHM_SHM_H
#define GS_TRANSPORT_SHM_SHM_H

#include "base/line.h"
#include "transport/backend.h"
#include "transport/shm/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/types.h>

/* Descriptors a peer may have passed and not withdrawn. */
#define SHM_REGIONS_MAX 64
#define SHM_CHUNK_MAX   (1u << 30)
#define SHM_INLINE      256

enum shm_state { SHM_OPEN, SHM_ENDING };

/* The end of an op that was signalled. */
struct shm_done {
	_Atomic uint32_t seq; /* as in the ring: there for this lap */
	int32_t status;
	uint64_t cookie;
};

/* The peer's region: its file, by key. */
struct shm_passed {
	uint64_t key;
	int fd; /* -1: free */
	unsigned access;
};

/* How many connections a listener has given out; outlives it while one of them lives. */
struct shm_gate {
	atomic_uint refs;
	atomic_uint conns;
};

struct shm_region {
	struct tp_region base;
	LIST_ENTRY(shm_region) link;
	bool passed;
};

struct shm_remote {
	struct tp_remote base;
	LIST_ENTRY(shm_remote) link;
};

struct shm_conn {
	struct tp_conn base;
	struct shm_gate *gate; /* NULL on the connecting side */
	bool counted; /* in the gate: until its TP_EV_CLOSED */
	struct shm_subcq *sub;
	struct tp_watch watch; /* of the socket */
	struct tp_watch peer_watch; /* of the peer's process; fd -1: there is none */
	int sock;
	bool accepted;
	bool listed; /* in the poller's list, or on the way there */
	bool given_closed; /* the poller's: TP_EV_CLOSED was given */
	struct shm_conn *next_new;
	uint64_t last_key; /* of a region exposed here */

	/* What everybody reads and hardly anybody writes. */
	void *segment LINE_BEGINS;
	struct shm_side *mine, *theirs;
	struct ring_entry *out, *in;
	char *out_msgs, *in_msgs;
	struct shm_done *done;
	char *msg; /* TP_MSG_MAX bytes, out of the peer's reach */
	atomic_int state;
	int status;
	bool drain; /* what is in the ring is delivered before TP_EV_CLOSED */
	atomic_bool starved; /* a post gave -EAGAIN */

	/* Whoever posts. */
	atomic_flag post_lock LINE_BEGINS;
	atomic_uint unpublished; /* entries reserved and not yet there */
	struct ring_tx tx;
	uint64_t done_reserved;

	/* The poller's: its place in the list, visits in vain, and see subcq.c. */
	unsigned place LINE_BEGINS, vain;
	bool armed;
	bool entries_first; /* alternates, so that neither kind of event starves the other */
	bool draining;      /* drain_left is set */
	uint32_t drain_left;
	_Atomic uint64_t done_taken; /* who posts reads it only for what is signalled */
	struct ring_rx rx;

	pthread_mutex_t sock_lock LINE_BEGINS;
	struct shm_passed regions[SHM_REGIONS_MAX];

	/* What ends with it; the caller's one thread at a time. */
	LIST_HEAD(, shm_region) exposed;
	LIST_HEAD(, shm_remote) attached;
};
/* One writes, another reads what does not change, for each poll or post. */
#define SHM_LINE_OF(field) (offsetof(struct shm_conn, field) / LINE)
static_assert(SHM_LINE_OF(done_reserved) == SHM_LINE_OF(post_lock), "who posts has one line");
static_assert(SHM_LINE_OF(rx.taken) == SHM_LINE_OF(place), "the poller has one line");
static_assert(SHM_LINE_OF(starved) < SHM_LINE_OF(post_lock) &&
		  SHM_LINE_OF(post_lock) < SHM_LINE_OF(place) &&
		  SHM_LINE_OF(rx.taken) < SHM_LINE_OF(sock_lock),
	      "none of them is another's");

struct shm_subcq {
	struct tp_subcq base;
	pthread_mutex_t lock;          /* of adding to news */
	struct shm_conn *_Atomic news; /* bound and not yet seen by the poller */
	struct shm_conn **conns;       /* the polling thread's */
	unsigned nconns, room;
	unsigned nbusy; /* at the head of conns */
	unsigned turn, quiet_turn;
};

/* A connection over `sock` and `segment`, both of which become its own also when this fails. Not
 * yet bound. `side` is 0 for the accepting one. */
struct shm_setup {
	int sock;
	void *segment;
	int side;
	uint32_t depth, max_chunk;
	struct shm_gate *gate;
	bool counts; /* in the gate: a bundle's first rail does, the others don't */
	pid_t peer;
	uint8_t binding[SHM_BINDING];
};
int shm_conn_create(const struct shm_setup *setup, struct shm_conn **out);
/* Gives it to its CQ's poller. */
int shm_conn_bind(struct shm_conn *conn, struct tp_subcq *sub, const struct tp_owner *owner);
void shm_conn_destroy(struct tp_conn *conn);
void shm_conn_close(struct tp_conn *conn);

/* It takes no place at its listener any more. */
void shm_conn_discount(struct shm_conn *conn);
/* Ends it if it is open; the first to come says why. `drain` as in the struct. Any thread. */
void shm_conn_end(struct shm_conn *conn, int status, enum shm_bye bye, bool drain, const char *fmt,
		  ...) __attribute__((format(printf, 5, 6)));
/* The peer broke the protocol. */
#define shm_conn_lie(conn, ...) shm_conn_end(conn, -EPROTO, SHM_BYE_BROKEN, false, __VA_ARGS__)

static inline bool shm_conn_open(const struct shm_conn *conn)
{
	return atomic_load_explicit(&conn->state, memory_order_acquire) == SHM_OPEN;
}

static inline struct shm_conn *to_shm(struct tp_conn *conn)
{
	return (struct shm_conn *)conn;
}

void shm_lock(struct shm_conn *conn);
void shm_unlock(struct shm_conn *conn);

/* link.c: the socket after the handshake. */
void shm_wake_peer(struct shm_conn *conn, uint32_t what);
/* Reads packets, some at a time, and returns how many; *bell is set if one was a doorbell. Needs
 * sock_lock. */
int shm_read_socket(struct shm_conn *conn, bool *bell);
/* NULL when it was not passed. Needs sock_lock. */
struct shm_passed *shm_find_region(struct shm_conn *conn, uint64_t key);
void shm_socket_ready(struct tp_watch *watch, uint32_t events);
/* Watches the peer's process: its socket stays open as long as a child that it forked lives.
 * Errors: -ECONNRESET (it ended already), -EMFILE and the like. */
int shm_peer_watch(struct shm_conn *conn, pid_t peer);
int shm_send_region(struct shm_conn *conn, uint64_t key, unsigned access, int fd);
void shm_send_region_gone(struct shm_conn *conn, uint64_t key);

/* data.c */
int shm_post(struct tp_conn *conn, const struct tp_op *ops, int n);
int shm_send(struct tp_conn *conn, const void *msg, size_t len);
/* Whether a post that found no room may be tried again. Needs post_lock. */
enum shm_room { SHM_ROOM_NONE, SHM_ROOM, SHM_ROOM_LIE };
enum shm_room shm_has_room(struct shm_conn *conn);

/* memory.c */
int shm_expose(struct tp_conn *conn, struct tp_arena *arena, unsigned access,
	       struct tp_region **out);
void shm_region_destroy(struct tp_region *region);
int shm_attach(struct tp_conn *conn, const struct tp_ref *ref, unsigned access,
	       struct tp_remote **out);
void shm_remote_destroy(struct tp_remote *remote);

/* subcq.c */
int shm_subcq_create(struct tp_cq *cq, struct tp_subcq **out);
void shm_subcq_destroy(struct tp_subcq *sub);
int shm_subcq_add(struct shm_subcq *sub, struct shm_conn *conn);
/* While nobody polls. */
void shm_subcq_remove(struct shm_subcq *sub, struct shm_conn *conn);
int shm_subcq_poll(struct tp_subcq *sub, struct tp_event *ev, int max);
/* The peer rang, or its process or socket ended. Polling thread. */
void shm_subcq_rung(struct shm_conn *conn);
bool shm_subcq_arm(struct tp_subcq *sub);
void shm_subcq_disarm(struct tp_subcq *sub);

/* take.c: one connection's events. */
int shm_conn_take(struct shm_conn *conn, struct tp_event *ev, int max, bool *closed);
bool shm_conn_ready(struct shm_conn *conn);
/* The same of what this process brought about. */
bool shm_conn_ready_here(struct shm_conn *conn);

/* listen.c, connect.c */
int shm_listen(const struct tp_uri *uri, const struct tp_options *opt, struct tp_listener **out);
void shm_listener_destroy(struct tp_listener *listener);
int shm_listener_fd(const struct tp_listener *listener);
int shm_accept(struct tp_listener *listener, struct tp_subcq *sub, void *user,
	       struct tp_conn **out);
int shm_connect(const struct tp_uri *uri, const struct tp_options *opt, struct tp_subcq *sub,
		const struct tp_owner *owner, struct tp_conn **out);

void shm_gate_leave(struct shm_gate *gate);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport contract: listeners, connections, memory, completions. It moves bytes and knows
 * nothing of parameters. Two backends stand behind it, `shm:` and `rdma:`; a third could be written
 * from this header alone, and tests/transport/contract.c is what each must pass.
 *
 * The story. A *listener* accepts *connections*. Both sides expose *regions* of their *arenas* to
 * the peer, tell it their *refs* in a message, and the peer attaches them as *remotes*. Then either
 * side posts WRITEs and READs of the other's memory; a WRITE may carry 32 bits of *immediate data*
 * that wake the peer. What happens on a connection comes out of the *completion queue* (CQ) that it
 * was bound to when it was made.
 *
 * Invariants, each held by every backend:
 *  1. Per rail of a connection (most have one), things arrive in the order in which they were
 *     posted: an immediate after the bytes of its own WRITE and of every WRITE posted before it; a
 *     message likewise. Messages go by rail 0.
 *  2. Every op posted with TP_F_SIGNAL completes exactly once, also when the peer dies: with a
 *     negative status then, and before the connection's TP_EV_CLOSED. They complete in the order in
 *     which they were posted.
 *  3. TP_EV_CLOSED comes exactly once per connection and is its last event. Until then its memory
 *     is kept, because the peer (or the NIC) may still reach it.
 *  4. Two budgets bound what is under way, and neither depends on the other: room in the send queue
 *     comes back from send completions, remote receives come back from the peer's credits. When
 *     either is used up a post gives -EAGAIN, and a TP_EV_ROOM follows once there is room again.
 *     The receiver is never overrun (no RNR).
 *  5. Nothing a peer sends can touch memory that was not exposed to it, or crash or block this side:
 *     nonsense ends that connection with a reason.
 *
 * Threads. A CQ is polled by one thread at a time. tp_post, tp_send and tp_conn_close may be called
 * by any thread, also several at once on one connection. All else on a connection (expose, attach,
 * destroy) is called by one thread at a time, and may run beside posts and polls.
 *
 * Errors: negative errno, with the text in err_text(). Outputs are untouched on failure. Destroy
 * functions take NULL.
 */
#ifndef GS_TRANSPORT_H
#define GS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_cq;
struct tp_listener;
struct tp_conn;
struct tp_arena;
struct tp_region;
struct tp_remote;

/* The longest control message (tp_send), in bytes. */
#define TP_MSG_MAX 4096

/* A connection may be a bundle of several queue pairs, its *rails*, which may go by different
 * devices to different addresses of the peer. Each op says which rail it takes; between rails there
 * is no order. The end of one is the end of all. */
#define TP_RAILS_MAX 8

/* ---- memory ---------------------------------------------------------------------------------- */

enum tp_arena_flags {
	/* Peers on this host may be given this arena to read, never to write: the file is sealed
	 * against any further writable mapping (F_SEAL_FUTURE_WRITE). */
	TP_ARENA_READ_ONLY_TO_PEERS = 1 << 0,
	/* Touch every page now, so that no fault is taken on the data path. Large arenas are touched by
	 * a thread on each CPU that the caller may use, with the caller's memory policy. */
	TP_ARENA_PREFAULT = 1 << 1,
	/* 4 KiB pages, whatever else there is. */
	TP_ARENA_SMALL_PAGES = 1 << 2,
	/* Huge pages or none: wherever a whole one fits. With TP_ARENA_PREFAULT, without which nobody
	 * could say. */
	TP_ARENA_HUGE_PAGES = 1 << 3,
};

/* Allocates `size` bytes (rounded up to pages, > 0) of zeroed memory backed by a sealed memfd. From
 * 2 MiB on it is in reserved huge pages where enough are free, else in transparent ones where the
 * kernel gives them to shared memory, else in small ones. It has no name in any file system and goes
 * with the last process that maps it. `name` is for /proc/PID/maps. Errors: -EINVAL, -ENOMEM (also
 * when TP_ARENA_HUGE_PAGES can't be had: the text says what to set). */
int tp_arena_create(const char *name, size_t size, unsigned flags, struct tp_arena **out);
void tp_arena_destroy(struct tp_arena *arena);
void *tp_arena_base(const struct tp_arena *arena);
size_t tp_arena_size(const struct tp_arena *arena);
/* "4 KiB pages", "2 MiB huge pages" or, of transparent ones, which part of a prefaulted arena is in
 * them. Lives as long as the arena. */
const char *tp_arena_pages(const struct tp_arena *arena);

enum tp_access {
	TP_LOCAL = 0, /* only this side: a source of WRITEs and a target of READs */
	TP_PEER_READ = 1 << 0,
	TP_PEER_WRITE = 1 << 1,
	/* tp_expose: this side looks at what comes into the region (the peer's WRITEs, its own READs)
	 * only behind an event that follows it: the WRITE's immediate, or a later one of the same
	 * connection; the READ's TP_EV_DONE. Then the device may write it in whatever order is best.
	 * Never for memory that is polled: there one WRITE may be seen before another that was posted
	 * first. */
	TP_COMPLETION_ORDERED = 1 << 2,
};

/* What a peer must be told to reach a region; send it in a message, as it is. */
struct tp_ref {
	uint64_t addr;
	uint64_t len;
	uint64_t key; /* verbs: the rkey; shm: which passed file descriptor */
	/* The keys of rails 1 and on, where the connection has them. */
	uint32_t more;
	uint64_t more_key[TP_RAILS_MAX - 1];
};

/* Makes the whole arena usable on this connection with the given access (verbs: registers it in
 * the connection's protection domain; shm: passes its file descriptor to the peer, when the peer
 * gets any access). The arena must outlive the region, the region ends with tp_region_destroy or
 * with the connection. Blocking: may take long for large memory.
 * Errors: -EINVAL (TP_PEER_WRITE of an arena that is read-only to peers), -ENOMEM (memlock; the
 * text says how much is needed and how to raise it), -ENOTCONN. */
int tp_expose(struct tp_conn *conn, struct tp_arena *arena, unsigned access,
	      struct tp_region **out);
void tp_region_destroy(struct tp_region *region);
/* Undefined for TP_LOCAL regions. */
struct tp_ref tp_region_ref(const struct tp_region *region);

enum tp_lend {
	/* A target of READs, too; else a source of WRITEs alone, which nothing writes. What is read is
	 * looked at behind the READ's TP_EV_DONE. */
	TP_LEND_TARGET = 1 << 0,
	/* If it is registered already; nothing is registered anew. */
	TP_LEND_KNOWN = 1 << 1,
};

/* Makes [at, at + len) of the program's own memory usable for WRITEs, or READs, on this connection, until
 * tp_unregister; *out is NULL where that needs nothing (load_store). A registration is kept, and the same
 * memory is found registered the next time: unless it was unmapped, moved or given back in between, which
 * is noticed however it was done. Any thread. Not after TP_EV_CLOSED was handed out; what is still
 * registered ends with the connection.
 * Errors: -ENOENT (TP_LEND_KNOWN: it is not), -EOPNOTSUPP (changes of the address space can't be noticed
 * here, a fork would harm, or, TP_LEND_TARGET, over iWARP, where the peer would be given a key to write it
 * with: never so on this connection), -EFAULT (not private anonymous memory; or
 * watched by somebody else; TP_LEND_TARGET: may not be written), -ENOBUFS (lend_bytes are in use), -ENOMEM
 * (memlock), -EINVAL. */
int tp_register(struct tp_conn *conn, const void *at, size_t len, unsigned lend,
		struct tp_region **out);
/* One more tp_unregister is to come. Any thread; NULL is allowed, as it is there. */
void tp_hold(struct tp_region *region);
/* The ops that use it have completed. Any thread. */
void tp_unregister(struct tp_region *region);

/* Reaches the peer's region. `ref` came from the peer and is not trusted: `len` must be what it
 * says (shm: the descriptor is checked to be sealed against shrinking), at least 1 and at most
 * `max_len`, and it has a key for each rail of this connection. The remote ends with the connection,
 * or with tp_remote_destroy before.
 * Errors: -EINVAL (this side's arguments), -EPROTO (the ref can't be what it says), -EACCES (the
 * peer gave less access than asked; over a network only a first op finds out, and closes the
 * connection), -ENOTCONN. */
int tp_attach(struct tp_conn *conn, const struct tp_ref *ref, unsigned access, uint64_t max_len,
	      struct tp_remote **out);
void tp_remote_destroy(struct tp_remote *remote);
/* Where the remote can be reached by plain loads (and stores, when attached for writing): its base
 * address over shm, NULL over a network. */
void *tp_remote_map(const struct tp_remote *remote);

/* ---- completion queues ------------------------------------------------------------------------ */

enum { TP_SPIN_FOREVER = -1 };

/* `spin_us`: how long tp_cq_wait polls at most before it sleeps: while it pays (base/spin.h).
 * TP_SPIN_FOREVER never sleeps. */
int tp_cq_create(int32_t spin_us, struct tp_cq **out);
/* Every connection bound to it must have been destroyed. */
void tp_cq_destroy(struct tp_cq *cq);

enum tp_event_kind {
	TP_EV_IMM,    /* the peer's WRITE with immediate data landed: imm, len */
	TP_EV_MSG,    /* a control message: msg, len (1..TP_MSG_MAX); valid until the next
		      * tp_cq_poll or tp_cq_wait */
	TP_EV_DONE,   /* an op posted with TP_F_SIGNAL ended: cookie, status */
	TP_EV_ROOM,   /* a post had given -EAGAIN and may be tried again */
	TP_EV_CLOSED, /* the connection is over: status 0 (the peer, or this side, closed it) or a
		       * negative errno; tp_conn_reason has the text */
};

struct tp_event {
	enum tp_event_kind kind;
	int status;
	uint32_t imm;
	/* IMM: bytes of the last work request of the WRITE: tp_imm_len(conn, total). */
	uint32_t len;
	uint64_t cookie;
	const void *msg;
	struct tp_conn *conn;
	uint8_t rail; /* IMM: by which it came */
};

/* Takes up to `max` events, never blocks. Returns how many. Busy connections take turns: one can't
 * starve the others. Housekeeping (hang-ups, connection-manager events) is looked at on a clock, so
 * a caller that only ever polls learns of a dead peer too. */
int tp_cq_poll(struct tp_cq *cq, struct tp_event *ev, int max);

/* Waits until there is something to poll, somebody called tp_cq_wake, or `timeout_ms` passed
 * (-1: no limit): first by polling for the CQ's spin time, then asleep. The gap between the last
 * poll and going to sleep is closed (re-polled after arming). Returns 1 if a poll may find
 * something, 0 on timeout. Polling thread only. */
int tp_cq_wait(struct tp_cq *cq, int timeout_ms);
/* A wait that polls also ends when *word is not `was` any more, which no event need tell of (NULL: there is
 * no word). One that sleeps does not see it. For all waits from here on. Polling thread only. */
void tp_cq_look_at(struct tp_cq *cq, const uint64_t *word, uint64_t was);
/* Ends a tp_cq_wait, now or the next one. Any thread; async-signal-safe. */
void tp_cq_wake(struct tp_cq *cq);

/* ---- listening and connecting ----------------------------------------------------------------- */

/* What both sides may ask of a connection; zero means the default. */
struct tp_options {
	uint32_t depth; /* immediates and messages under way each way; default 256, at most 16384;
			 * the smaller of the two sides' holds */
	uint32_t timeout_ms; /* connect and attach; default 10000 */
	uint32_t max_conns;  /* listener: accept no more than this at once, those that have had their
			      * TP_EV_CLOSED not counted; default 64 */
	uint32_t max_chunk;  /* longest single work request; default: the device's limit; the
			      * smaller of the two sides' holds */
	uint64_t lend_bytes; /* of memory that is kept registered for tp_register, once for each rail;
			      * default: no limit but the system's */
	uint32_t rails; /* connecting: how many, 1 to TP_RAILS_MAX, where the URI does not say;
			 * default 1 */
};

/* Listens on a URI (transport/uri.h); it takes connections of any number of rails. Errors: -EINVAL (the
 * URI), -EADDRINUSE, -EADDRNOTAVAIL, -EHOSTUNREACH/-ENOENT (name does not resolve), -ENODEV (no RDMA
 * device: says what was looked for and how to get one), -EACCES. */
int tp_listen(const char *uri, const struct tp_options *opt, struct tp_listener **out);
void tp_listener_destroy(struct tp_listener *listener);
/* The URI can be reached from this host alone: shm, or a loopback address (127/8, ::1, localhost). */
bool tp_uri_is_local(const char *uri);
/* Readable when tp_accept may find something: for poll(2). */
int tp_listener_fd(const struct tp_listener *listener);
/* The URI that peers use: with the real port when 0 was asked for. */
const char *tp_listener_uri(const struct tp_listener *listener);
/* Takes one connection, never blocks for long; its events go to `cq`. Receives are posted before
 * the peer can send. A peer whose hello does not fit (magic, version, sizes) is refused, told why,
 * and never shows here, nor does one whose rails do not all come within TP_RAILS_WAIT_MS: until they
 * have, nothing is made for any. (Looked at here: call it now and then.) tp_conn_user gives `user` at once.
 * Returns 1 with *out, 0 when there is none, or a negative errno for one that failed. */
int tp_accept(struct tp_listener *listener, struct tp_cq *cq, void *user, struct tp_conn **out);

enum { TP_RAILS_WAIT_MS = 5000 };

/* Connects; blocks up to opt->timeout_ms (name resolution included). With several rails nobody polls
 * `cq` meanwhile.
 * Errors: -EINVAL, -ENOENT (name), -EHOSTUNREACH, -ECONNREFUSED, -ETIMEDOUT, -ENODEV,
 * -EPROTONOSUPPORT (hello version; the text names both), -EUSERS (the listener is full), -EACCES. */
int tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
	       struct tp_conn **out);

/* ---- connections ------------------------------------------------------------------------------ */

void *tp_conn_user(const struct tp_conn *conn);
/* Who is at the other end, for logs: "10.0.0.7:51234", "pid 4711". */
const char *tp_conn_peer(const struct tp_conn *conn);
/* Why it closed; "" while it is open. */
const char *tp_conn_reason(const struct tp_conn *conn);
/* "shm", "rdma (rxe0, RoCE v2, MTU 4096)", "rdma (rxe0, RoCE v2, MTU 4096, 4 QPs)" and the like. */
const char *tp_conn_transport(const struct tp_conn *conn);

/* What names this connection and no other, the same at both ends: for proofs that must not be good on
 * another one. (verbs: both ends' addresses, ports and queue pairs, and a number that each drew; shm:
 * drawn by the listener. Whoever sits between two shm connections of one user could give one's on to
 * the other; but that user may look into both processes as it is.) Of several rails it is all of
 * theirs, one behind the other: so nobody can put a rail of his own into another's connection.
 * Returns its length, TP_BINDING_LEN for each rail. */
#define TP_BINDING_LEN 64u
#define TP_BINDING_MAX (TP_RAILS_MAX * TP_BINDING_LEN)
size_t tp_conn_binding(const struct tp_conn *conn, uint8_t out[TP_BINDING_MAX]);

struct tp_limits {
	uint64_t max_chunk;   /* longer ops are cut into work requests of this many bytes */
	uint32_t max_inline;  /* payloads up to this are copied at post time */
	uint32_t read_depth;  /* READs that the wire carries at once */
	uint32_t depth;       /* immediates and messages that may be under way to the peer */
	bool native_imm;      /* false: a WRITE and a SEND stand in for it (iWARP) */
	bool load_store;      /* remotes are mapped: shm */
	uint32_t rails;       /* 1 to TP_RAILS_MAX; the numbers above are each one's */
};
struct tp_limits tp_conn_limits(const struct tp_conn *conn);

/* The `len` that TP_EV_IMM shows at the peer for a WRITE of `total` bytes: the last chunk's. */
uint32_t tp_imm_len(const struct tp_conn *conn, uint64_t total);

enum tp_op_kind { TP_OP_WRITE, TP_OP_READ };
enum tp_op_flags {
	TP_F_IMM = 1 << 0,    /* WRITE: deliver `imm` at the peer after the data */
	TP_F_SIGNAL = 1 << 1, /* give a TP_EV_DONE with `cookie` */
	TP_F_FENCE = 1 << 2,  /* begin only when all READs posted before on this rail ended */
};

struct tp_op {
	enum tp_op_kind kind;
	unsigned flags;
	uint32_t imm;
	void *local; /* within `region`; if len <= max_inline a WRITE's source may be anywhere
		      * and is copied before tp_post returns */
	struct tp_region *region; /* NULL for such a short WRITE; not used where load_store */
	struct tp_remote *remote;
	uint64_t offset; /* in the remote */
	uint64_t len;    /* 1 at least */
	uint64_t cookie;
	uint8_t rail;
};

/* Posts ops in order, as one chain for each run of one rail. Where the local memory of a WRITE *is* the
 * mapped remote (shm, zero copy) no byte is copied. The source of a WRITE must stay unchanged until the
 * peer is known to have it; a READ's target is the op's until TP_EV_DONE.
 * Returns how many were taken (a prefix), or, when the first could not be: -EAGAIN (no room now;
 * TP_EV_ROOM follows), -EINVAL (out of the remote's or the region's bounds, length 0, an op longer
 * than the whole queue could carry), -EACCES (the remote was attached without that access),
 * -ENOTCONN. */
int tp_post(struct tp_conn *conn, const struct tp_op *ops, int n);

/* Sends a control message (copied). -EAGAIN, -EMSGSIZE (0 or > TP_MSG_MAX), -ENOTCONN. */
int tp_send(struct tp_conn *conn, const void *msg, size_t len);

/* Ends the connection: what was posted is delivered first when the peer is alive (for up to one
 * second), then TP_EV_CLOSED comes at both ends. Any thread; repeats are harmless. */
void tp_conn_close(struct tp_conn *conn);
/* Frees it with what was exposed and attached on it. Only after its TP_EV_CLOSED was polled, or
 * while no thread polls its CQ. */
void tp_conn_destroy(struct tp_conn *conn);

/* ---- what this machine can do ------------------------------------------------------------------ */

/* 0 if URIs of this scheme ("shm", "rdma") can be used here, else a negative errno whose text says
 * why not and what would help. */
int tp_available(const char *scheme);
/* Calls `line` with facts on a scheme's devices for `gradslot doctor`: devices, ports, link layer,
 * GID table with the one that would be chosen. */
void tp_describe(const char *scheme, void (*line)(void *arg, const char *text), void *arg);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs backend's own types and the functions that its files give each other. No verbs type
 * leaves this folder.
 *
 * Objects. A *sub* is the part of a tp_cq; it has a *device* for each RDMA device in use: a device
 * context of its own (so that its asynchronous events are nobody else's), a completion channel,
 * CQs in *banks* (one that is full is followed by another one), and the connections.
 * A *conn* has a protection domain and an event channel of its own, so that its rkeys are good on
 * its QP only and waiting for one connection's events disturbs no other.
 *
 * A connection's life (conn_set_state is the only one who moves it on):
 *
 *      tp_connect            tp_accept
 *          |                     |
 *      CONNECTING            ACCEPTED      accepted, the peer has not confirmed: messages wait
 *          |                     |
 *          +-------> OPEN <------+
 *                   /    \
 *   tp_conn_close  /      \  the peer's goodbye
 *             CLOSING    PEER_CLOSING
 *                  \      /
 *                   \    /     <--- also from each state above: error, hang-up, deadline
 *                  DRAINING      QP in ERR; what was posted comes out as flushed
 *                     |
 *                  DRAINED       QP destroyed: nobody can reach its memory any more
 *                     |
 *                   CLOSED       TP_EV_CLOSED was handed out
 *
 * Locks and threads, in the order in which they are taken:
 *  - sub->lock: the lists of devices, banks and connections, receive pools, and each connection's
 *    progress through its states. The polling thread holds it while it works through completions.
 *    No tp_cq_* function is called under it (they may take locks of their own).
 *  - conn->lock (spins): posting and its accounts. Any thread; held for one ibv_post_send.
 */
#ifndef GS_TRANSPORT_VERBS_H
#define GS_TRANSPORT_VERBS_H

#include "transport/backend.h"
#include "transport/verbs/credit.h"
#include "transport/verbs/doorbell.h"
#include "transport/verbs/hello.h"
#include "transport/verbs/regcache.h"
#include "transport/verbs/resolve.h"
#include "transport/verbs/sendq.h"
#include "transport/verbs/tuning.h"
#include "transport/verbs/vmwatch.h"
#include "transport/verbs/wire.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>

/* From the send queue's reserve: two more updates than can be under way at the peer (a completion
 * may be seen late), the goodbye with its probe, the marker. */
#define SQ_ENDING  3
#define SQ_RESERVE (CREDIT_UPDATES + 2 + SQ_ENDING)

#define RX_SLOT_BYTES 4160 /* a header and TP_MSG_MAX, rounded up to cache lines */
#define RX_CHUNK      64   /* slots that are registered together */
#define TX_BUFFERS    32   /* messages under way that do not fit inline */
#define CHAIN         32   /* work requests in one ibv_post_send */
#define WC_BATCH      16

#define RXE_VENDOR 0xffffff /* Soft-RoCE's */

/* Seconds and fractions that a connection may take to end. */
#define CLOSE_MS      1000 /* what was posted before tp_conn_close is delivered in this time */
#define PEER_CLOSE_MS 2000 /* from the peer's goodbye to this side's being sent */
#define DRAIN_MS      500  /* from ERR to the last flushed completion */
#define QUIET_MS      10   /* iWARP: no completion for so long ends the drain */
#define KNOCK_MS      20   /* siw: from one READ that was not answered to the next, at first */

/* ---- devices --------------------------------------------------------------------------------- */

struct rx_slab {
	void *mem;
	struct ibv_mr *mr;
};

/* Receive buffers. Number i is in slab i / RX_CHUNK. */
struct rx_pool {
	uint32_t nslabs;
	struct rx_slab *slabs;
};

struct cq_bank {
	struct ibv_cq *cq;
	uint32_t size, used;
	bool armed;
	unsigned unacked;
	struct cq_bank *next;
};

#define CONN_BUCKETS 256

struct device {
	struct sub *sub;
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	bool iwarp;
	bool siw; /* software iWARP: see siw.c */
	struct ibv_comp_channel *channel;
	struct tp_watch comp_watch, async_watch;
	struct cq_bank *banks;
	struct conn *buckets[CONN_BUCKETS]; /* by QP number */
	struct device *next;
	bool broken; /* its descriptors could not be watched */
};

/* A message that was handed out; its receive is posted again at the next poll. */
struct held {
	struct conn *conn; /* NULL: gone */
	uint32_t slot;
};

struct sub {
	struct tp_subcq base;
	pthread_mutex_t lock;
	unsigned freeing; /* connections that threads of their own free */
	pthread_cond_t freed;
	struct device *devices;
	struct conn *conns; /* all that are bound, linked by prev/next */
	atomic_bool todo;   /* a connection has something in `asked`, or is new */
	unsigned ending;    /* connections that have a deadline */
	uint64_t next_deadline;
	uint64_t timer_set; /* what the timerfd is set to */
	struct tp_watch timer;
	struct conn *ready; /* have a ROOM or a CLOSED to hand out */
	unsigned nheld;
	struct held held[64];
	int wc_at, wc_end; /* completions that arm() polled */
	struct device *wc_device;
	struct ibv_wc wc[WC_BATCH];
	uint32_t next_serial;
	unsigned turn; /* the CQ that is polled first */
};

/* ---- connections ----------------------------------------------------------------------------- */

enum conn_state {
	CONN_CONNECTING,
	CONN_ACCEPTED,
	CONN_OPEN,
	CONN_CLOSING,
	CONN_PEER_CLOSING,
	CONN_DRAINING,
	CONN_DRAINED,
	CONN_CLOSED,
};

/* What other threads ask of the polling thread. */
enum conn_asked {
	ASKED_CLOSE = 1 << 0,
	ASKED_END = 1 << 1, /* conn_fail was called: end at once */
};

/* How many of a listener's connections there are; outlives the listener. */
struct quota {
	atomic_uint refs, live;
};

struct region {
	struct tp_region base;
	struct ibv_mr *mr;
	bool sink; /* may be the target of READs */
	struct regcache_entry *entry; /* of memory that is lent */
	struct region *prev, *next;
};

struct remote {
	struct tp_remote base;
	struct remote *prev, *next;
};

struct chain {
	int n;
	uint32_t first; /* position of the first */
	struct ibv_send_wr wr[CHAIN];
	struct ibv_sge sge[CHAIN];
	int op[CHAIN]; /* which of the caller's ops it belongs to */
};

/* What hello.h calls the probe: the peer READs `word`, this side's READ lands in `sink`. */
struct probe {
	uint64_t word, sink;
};

struct conn {
	struct tp_conn base;
	struct sub *sub;
	struct device *dev;
	struct quota *quota; /* accepted ones */

	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	bool connect_pending; /* rdma_connect was called and has no answer yet */
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	struct ibv_qp_ex *qp_ex; /* NULL: the provider has no ibv_wr_* */
	struct tuning tuning;
	uint32_t qp_num;
	uint32_t serial; /* tells it from an older connection with this QP number */
	uint32_t gid_type;
	struct tp_watch cm_watch;
	bool watched; /* the polling thread's, once it is bound */

	/* sub->lock */
	enum conn_state state;
	uint64_t deadline; /* of this state; 0: none */
	bool bye_seen, bye_sent;
	unsigned knock_ms; /* siw, connecting side: until a READ was answered */
	bool knock_heard;  /* ... and it was */
	bool close_wanted; /* tp_conn_close came before the peer confirmed */
	bool sq_flushed, rq_flushed;
	bool cm_established; /* rdma_cm knows it as established, so it can be disconnected */
	bool disconnect_due; /* ... and will be when it is */
	bool on_ready, bound;
	struct cq_bank *bank;
	uint32_t cqes;
	struct rx_pool rx;
	struct credit_rx credit_rx;
	struct conn *prev, *next, *bucket, *ready_next;

	atomic_uint asked;

	/* conn->lock */
	pthread_spinlock_t lock;
	enum { POST_NOT_YET, POST_OPEN, POST_SHUT } posting;
	struct sendq sq;
	struct credit_tx credit_tx;
	bool bye_posted;
	bool want_room, want_credit, want_buffer, want_reads, room_due;
	bool any_read; /* last_read is the position of the last READ */
	uint32_t last_read;
	uint32_t want_wrs;
	bool failed;
	int status;  /* TP_EV_CLOSED's; the first cause stays */
	bool hangup; /* ... and it was that the peer went away, which its goodbye may explain */
	char why[256];
	void *mem; /* headers, then message buffers */
	size_t mem_size;
	struct ibv_mr *mem_mr;
	struct probe *probe; /* iWARP */
	struct ibv_mr *probe_mr;
	uint64_t peer_probe_addr;
	uint32_t peer_probe_key;
	struct wire_header *headers; /* one for each position of the send queue's ring */
	uint8_t *tx_buffers;
	uint32_t tx_free[TX_BUFFERS];
	uint32_t tx_nfree;
	struct chain chain;

	/* lend.c; NULL until something is lent. */
	struct lent *lent;
	uint64_t lend_limit;

	/* Of the thread that exposes and attaches. */
	struct region *regions;
	struct remote *remotes;
};

static inline struct conn *conn_of(struct tp_conn *base)
{
	return (struct conn *)base;
}

static inline struct sub *sub_of(struct tp_subcq *base)
{
	return (struct sub *)base;
}

static inline bool conn_ending(const struct conn *conn)
{
	return conn->state >= CONN_DRAINING;
}

/* Work request ids: kind, then a connection's serial, then a position or a slot. */
enum wr_kind { WR_SEND, WR_RECV, WR_RECV_MARKER };

#define SERIAL_MASK ((1u << 30) - 1)

static inline uint64_t wr_id(enum wr_kind kind, uint32_t serial, uint32_t low)
{
	return (uint64_t)kind << 62 | (uint64_t)(serial & SERIAL_MASK) << 32 | low;
}

static inline enum wr_kind wr_id_kind(uint64_t id)
{
	return (enum wr_kind)(id >> 62);
}

static inline uint32_t wr_id_serial(uint64_t id)
{
	return (uint32_t)(id >> 32) & SERIAL_MASK;
}

/* ---- device.c: what there is ----------------------------------------------------------------- */

/* Before anything else of verbs or rdma_cm. */
void verbs_once(void);
int verbs_available(void);
/* The sub's device for an id that rdma_cm has bound to one; opened when it is new. */
int device_get(struct sub *sub, struct rdma_cm_id *id, struct device **out);
void device_close(struct device *dev);
/* An address of the device's in the family of `like` (AF_UNSPEC: any), by GID index (-1: any);
 * by preference on the subnet of `like`. -EADDRNOTAVAIL. */
int device_address(const char *name, int gid, const union address *like, union address *out);
const char *gid_type_text(uint32_t type);

/* ---- siw.c: what software iWARP needs -------------------------------------------------------- */

struct siw_guard {
	sigset_t before;
	bool was_pending;
};
/* Around a call in which siw may send: keeps its SIGPIPE from the process. errno is kept. */
void siw_enter(const struct device *dev, struct siw_guard *guard);
void siw_leave(const struct device *dev, struct siw_guard *guard);
/* READs until the peer's side answers, for a while; the poller goes on with it if need be. */
/* How many bytes of a READ's last chunk must go in a work request of their own; 0: none. */
uint32_t siw_cut(const struct device *dev, uint64_t remote_addr, uint32_t len);
void siw_knock(struct conn *conn);

/* ---- describe.c ------------------------------------------------------------------------------ */

void verbs_describe(void (*line)(void *arg, const char *text), void *arg);

/* ---- sub.c: completion queues ---------------------------------------------------------------- */

int verbs_subcq_create(struct tp_cq *cq, struct tp_subcq **out);
void verbs_subcq_destroy(struct tp_subcq *base);
bool verbs_arm(struct tp_subcq *base);
void verbs_disarm(struct tp_subcq *base);
/* A CQ of the device's with room for `cqes` more. Called under sub->lock. */
int bank_claim(struct device *dev, uint32_t cqes, struct cq_bank **out);
/* Polls the device's CQs into wc[], which is empty; true when something came. Under sub->lock. */
bool sub_stash(struct sub *sub, struct device *dev);
/* Makes the poller look at what connections ask for. Not under sub->lock. */
void sub_kick(struct sub *sub);
/* Gives a connection a deadline (clock_ns), or none (0). Under sub->lock. */
void sub_deadline(struct conn *conn, uint64_t deadline);

/* ---- rx.c: receives -------------------------------------------------------------------------- */

/* Makes and posts `need` receives; the QP is in INIT. */
int rx_fill(struct conn *conn, uint32_t need);
void rx_free(struct conn *conn);
void *rx_slot(const struct conn *conn, uint32_t slot);
/* Posts a receive again. */
int rx_repost(struct conn *conn, uint32_t slot);

/* ---- qp.c ------------------------------------------------------------------------------------ */

/* Works out the queues for `depth`, lowering it to what the device can do. */
struct qp_sizes {
	uint32_t depth, rx_need, sq_cap, cqes;
};
int qp_sizes(const struct device *dev, uint32_t depth, struct qp_sizes *out);
/* What the URI asks of this device's QPs; before qp_create, in conn->tuning. */
int qp_tune(const struct device *dev, const struct tp_uri *uri, struct tuning *out);
/* What this side can do, as an offer. -EINVAL for options that can't be honoured here. */
int qp_offer(const struct device *dev, uint8_t port, const struct tp_uri *uri,
	     const struct tp_options *opt, uint32_t depth, struct hello *out);
/* Makes protection domain, queues, QP (in INIT) and receives, for what both sides agreed on. */
int qp_create(struct conn *conn, const struct qp_sizes *sizes);
/* To RTR and RTS with what was agreed (InfiniBand and RoCE; iWARP's does it itself). */
int qp_connect(struct conn *conn, const struct tp_uri *uri, const struct hello *agreed);
/* The path's MTU in bytes, as rdma_cm knows it; 0 for iWARP. */
uint32_t qp_path_mtu(struct conn *conn);
/* Fills in where the peer may READ (iWARP). */
void qp_probe(const struct conn *conn, struct hello *hello);
void qp_set_limits(struct conn *conn, const struct hello *agreed);
void qp_set_error(struct conn *conn);

/* ---- conn.c: making and freeing -------------------------------------------------------------- */

int conn_new(struct sub *sub, const struct tp_owner *owner, struct conn **out);
/* Lets completions find it, in `state`: from here on the polling thread sees it. */
void conn_bind(struct conn *conn, enum conn_state state, uint64_t deadline);
/* Under sub->lock: completions find it no more; gives back its part of the queues. */
void conn_unbind(struct conn *conn);
struct conn *conn_find(struct device *dev, uint32_t qp_num);
void conn_destroy_qp(struct conn *conn);
void conn_free(struct conn *conn); /* not bound, not watched; may be half built */
void conn_set_state(struct conn *conn, enum conn_state state);
void verbs_conn_destroy(struct tp_conn *base);
struct quota *quota_new(void);
/* How much of it a connection takes: of a bundle, the first rail takes all. */
static inline unsigned quota_share(const struct tp_conn *conn)
{
	return conn->rail == 0;
}
void quota_put(struct quota *quota);
/* A connection that is over takes no place at its listener any more. */
void quota_leave(struct conn *conn);

/* ---- cm.c: connection manager events --------------------------------------------------------- */

int cm_channel(struct rdma_event_channel **out);
/* Waits for this channel's next event. -ETIMEDOUT, without a text. */
int cm_wait(struct rdma_event_channel *channel, uint64_t deadline, struct rdma_cm_event **out);
/* Has the polling thread take the connection's events, once it is bound. The last step before that
 * which may fail: it can't be undone by another thread. */
int cm_watch(struct conn *conn);
/* Fills in conn->base.peer. */
void cm_name_peer(struct conn *conn);
int cm_set_tos(struct rdma_cm_id *id, const struct tp_uri *uri);

/* ---- connect.c, listen.c --------------------------------------------------------------------- */

int verbs_connect(const struct tp_uri *uri, const struct tp_options *opt, struct tp_subcq *sub,
		  const struct tp_owner *owner, struct tp_conn **out);
int verbs_listen(const struct tp_uri *uri, const struct tp_options *opt, struct tp_listener **out);
void verbs_listener_destroy(struct tp_listener *listener);
int verbs_listener_fd(const struct tp_listener *listener);
int verbs_accept(struct tp_listener *listener, struct tp_subcq *sub, void *user,
		 struct tp_conn **out);

/* ---- binding.c ------------------------------------------------------------------------------- */

/* What a hello says of its sender alone: its QP, and bytes drawn for this connection. */
int binding_introduce(const struct conn *conn, struct hello *own);
/* The connection manager says that the peer's QP is another than its hello says: -EPROTO. iWARP's
 * says nothing. */
int binding_check(const struct conn *conn, const struct hello *peer, uint32_t cm_qp_num);
/* Fills in conn->base.binding from both hellos. */
void binding_make(struct conn *conn, bool connecting, const struct hello *own,
		  const struct hello *peer);

/* ---- post.c ---------------------------------------------------------------------------------- */

int verbs_post(struct tp_conn *base, const struct tp_op *ops, int n);
int verbs_send(struct tp_conn *base, const void *msg, size_t len);
/* The rest is called under conn->lock. */
/* Sends a header from the reserve: a HI, a BYE. Failing ends the connection. */
void post_control(struct conn *conn, enum sendq_kind kind, enum wire_kind wire, uint32_t value);
/* Posts, or drops, the messages that were sent before the peer had confirmed the connection. */
void post_waiting(struct conn *conn);
void post_drop_waiting(struct conn *conn);
/* READs the peer's probe, when the reserve has room (siw). */
void post_knock(struct conn *conn);
/* Says goodbye behind all that was posted. Its end comes from completions. */
void post_goodbye(struct conn *conn);
/* Tells the peer of receives, when that is due and the reserve has room. */
void post_credit(struct conn *conn);
/* The last work requests of a QP that is to be drained: receive before ERR, send after. */
void post_recv_marker(struct conn *conn);
void post_send_marker(struct conn *conn);
/* Whether a TP_EV_ROOM has become due (then it is noted in room_due). */
bool post_check_room(struct conn *conn);

/* ---- complete.c ------------------------------------------------------------------------------ */

/* The errno that stands for a work completion's status. */
int wc_errno(enum ibv_wc_status status);
/* Whether the peer of an accepted connection has spoken, also if nobody has polled since: looks
 * ahead without taking anything from the polling thread. Any thread, no lock held. */
bool complete_peek_hi(struct conn *conn);
/* Likewise, whether a READ of siw_knock's was answered. */
bool complete_peek_knock(struct conn *conn);
int verbs_poll(struct tp_subcq *base, struct tp_event *ev, int max);

/* ---- teardown.c ------------------------------------------------------------------------------ */

enum fail_lock { UNLOCKED, LOCKED /* the caller holds conn->lock */ };
/* Notes why the connection ends (the first cause stays), stops posting, and asks the polling thread
 * to end it. Any thread. -ECONNRESET means that the peer went away. */
void conn_fail(struct conn *conn, enum fail_lock held, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void verbs_close(struct tp_conn *base);
/* The rest is under sub->lock, on the polling thread. */
void teardown_asked(struct sub *sub);
void teardown_deadlines(struct sub *sub, uint64_t now);
void teardown_opened(struct conn *conn);
void teardown_bye_seen(struct conn *conn);
void teardown_bye_sent(struct conn *conn);
void teardown_begin(struct conn *conn);
/* rdma_cm has come to know the connection as established. */
void teardown_established(struct conn *conn);
/* A completion of a draining connection: ends the drain when nothing more can come. */
void teardown_progress(struct conn *conn);
/* Puts a connection on the list of those with something to hand out. */
void ready_add(struct conn *conn);

/* ---- mem.c ----------------------------------------------------------------------------------- */

/* Memory for headers and buffers: shared, so that a fork never copies pages that the device uses.*/
void *mem_map(size_t size);
void mem_unmap(void *mem, size_t size);
/* ibv_reg_mr with a text that helps. */
int mem_register(struct ibv_pd *pd, void *mem, size_t size, int access, const char *what,
		 struct ibv_mr **out);
/* A text for a failed call, with what to do when locked memory is short. Returns -err. */
int mem_error(int err, const char *what, size_t size);
int verbs_expose(struct tp_conn *base, struct tp_arena *arena, unsigned access,
		 struct tp_region **out);
void verbs_region_destroy(struct tp_region *base);
int verbs_attach(struct tp_conn *base, const struct tp_ref *ref, unsigned access,
		 struct tp_remote **out);
void verbs_remote_destroy(struct tp_remote *remote);

/* ---- lend.c ---------------------------------------------------------------------------------- */

int verbs_register(struct tp_conn *base, const void *at, size_t len, unsigned lend,
		   struct tp_region **out);
void verbs_hold(struct tp_region *base);
void verbs_unregister(struct tp_region *base);
/* Ends all registrations of memory that was lent; the queue pair is gone. */
void lend_free(struct conn *conn);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The layer's own objects, beside the transport's, and the functions that its files give each
 * other.
 *
 * Locks are taken in this order: the table's, a queue's, a connection's. None is held while a
 * script sleeps.
 */
#ifndef GS_TESTS_FAULTS_LAYER_H
#define GS_TESTS_FAULTS_LAYER_H

#include <pthread.h>
#include <stdatomic.h>

#include "rules.h"
#include "transport/transport.h"

int __real_tp_listen(const char *uri, const struct tp_options *opt, struct tp_listener **out);
int __real_tp_accept(struct tp_listener *l, struct tp_cq *cq, void *user, struct tp_conn **out);
int __real_tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
		      struct tp_conn **out);
int __real_tp_expose(struct tp_conn *conn, struct tp_arena *arena, unsigned access,
		     struct tp_region **out);
int __real_tp_attach(struct tp_conn *conn, const struct tp_ref *ref, unsigned access,
		     uint64_t max_len, struct tp_remote **out);
int __real_tp_post(struct tp_conn *conn, const struct tp_op *ops, int n);
int __real_tp_send(struct tp_conn *conn, const void *msg, size_t len);
int __real_tp_cq_poll(struct tp_cq *cq, struct tp_event *ev, int max);
int __real_tp_cq_wait(struct tp_cq *cq, int timeout_ms);
void __real_tp_cq_destroy(struct tp_cq *cq);
void __real_tp_conn_close(struct tp_conn *conn);
void __real_tp_conn_destroy(struct tp_conn *conn);
struct tp_limits __real_tp_conn_limits(const struct tp_conn *conn);

/* In order within a lane; TP_EV_CLOSED is behind all. */
enum lane {
	LANE_RECEIVES = 1 << 0,
	LANE_SENDS = 1 << 1,
	LANE_ROOM = 1 << 2,
	LANE_ALONE = 1 << 3, /* out of its order, as only a broken transport has it */
	LANE_CLOSED = 1 << 4,
};

/* An event that the transport gave and the program has not got yet. */
struct held {
	struct tp_event ev;
	void *msg; /* a copy */
	struct fconn *conn;
	enum lane lane;
	uint64_t due;   /* clock_ns; given then, or ... */
	uint64_t after; /* ... when so many events have been given by the queue */
	struct held *next;
};

struct fqueue {
	struct tp_cq *cq;
	pthread_mutex_t lock;
	struct held *first, **end; /* in the order in which they came */
	struct held *given;        /* messages that the program may still look at */
	unsigned n;
	uint64_t handed;
	uint64_t walk;
	unsigned closing; /* connections whose close waits */
	struct fqueue *next;
};

/* Stands in for immediate data. */
#define STAND_IN_MARK "\1\2stands for imm"
struct stand_in {
	uint8_t mark[16];
	uint32_t imm, len;
};

struct fconn {
	struct tp_conn *conn;
	struct fqueue *queue;
	struct fconn *next;
	bool noimm;
	atomic_bool unclaimed; /* the call that makes it has not returned: its events wait */
	atomic_bool orphan;    /* the program was told that its accept failed */

	/* The queue's lock. */
	bool closed;          /* TP_EV_CLOSED is in the queue, or was given */
	uint64_t still_until; /* reorder conns */
	uint64_t walk;
	unsigned blocked; /* lanes, in this walk */

	pthread_mutex_t lock;
	atomic_bool frozen; /* also read under the queue's */
	bool closed_here;
	bool closing;      /* close is put off until the stand-in has left ... */
	uint64_t close_by; /* ... or until then */
	bool waiting;      /* a stand-in that found no room */
	struct stand_in stand_in;
	bool wants_room;
	int fails_next;
	uint32_t swallowed; /* taken and gone nowhere, since it froze */
	uint64_t *cookies;  /* of ops whose completion does not come before the end */
	uint32_t n_cookies, room_cookies;
};

/* table.c: the layer's objects by the transport's; made when first seen. */
struct fconn *fconn_of(const struct tp_conn *conn, struct tp_cq *cq);
/* Calls `visit` for each, under the table's lock: none can go meanwhile. */
void fconn_each(void (*visit)(struct fconn *c));
void fconn_forget(struct fconn *c);
struct fqueue *fqueue_of(struct tp_cq *cq);
void fqueue_forget(struct tp_cq *cq);

/* post.c. Under the connection's lock: true when nothing waits any more. */
bool send_waiting(struct fconn *c);
/* Notes an op whose completion is kept back. Under the connection's lock. */
void keep_cookie(struct fconn *c, uint64_t cookie);

/* queue.c */
/* A TP_EV_ROOM follows; false when the connection has closed. No lock held. */
bool give_room(struct fconn *c);
/* Under the queue's and the connection's lock: a frozen connection's end, once it has closed. */
void thaw(struct fconn *c);
void queue_drop(struct fconn *c);
/* The program has it now: what waited may leave. */
void claim(struct fconn *c);
/* The program never gets it: nothing of it leaves, and it goes when it has closed. */
void disown(struct fconn *c);

/* calls.c */
void close_now(struct fconn *c);

#endif

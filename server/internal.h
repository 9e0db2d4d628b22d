/* SPDX-License-Identifier: Apache-2.0
 *
 * The server object: what its threads share. Who owns what stands at each member.
 */
#ifndef GS_SERVER_INTERNAL_H
#define GS_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/inbox.h"
#include "server/pace.h"
#include "server/round.h"
#include "server/sched.h"
#include "server/server.h"
#include "server/session.h"
#include "server/table.h"
#include "transport/transport.h"

struct imm;

struct poller {
	struct srv *srv;
	struct tp_cq *cq;
	pthread_t thread;
	bool started;
	_Atomic uint64_t gradients; /* this thread writes */
};

struct srv {
	struct srv_options opt;
	char *uri[SRV_MAX_LISTENERS]; /* the options' strings, copied */
	struct tp_listener *listener[SRV_MAX_LISTENERS];

	struct poller *poller;
	pthread_t *worker;
	uint32_t workers_started;
	struct sched sched;
	struct inbox inbox;
	struct round round; /* sync */
	struct pace pace;   /* ssp */
	_Atomic bool stop;        /* srv_stop was called */
	_Atomic bool pollers_end; /* pollers return */

	/* control; the table is set before any session gets as far as ATTACHING */
	struct table *_Atomic table;
	struct session *sessions;
	struct session *spare;  /* for the next tp_accept */
	struct session **rank;  /* who holds each rank */
	struct session *initialiser;
	bool weights_ready, ending;
	uint32_t n_sessions, next_poller;
	uint64_t ever_active;
	uint64_t accept_again; /* no connection is taken before */

	_Atomic uint64_t joined, violations, session_memory;
	_Atomic uint32_t connected;
};

/* The table, once it is there. */
static inline struct table *srv_table(const struct srv *srv)
{
	return atomic_load_explicit(&srv->table, memory_order_acquire);
}

/* One of its listeners is: memory is registered, and answers to pulls need bounce buffers. */
bool srv_over_rdma(const struct srv *srv);

void srv_post(struct srv *srv, struct actor *actor, struct item *item);

/* threads */
void *poller_main(void *poller);
void *worker_main(void *srv);

/* poller.c, for rows_claim.c; false or NULL: the session was ended, with a reason. The immediate's
 * block exists. */
struct slot *poller_slot(struct session *s, const struct imm *imm);
bool poller_length(struct session *s, const struct imm *imm, uint32_t len, uint64_t bytes);
bool poller_head(struct session *s, struct slot *slot);

/* parameter actors (param.c) */
void param_handle(struct actor *actor, struct item *item);

/* control.c, handshake.c: on the control thread */
void control_note(struct note *note);
void handshake_message(struct session *s, const void *data, uint32_t len);
void handshake_flush(struct session *s);
void handshake_started(struct session *s);
void handshake_left(struct session *s);
void handshake_refused(struct session *s);
void handshake_rate_set(struct session *s);
/* The connection of `s` is over: gives back its rank and its part in what others wait for. */
void handshake_closed(struct session *s);
void handshake_drop_outgoing(struct session *s);

#endif

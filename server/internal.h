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

#include "base/line.h"
#include "server/checkpoint.h"
#include "server/inbox.h"
#include "server/ledger.h"
#include "server/pace.h"
#include "server/place.h"
#include "server/round.h"
#include "server/sched.h"
#include "server/server.h"
#include "server/session.h"
#include "server/table.h"
#include "server/vigil.h"
#include "transport/transport.h"

struct auth_key;
struct imm;

struct poller {
	struct srv *srv;
	struct tp_cq *cq;
	pthread_t thread;
	bool started;
	_Atomic uint64_t gradients; /* this thread writes */
} LINE_BEGINS;

struct srv {
	struct srv_options opt;
	char *uri[SRV_MAX_LISTENERS]; /* the options' strings, copied */
	char *checkpoint_dir;
	struct tp_listener *listener[SRV_MAX_LISTENERS];
	struct auth_key *key; /* NULL: none */

	struct place place;
	struct poller *poller;
	pthread_t *worker;
	uint32_t workers_started;
	struct sched sched;
	struct inbox inbox;
	struct round round; /* sync */
	struct pace pace;   /* ssp */
	struct saver saver;
	struct restore *restore; /* control; what the weights come from; NULL: nothing, or taken */
	uint64_t restored_step;
	bool restored_own; /* from the directory that this server writes to, and from nowhere else */
	struct ledger ledger;   /* its words are there before the table is */
	_Atomic uint32_t stops; /* srv_stop was called so often */
	_Atomic bool pollers_end; /* pollers return */

	/* control; the table is set before any session gets as far as ATTACHING */
	struct table *_Atomic table;
	struct session *sessions;
	struct session *spare;  /* for the next tp_accept */
	struct session **rank;  /* who holds each rank: from its welcome until what it had was kept */
	struct session *initialiser;
	bool weights_ready, ending;
	bool begun;             /* somebody trains, or has */
	uint32_t n_sessions, next_poller;
	uint32_t hellos_waiting;
	uint64_t ever_active;   /* trainers; who takes the rank of a lost one is the same */
	uint64_t id;            /* of this run of the server; never 0 */
	struct vigil vigil;     /* sync */
	uint64_t start_waits;   /* since when somebody waits for the first step; 0: nobody does */
	bool looking, look_straggle, look_tell; /* the round was asked, and what for */
	uint64_t look_first;    /* the barrier that made it necessary */
	int failed;             /* srv_run ends with it, and the text */
	char failure[512];
	uint64_t accept_again; /* no connection is taken before */
	uint64_t next_tick;

	_Atomic uint64_t joined, violations, session_memory;
	_Atomic uint64_t lost, rejoined, given_up, stragglers, silent;
	_Atomic uint64_t refused_key, half_open, flooded;
	_Atomic uint32_t connected;

	struct note looked_note; /* last: notes may have data behind them */
};

/* The table, once it is there. */
static inline struct table *srv_table(const struct srv *srv)
{
	return atomic_load_explicit(&srv->table, memory_order_acquire);
}

static inline bool srv_is_sync(const struct srv *srv)
{
	return srv->opt.mode == SRV_SYNC;
}

/* The last step that is over (ssp: the slowest trainer's; async: 0). Any thread. */
uint64_t srv_steps(const struct srv *srv);

/* One of its listeners is: memory is registered, and answers to pulls need bounce buffers. */
bool srv_over_rdma(const struct srv *srv);

void srv_post(struct srv *srv, struct actor *actor, struct item *item);

/* threads */
void *poller_main(void *poller);
void *worker_main(void *srv);

/* poller.c, for packs.c and rows_claim.c; false or NULL: the session was ended, with a reason. The
 * immediate's block exists. */
struct slot *poller_slot(struct session *s, const struct imm *imm);
bool poller_length(struct session *s, const struct imm *imm, uint32_t len, uint64_t bytes);
bool poller_head(struct session *s, struct slot *slot);
bool poller_factors(struct session *s, const struct layout_push_head *head, uint32_t block,
		    float *weight, float *scale);
bool poller_is_first(struct session *s, const struct slot *slot);
/* n gradients are taken: all of them were checked. */
void poller_count_taken(struct session *s, uint32_t n);
/* Each of them; with a reference of the session's. */
void poller_mark_taken(struct session *s, struct slot *slot, bool packed);
void poller_take_gradient(struct session *s, struct slot *slot, bool packed, bool notify);

/* parameter actors (param.c) */
void param_handle(struct actor *actor, struct item *item);
void param_rest(struct actor *actor);

/* control.c: on the control thread; dialog.h has the rest of what runs there */
void control_note(struct note *note);
/* srv_run is to end with rc and the calling thread's error text; the first one holds. */
void control_fail(struct srv *srv, int rc);

#endif

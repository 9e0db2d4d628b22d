/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer's state, and what its files offer each other.
 *
 *  connect.c   gs_connect, gs_close          talk.c        control messages: what comes when
 *  declare.c   gs_declare                    progress.c    events, waiting, posting; the lock
 *  start.c     gs_start                      grant.c       is the server's grant sound (pure)
 *  push.c      gradients                     sum.c         accumulation
 *  lend.c      ... from where they are, and weights to where they are wanted
 *  push_many.c several parameters' at once
 *  step.c      barriers                      settings.c    rates, scales, counts
 *  step_pull.c and a pull behind one         step_wire.c   over a network
 *  pull.c      weights: which way            pull_wire.c   reading them over a network
 *  pull_runs.c relaxed, a network's          pull_queue.c  asking for them through the queue
 *  pull_reads.c  its READs
 *  rows.c      rows of tables, out           rows_wire.c   reading them over a network
 *  rows_pull.c and in: which way
 *  leave.c     gs_leave                      kept.c        what the server has from before
 *  access.c    the key                       beat.c        is the server's machine alive
 *  checkpoint.c  asking for one              link.c        the end of a connection
 *  reconnect.c gs_reconnect: again and       replay.c      again what had not arrived
 *              again, until it is back
 *
 * Invariants:
 *  1. `lock` guards every field but those that are constant once gs_start returned. Nothing is
 *     copied, waited for or slept on with it held; posting (which copies nothing that is longer
 *     than an inline payload) is.
 *  2. The CQ is polled with the lock held, by anyone, and never while `leader` is set: then one
 *     thread is inside tp_cq_wait without the lock. Others who wait do so on `changed`.
 *  3. `err` is set once and is final: no call but gs_close and gs_reconnect does anything after it.
 *  4. What is polled from the server is checked when it is polled; what it writes into the mailbox,
 *     when it is read.
 *  5. While a call waits, what it waits for shows itself by an event, or another thread's
 *     trainer_changed(). Where no wait sleeps (GS_SPIN_FOREVER) credits come without an event: the
 *     leader looks at the word that it lacks, and the others wake now and then.
 */
#ifndef GS_TRAINER_TRAINER_H
#define GS_TRAINER_TRAINER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gradslot/gradslot.h"
#include "base/spin.h"
#include "proto/imm.h"
#include "proto/layout.h"
#include "proto/wire.h"
#include "trainer/access.h"
#include "trainer/credits.h"
#include "trainer/grant.h"
#include "trainer/words.h"
#include "transport/transport.h"

/* How many ops go into one tp_post. */
enum { CHAIN_MAX = 32 };

enum phase {
	PHASE_OPEN,     /* connected: gs_declare and gs_start may come */
	PHASE_STARTING, /* inside gs_start */
	PHASE_WORK,     /* started */
	PHASE_LEFT,     /* gs_leave was called */
};

/* Pieces first .. end-1 make a push of rows. */
struct span {
	uint64_t first, end;
};

/* Where a push lies that leaves from the program's own memory; `at` NULL: in its slot. */
struct lent {
	const uint8_t *at;
	struct tp_region *region;
};

/* What a parameter sends on one connection. Its pushes are numbered from 0 there: first the initial
 * weights, then the rank's push number `base` and those after it. */
struct out {
	/* The slots and their heads where they are mapped, else registered memory like them. */
	uint8_t *ring, *heads;
	uint64_t stride, heads_stride;   /* bytes */
	uint64_t pushes;                 /* begun; of tables, pieces */
	uint64_t inits;                  /* of them, initial weights */
	uint64_t end;                    /* those before it belong to pushes that were made */
	uint64_t base;                   /* async, ssp */
	uint64_t told; /* the program heard that those before it are applied */
	/* Seldom used, and behind what always is. */
	struct lent lent[IMM_MAX_SLOTS]; /* of the push in each slot */
	struct span span[IMM_MAX_SLOTS]; /* tables: of the piece in each slot */
};

struct gs_param {
	/* What every push and pull needs comes first, in few cache lines: of many small parameters
	 * there is nothing else to wait for. */
	gs_trainer *t;
	uint32_t index;
	uint32_t pack;                   /* of t->link.pack, + 1; 0: none */
	uint32_t grad_size, weight_size; /* bytes of an element */
	uint32_t accumulate;
	bool table;
	bool by_queue; /* every pull is ordered: the server keeps what it answers */
	bool pulling;  /* a pull uses the landing area or the scratch words: one at a time */

	/* granted; constant after gs_start */
	uint64_t elems, block_elems;
	uint32_t first_block, blocks;
	uint64_t weights_off;

	/* gs_step_pull (step_pull.h): the step before which link.base was read; blocks that were read,
	 * over a network asked for; of them, those that have come, and are where they are wanted. */
	uint64_t base_step;
	uint32_t pulled, landed, copied;
	uint64_t listed; /* the last call with a list that it was in: t->lists */

	/* Pushes of the rank, whatever connection and process made them; a push that failed was
	 * begun and not made. Async, ssp. */
	uint64_t push_step; /* sync, ssp: the step of the last one that was begun; 0: none */
	uint64_t made_step; /* of the last one that was made */
	uint64_t made, begun;
	/* 1 + the updates in what was pulled last; 0: not known. Pulls of mapped weights, which
	 * take no lock, set it while another thread may push. */
	_Atomic uint64_t seen;
	struct out out, old; /* old: of t->old */

	uint64_t landing_off, slots_off, slots_stride, heads_off, heads_stride, request_off; /* granted */
	uint64_t pull_left; /* reads or answers under way */
	/* Sync: the last step of which the server had all of it, and any of it, when this
	 * connection began. */
	uint64_t kept_step, touched_step;
	const void *not_lent; /* what could not be lent last: not tried at every push */
	/* lend.c: what was pulled into last, how often again, and how often that has to be before it is
	 * registered. */
	const void *pulled_to;
	uint32_t pulled_again, pull_patience;
	/* A pull's over a network: where its READs go, the landing area or where the weights are wanted,
	 * and what that is registered as. */
	uint8_t *read_to;
	struct tp_region *read_region;
	const float *init_data; /* of GS_INIT_DATA; NULL once gs_start returned */

	/* Tables: where requests are written, like the slots; over a network, two version words for
	 * each row that a pull has under way. */
	struct layout_request_head *request;
	uint64_t *row_versions;
	uint32_t rows_asked; /* of the request under way */
	bool rows_refused;   /* what its answer said */

	/* Accumulation: the sum so far, in float, and where a push that is to be added is made. */
	bool accumulate_sum;
	uint32_t accumulated; /* pushes in it */
	float sum_scale;      /* how many times too large it is */
	float *sum;
	void *addend;

	struct wire_param wire;
};

/* Parameters whose slots lie together (layout.h). */
struct pack {
	uint32_t first, n; /* t->param's */
	uint64_t bytes;    /* of a slot of all of them */
	bool sums;         /* pushes of one of them are accumulated */
	/* What is known of all of them, so that it need not be looked up for each (push_many.c). */
	uint64_t as_one, apart; /* sync: the last step in which they were pushed as one; in which any was
				 * pushed by itself */
	uint64_t listed, listed_apart; /* likewise the last call's list: t->lists */
	uint32_t alike; /* bit i: their heads of slot i say the same */
};

/* A checkpoint that was asked for. */
enum save { SAVE_NONE, SAVE_ASKED, SAVE_TOLD };

/* What belongs to one connection, and ends with it. */
struct link {
	struct tp_conn *conn;
	bool closed; /* TP_EV_CLOSED came */
	uint32_t rails; /* of the connection: trainer_rail */
	struct grant grant;
	uint64_t mailbox_len;

	uint32_t slots, blocks, packs;
	struct pack *pack;
	gs_param **owner;    /* of each block */
	uint8_t *pull_asked; /* each block: a PULLED is due */
	uint64_t *kept;      /* each block's kept word */
	uint64_t *base;      /* each block's version word between two steps: step_pull.c */
	/* Each block: how many of the connection's first pushes the server has already; in sync
	 * mode, whether it has that of the connection's first step. */
	uint8_t *skip;
	struct tp_remote *weights, *slot_mem;
	const uint8_t *weights_map; /* NULL over a network */

	/* The mailbox is also the target of READs: a parameter's part of the landing area is used
	 * by one pull at a time, whichever way, so a second copy of the weights would buy
	 * nothing. */
	struct tp_arena *mailbox;
	struct tp_region *mailbox_region;
	struct tp_region *landing_region; /* over a network: the same memory, for READs */
	uint8_t *mail; /* its base */

	/* Only over a network: two version words for each block, then the gradient rings. */
	struct tp_arena *local;
	struct tp_region *local_region;
	bool no_lending; /* the program's memory can't be used: it is copied */
	bool no_targets; /* nor for READs */
};

struct pull;

struct gs_trainer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool leader;        /* a thread is in tp_cq_wait */
	uint32_t followers; /* threads that wait for `changed` */
	const uint64_t *lacks; /* the word in the mailbox that a trainer_pred found wanting */
	uint64_t lacks_was;

	unsigned forks; /* trainer_forks() when it was connected */
	int err;        /* 0, or the negative errno that ended it all */
	char err_text[512];

	/* options */
	char *uri;
	int32_t spin_us; /* the CQ's */
	struct yields yields; /* of step pulls, which poll by themselves */
	uint32_t timeout_ms, start_timeout_ms, keepalive_ms, reconnect_ms;
	uint64_t reg_cache_bytes;
	bool lends; /* a gradient was once sent from the program's own memory */
	struct wire_hello hello; /* what it says of itself */

	struct access access;

	struct tp_cq *cq;
	struct link link;
	/* While it reconnects: the connection from whose slots pushes may have to be sent again. */
	struct link old;
	bool load_store;
	char transport[192];
	uint32_t attempts; /* to connect, since it last held for a while */
	uint64_t up_since; /* clock_ns() when it last came back */
	uint64_t rooms;    /* TP_EV_ROOMs so far */
	/* How long a post may wait for room; 0: no limit. Set while the server owes an answer. */
	uint32_t patience_ms;

	/* The beat (beat.c): when the next one is due; since when one is to be heard of, and
	 * whether it was posted; 0: none. Something was heard since that was looked at. */
	uint64_t beat_due, beat_since;
	bool beat_posted, heard;

	enum phase phase;
	bool worked;           /* it was PHASE_WORK once */
	bool coming_back;      /* a thread is in gs_reconnect: the others keep out */
	bool rewinds;          /* while it reconnects: the server has not kept its place */
	uint64_t server;       /* the run of the server that it worked with */
	enum wire_kind expect; /* the next control message; 0: none */
	struct wire_welcome welcome;
	bool init_asked;
	uint64_t first_step; /* sync, ssp: the one that the connection starts with */

	gs_param **param, **by_name; /* by_name: declare.c's */
	uint32_t n_params, cap_params;
	uint64_t lists;      /* calls with a list of parameters */
	uint32_t sums;       /* parameters whose pushes are accumulated */

	float samples, grad_scale; /* of the pushes from now on */
	bool rate_asked;           /* a set_rate is unanswered */
	int refused;               /* what a notice said, and nobody was told yet: errno, text */
	uint64_t refused_noticed;  /* refused pushes that notices told of */
	char refused_text[512];

	uint64_t step;     /* sync, ssp: the step that is being made */
	bool posted;       /* its barrier was */
	bool barrier;      /* and is on its way */
	bool goes_on;      /* that was on a connection before: gs_step_end waits for it */
	bool step_pulls;   /* a thread is in gs_step_pull of mapped weights: one at a time */
	uint64_t released; /* released while there was no connection */

	enum save save;
	uint64_t save_step; /* sync, ssp: the step that was being made when it was asked for */
	struct wire_saved saved;
};

/* ---- progress.c ------------------------------------------------------------------------------ */

/* Takes the lock and handles what has come. Lets go of the lock again when it fails: because of
 * t->err; or, the second, because training has not begun or is over. */
int trainer_enter(gs_trainer *t);
int trainer_enter_working(gs_trainer *t);
/* The same without a look at what has come, which the next call will do: for what is asked of each of
 * many parameters, one after the other. */
int trainer_enter_briefly(gs_trainer *t);
void trainer_exit(gs_trainer *t);

/* How many forks lie between this process and the one that first connected a trainer. */
unsigned trainer_forks(void);
/* -EINVAL in a child of the process that connected it. */
int trainer_check_process(const gs_trainer *t);

/* All below: with the lock held. */

/* Ends it: rc with the calling thread's error text stays for good, the connection is closed. The
 * first one counts. Returns rc. */
int trainer_fail(gs_trainer *t, int rc);
/* The same when the server broke the protocol: it is told. */
int trainer_breach(gs_trainer *t);
/* The final error, as the calling thread's. */
int trainer_error(gs_trainer *t);

typedef bool (*trainer_pred)(gs_trainer *t, void *arg);
/* Waits until `pred` holds; lets go of the lock meanwhile. -ETIMEDOUT after timeout_ms (0: no
 * limit), with `what` in the text; or the final error. The only place where a trainer waits. */
int trainer_wait(gs_trainer *t, trainer_pred pred, void *arg, uint32_t timeout_ms,
		 const char *what);
/* Handles what is there now. */
void trainer_poll(gs_trainer *t);
/* Something that others may wait for has changed. */
void trainer_changed(gs_trainer *t);
/* After t->err was set: until the connection is over, and nothing of it is under way. */
void trainer_wait_closed(gs_trainer *t);

/* An operation on the connection failed for good: trainer_fail. A connection that is found dead is
 * polled first: what the server said before it went tells more. */
int trainer_lost(gs_trainer *t, int rc);

/* Rails. A block's gradients, initial weights, ordered pulls and READs all take the block's rail, so
 * that between them the order is that of the calls; a table's take its first block's, and all of a
 * pack's the same one. What goes ahead of a push (its head) goes ahead of it on every rail that carries
 * some of it; a barrier is posted on each. Messages, and all that the server sends, take rail 0. */
static inline uint8_t trainer_rail(const gs_trainer *t, uint32_t block)
{
	uint32_t pack;

	if (t->link.rails == 1)
		return 0;
	pack = t->link.owner[block]->pack;
	return (uint8_t)((pack ? pack : block) % t->link.rails);
}

/* Posts all, waits for room where there is none. */
int trainer_post(gs_trainer *t, const struct tp_op *ops, int n);
/* A post or a send gave rc < 0, with `rooms` = t->rooms before it. Waits for room on -EAGAIN: 0
 * says try again. (A TP_EV_ROOM that was polled between the two is not lost: it is handled with the
 * lock held.) All else is trainer_lost. */
int trainer_blocked(gs_trainer *t, int rc, uint64_t rooms);

/* Ops on their way to trainer_post, CHAIN_MAX at a time. */
struct chain {
	gs_trainer *t;
	int n;
	struct tp_op op[CHAIN_MAX];
};
/* Not by an initializer, which would clear all of it. */
static inline void chain_begin(struct chain *c, gs_trainer *t)
{
	c->t = t;
	c->n = 0;
}
int chain_add(struct chain *c, const struct tp_op *op);
int chain_flush(struct chain *c);

/* ---- talk.c ---------------------------------------------------------------------------------- */

int talk_send(gs_trainer *t, const struct wire_msg *msg);
/* Waits until what is expected has come. */
int talk_wait(gs_trainer *t, uint32_t timeout_ms);
/* A message came. */
void talk_take(gs_trainer *t, const void *bytes, size_t len);

/* ---- connect.c, link.c ----------------------------------------------------------------------- */

/* Ways to be connected: what is done once (with no lock held), which failures are worth another
 * try, and for how long. */
struct tries {
	int (*once)(gs_trainer *t, uint64_t deadline);
	bool (*again)(int rc);
	uint32_t within_ms;
	bool late; /* a pause comes before the first, too */
};
/* Tries, with pauses that grow: t->attempts. */
int connect_try(gs_trainer *t, const struct tries *tries);
/* A connection, hello and welcome. What it leaves on failure is t->link's. */
int connect_once(gs_trainer *t, uint64_t deadline);

/* Closes the connection, and waits until it is over. With the lock. */
void link_end(gs_trainer *t);
/* When it is over. */
void link_free(struct link *link);

/* ---- beat.c ---------------------------------------------------------------------------------- */

/* With the lock, in a wait, when there is nothing to poll: sees to it that a silent server is
 * noticed, which ends the trainer. When to come back, by clock_ns(). */
uint64_t beat_look(gs_trainer *t);
/* It was heard. */
void beat_done(gs_trainer *t);

/* ---- start.c --------------------------------------------------------------------------------- */

/* From declarations to start. */
int start_talk(gs_trainer *t);
/* And from there to work, with the run of the server that welcomed it. */
void start_working(gs_trainer *t);

/* ---- replay.c -------------------------------------------------------------------------------- */

/* The server goes on with this trainer: sends what it does not have, from t->old's slots. */
int replay(gs_trainer *t);

/* ---- kept.c ---------------------------------------------------------------------------------- */

/* Copies the kept words, which came ahead of ready. -EPROTO. */
int kept_read(gs_trainer *t);
/* After start: what they mean for the connection's first pushes. -EPROTO. */
int kept_place(gs_trainer *t);
/* The trainer begins where they say: it has pushed nothing else. */
void kept_adopt(gs_trainer *t);

/* ---- push.c ---------------------------------------------------------------------------------- */

/* Sends the initial weights. Without the lock; the slots are free. */
int push_initial(gs_param *p);
/* All blocks of p have been credited with `wanted` pushes. An implausible credit is a breach. */
bool push_credited(gs_param *p, uint64_t wanted);
/* All parameters have been, with all that was pushed on this connection. A trainer_pred. */
bool push_all_credited(gs_trainer *t, void *arg);
/* Sends what was accumulated of p so far. With the lock, which it lets go of meanwhile. */
int push_flush(gs_param *p);
/* trainer_enter_working, with a parameter that must be this trainer's: -EINVAL. */
int push_enter(gs_trainer *t, const gs_param *p);
/* It may be pushed now. -EALREADY. */
int push_allowed(const gs_trainer *t, const gs_param *p);
/* Waits until all blocks of p have been credited with so many pushes. */
int push_wait_for(gs_param *p, uint64_t pushes);
/* Where what follows goes by another rail than some blocks of p, and must not overtake them: waits
 * until all that was pushed to p is in the weights. Nothing where there is one rail, and in sync
 * mode. */
int push_await_rails(gs_param *p);
/* The server has block i of the push from a connection before; of a table, in block 0, all. */
bool push_is_in(const gs_param *p, uint32_t i, uint64_t push);
/* A dense parameter that may be pushed now. -EINVAL, -EALREADY. */
int push_may(const gs_trainer *t, const gs_param *p);
/* Pushes one that may be. With the lock, which it lets go of meanwhile. */
int push_alone(gs_param *p, const void *grad);
/* What goes ahead of a slot. `rows` and `flags`: of tables. */
struct layout_push_head push_head(const gs_param *p, uint32_t rows, uint32_t flags);
/* Puts it down for the slot, if it is anything that the server was not told for it before. */
bool push_head_changes(gs_param *p, uint32_t slot, const struct layout_push_head *head);
int push_head_post(struct chain *chain, gs_param *p, uint32_t slot,
		   const struct layout_push_head *head, uint32_t rails);
/* The server answers when such a push is applied: with an event, not only a credit. */
bool push_wants_answer(const gs_param *p, enum imm_kind kind);
/* Posts what lies in the slot of a dense push, but the blocks that are in. */
int push_again(gs_param *p, uint64_t push, const struct layout_push_head *head);

/* ---- lend.c ---------------------------------------------------------------------------------- */

/* Gradients of so many bytes and more are worth it. */
enum { LEND_MIN = 4096 };
/* Weights of so many: smaller ones are read some at once, and copied. */
enum { LEND_TARGET_MIN = 16 << 10 };

/* Has push number `push`, so many rails of which carry some, leave from `grad`, if that can be. Without the
 * lock; the push is the caller's and nothing of it was sent. */
void lend_push(gs_param *p, uint64_t push, const void *grad, unsigned rails);
/* On each rail the completion of a push's last WRITE has this cookie, which no parameter has. */
uint64_t lend_cookie(const struct lent *lent);
/* It is one of those: what was lent is done with. */
bool lend_done(uint64_t cookie);
/* The program hears that the pushes before `pushes` are applied: what it lent for them is its own. */
void lend_told(gs_param *p, uint64_t pushes);
/* The step is over: of all parameters. */
void lend_step_told(gs_trainer *t);

/* Sets where the READs of each of its parameters go. With the lock, which it lets go of meanwhile. */
void lend_targets(gs_trainer *t, struct pull *pull);
/* The pull is over. If it failed this waits until no READ writes there any more. With the lock, as above. */
void lend_targets_back(gs_trainer *t, const struct pull *pull);

/* ---- rows*.c --------------------------------------------------------------------------------- */

/* What a table needs of the grant; and, over a network, beside what mirrors its slots. */
struct grant_need rows_need(const gs_param *p);
uint64_t rows_local_bytes(const gs_param *p);
void rows_place_local(gs_param *p, uint8_t *at);
/* Posts the piece that lies in its slot. */
int rows_post(gs_param *p, uint64_t push, const struct layout_push_head *head);
/* The answer to a pull of rows came, `len` bytes in its last piece. -EPROTO. */
int rows_answered(gs_param *p, bool refused, uint32_t len);
/* -ERANGE: the table does not have one of them. */
int rows_check_ids(const gs_param *p, const int64_t *ids, size_t n);

/* Up to pull_rows rows, with p taken and the lock let go of: asked for; read. */
int rows_gather(gs_param *p, const int64_t *ids, uint32_t n, void *dst);
/* READs that n rows take. */
uint64_t rows_count_reads(gs_param *p, const int64_t *ids, size_t n, bool still);
int rows_read_wire(gs_param *p, const int64_t *ids, uint32_t n, bool still, void *dst);

/* ---- settings.c ------------------------------------------------------------------------------ */

/* What the server refused and nobody was told of yet, once; else 0. With the lock. */
int trainer_refused(gs_trainer *t);

/* ---- step.c ---------------------------------------------------------------------------------- */

/* The server released `step` (or a later one). A release of what was not passed is a breach. */
bool step_released(gs_trainer *t, uint64_t step);
int step_wait_released(gs_trainer *t, uint64_t step);
/* gs_step_post. */
int step_post(gs_trainer *t);
/* `step` was waited for: the next one is being made. */
void step_advance(gs_trainer *t, uint64_t step);
/* Posts the barrier of t->step. */
int step_post_barrier(gs_trainer *t);

/* ---- pull_*.c -------------------------------------------------------------------------------- */

struct pull {
	gs_param *const *param;
	void *const *dst;
	uint32_t n;
	bool still; /* nobody writes these weights meanwhile */
	bool by_queue; /* one of them is always pulled through its queue: then all are, in this call */
	bool large;    /* pull_size */
	bool straight; /* READs of some go to where they are wanted: lend_targets */
};

/* Of so many bytes a pull's copies go past the caches, which they leave no room in (perf/METHOD.md). */
#define PULL_LARGE (UINT64_C(8) << 20)

/* All are dense parameters of this trainer's, with a destination. Takes the lock, and lets go of it. */
int pull_check(gs_trainer *t, struct pull *pull);
/* Whether so much is pulled that copies go past the caches. */
void pull_size(struct pull *pull);
/* They are pulled as they stand: -EINVAL for parameter i of a list, else 0. */
int pull_check_one(const gs_trainer *t, const gs_param *p, const void *dst, uint32_t i);
/* Puts p into the list that t->lists numbers: -EINVAL, it is in there. With the lock. */
int pull_list(gs_param *p);
/* They may be looked at in place: -EINVAL, -EOPNOTSUPP. */
int view_check_one(const gs_trainer *t, const gs_param *p, uint32_t i);
/* Weights that nobody writes meanwhile, to where they are wanted. */
void pull_copy(const struct pull *pull, void *to, const void *from, uint64_t len);

/* Takes the lock, and the parameters' landing areas for this call alone. -EINVAL if one is there
 * twice. */
int pull_begin(gs_trainer *t, const struct pull *pull);
/* Gives both back. */
void pull_end(gs_trainer *t, const struct pull *pull);
/* The same, and copies the landing areas to where they are wanted if rc is 0; returns rc. */
int pull_finish(gs_trainer *t, const struct pull *pull, int rc);
/* Nobody writes these weights until this trainer pushes or posts its barrier (sync mode). */
bool pull_stands_still(const gs_trainer *t, const struct pull *pull);
/* Every read and answer of it has come. */
int pull_wait(gs_trainer *t, const struct pull *pull);

/* Without the lock, like all gs_ functions' bodies. */
int pull_runs(gs_trainer *t, struct pull *pull); /* relaxed, over a network */
int pull_wire_consistent(gs_trainer *t, struct pull *pull);
int pull_wire_version(gs_param *p, uint32_t block, uint64_t *word);
int pull_queue(gs_trainer *t, const struct pull *pull);

/* With the lock, and p taken: asks for blocks first .. end-1; pull_wait follows. */
int pull_queue_ask(gs_param *p, uint32_t first, uint32_t end);

/* How often a consistent read is tried before the queue is asked. */
enum { PULL_TRIES = 8 };

/* ---- pull_reads.c ---------------------------------------------------------------------------- */

/* Where version words are read to. */
enum pull_scratch { PULL_BEFORE, PULL_AFTER };

/* With the lock, and p taken. All count as p's. A READ of [at, at + len) of p's weights, and beyond them of
 * those that lie behind. */
int pull_read_bytes(struct chain *chain, gs_param *p, uint64_t at, uint64_t len, uint8_t rail,
		    unsigned flags);
/* READs of its blocks first .. end-1 by their rails, each of `piece` bytes at most. */
int pull_read_blocks(struct chain *chain, gs_param *p, uint32_t first, uint32_t end, uint64_t piece);
/* Of the version words of any blocks first .. end-1, by the first's rail. */
int pull_read_words(struct chain *chain, gs_param *p, uint32_t first, uint32_t end,
		    enum pull_scratch which, unsigned flags);
/* Where words from before land: of p's first block. */
const uint64_t *pull_words(const gs_param *p);
/* They have come: that is how old what is pulled is. */
void pull_note_seen(const struct pull *pull);
/* Bytes of parameter k have come: copies them, if they are not where they are wanted. */
void pull_take(const struct pull *pull, uint32_t k, uint64_t at, uint64_t len);

static inline uint64_t *pull_scratch(const gs_trainer *t, uint32_t block, enum pull_scratch which)
{
	return (uint64_t *)tp_arena_base(t->link.local) + (uint64_t)which * t->link.blocks + block;
}

static inline uint8_t *param_landing(const gs_param *p)
{
	return p->t->link.mail + p->landing_off;
}

static inline uint64_t param_weight_bytes(const gs_param *p)
{
	return p->weight_size * p->elems;
}

/* Of a pull over a network, after lend_targets. */
static inline bool param_reads_straight(const gs_param *p)
{
	return p->read_to != param_landing(p);
}

static inline bool trainer_sleeps(const gs_trainer *t)
{
	return t->spin_us != TP_SPIN_FOREVER;
}

static inline bool param_is_table(const gs_param *p)
{
	return p->table;
}

/* Each of its push heads lies right before its slot. */
static inline bool param_head_leads(const gs_param *p)
{
	return layout_heads_lead(p->heads_off, p->heads_stride, p->slots_off, p->slots_stride);
}

static inline struct layout_push_head *out_head(const struct out *out, uint32_t slot)
{
	return (struct layout_push_head *)(void *)(out->heads + slot * out->heads_stride);
}

/* How many of its blocks have a kept word and a credit of their own: of a table, the first speaks for
 * all. */
static inline uint32_t param_words(const gs_param *p)
{
	return param_is_table(p) ? 1 : p->blocks;
}

/* Of a table: elements and bytes of a row, and the block that has it. */
static inline uint64_t param_dim(const gs_param *p)
{
	return p->wire.dim[1];
}

static inline uint64_t param_row_bytes(const gs_param *p)
{
	return param_dim(p) * p->weight_size;
}

static inline uint32_t param_row_block(const gs_param *p, int64_t row)
{
	return p->first_block + (uint32_t)((uint64_t)row * param_dim(p) / p->block_elems);
}

static inline bool trainer_is_sync(const gs_trainer *t)
{
	return t->welcome.mode == WIRE_SYNC;
}

/* Of block i (0 .. blocks-1) of p. */
static inline uint64_t block_first_elem(const gs_param *p, uint32_t i)
{
	return i * p->block_elems;
}

static inline uint64_t block_elems(const gs_param *p, uint32_t i)
{
	return i + 1 < p->blocks ? p->block_elems : p->elems - block_first_elem(p, i);
}

/* Where its weights begin; of the one behind the last, where they end. */
static inline uint64_t block_at(const gs_param *p, uint32_t i)
{
	return p->weight_size * (i < p->blocks ? block_first_elem(p, i) : p->elems);
}

/* Of a list of n, at parameter i: what a later one's turn needs is on its way meanwhile. */
static inline void param_fetch(gs_param *const *p, uint32_t i, uint32_t n)
{
	enum { AHEAD = 8 };

	if (i + AHEAD >= n || !p[i + AHEAD])
		return;
	for (size_t off = 0; off < offsetof(gs_param, out.lent); off += 64)
		__builtin_prefetch((const char *)p[i + AHEAD] + off);
}

/* The same for what only gs_step_pull needs. */
static inline void param_fetch_pull(gs_param *const *p, uint32_t i, uint32_t n)
{
	enum { AHEAD = 12 };

	if (i + AHEAD >= n || !p[i + AHEAD])
		return;
	__builtin_prefetch(p[i + AHEAD], 1);
	__builtin_prefetch(&p[i + AHEAD]->base_step, 1);
}

/* Which slot push number `push` of a connection goes into. (Initial weights are all taken before the
 * first gradient is pushed; so all parameters begin with the same slot, however many those had.) */
static inline uint32_t push_slot_index(const struct out *out, uint64_t push, uint32_t slots)
{
	return credits_slot(push - out->inits, slots);
}

/* Where push number `push` is written. */
static inline uint8_t *push_slot(const gs_param *p, uint64_t push)
{
	return p->out.ring + push_slot_index(&p->out, push, p->t->link.slots) * p->out.stride;
}

/* The number of the next push. In sync mode it goes with the step, and those of steps in which p was
 * not pushed are left out: so the slots of a pack stay the same for all of its parameters. */
static inline uint64_t push_next(const gs_param *p)
{
	const gs_trainer *t = p->t;

	return trainer_is_sync(t) && !p->table ? p->out.inits + (t->step - t->first_step)
					       : p->out.pushes;
}

/* The next push is the caller's. False: the server has all of it; nothing is to be sent. */
static inline bool push_begin(gs_param *p)
{
	p->push_step = p->t->step;
	p->begun = p->made + 1;
	return p->made >= p->out.base;
}

/* And it is on its way. */
static inline void push_made(gs_param *p)
{
	p->made = p->begun;
	p->made_step = p->push_step;
	p->out.end = p->out.pushes;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer's session: its connection, its slots, and what the server writes back to it.
 *
 *   HELLO (─▶ PROVING) ─▶ DECLARING ─▶ ATTACHING ─▶ HELD ─▶ INITIALISING ─▶ JOINING ─▶ ACTIVE
 *                                                   └───────────────────────▲
 *
 * From DECLARING to ACTIVE a bye leads to LEAVING; from any state the connection's end leads to CLOSED.
 * A hello may wait in HELLO or PROVING: for the end of the rank's last session.
 *
 * Threads. The control thread owns the session's life and is the only one that changes its state.
 * The poller of its connection reads the state and owns the fields marked so. Workers, and whoever
 * runs the round or the pace, hold references.
 *
 * Invariants:
 *  1. refs counts: one of the control thread until CLOSED, one of the round or the pace while
 *     it knows the session, one for each item (slot, delivery, pull, credit, release) that is queued or
 *     parked. The last one dropped has the control thread free it: so slots outlive the trainer
 *     that filled them.
 *  2. A slot is QUEUED from the poller's taking it until its parameter's actor is done with it.
 *     Only then is the trainer told.
 *  3. Words that are written to the trainer only grow; a repeated write is harmless.
 *  4. No data is taken behind a message that has yet to be answered: what follows a bye never
 *     reaches a parameter, however late the control thread reads the bye. (Messages come by rail 0:
 *     of what went by others, a trainer sends a bye only once it knows that it was taken.)
 *  5. A step is passed when its barrier came by each rail. Behind the barrier of a step a rail carries
 *     no gradient before the step is released, which follows the barriers of all rails. So a gradient
 *     is of the step that the session is posting, by whichever rail it came, and one step's never
 *     meet another's.
 */
#ifndef GS_SERVER_SESSION_H
#define GS_SERVER_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/line.h"
#include "proto/layout.h"
#include "proto/wire.h"
#include "server/actor.h"
#include "server/beat.h"
#include "server/bucket.h"
#include "server/inbox.h"
#include "server/table.h"
#include "transport/transport.h"

struct access;
struct poller;
struct part;
struct part_claim;

enum session_state {
	SESSION_HELLO,        /* connected; hello is awaited */
	SESSION_PROVING,      /* challenged; the proof of the key is awaited */
	SESSION_DECLARING,    /* welcomed; declarations come */
	SESSION_ATTACHING,    /* granted; its mailbox is awaited */
	SESSION_HELD,         /* complete; initial weights are awaited from another trainer */
	SESSION_INITIALISING, /* it writes the initial weights */
	SESSION_JOINING,      /* weights are there; waits for the first or the next step */
	SESSION_ACTIVE,       /* trains */
	SESSION_LEAVING,      /* said bye */
	SESSION_CLOSED,       /* its connection is over */
};

enum slot_state {
	SLOT_FREE,   /* the trainer may fill it */
	SLOT_QUEUED, /* it holds what a parameter's actor has yet to use */
};

/* The server's side of a slot: the queue's node lives here, out of the trainer's reach; the memory
 * that the trainer writes is `data`. */
struct slot {
	/* What every gradient needs, in one line. */
	struct item item;
	struct session *session;
	const void *data;
	float weight, scale; /* poller: of head, checked */
	uint32_t block;
	_Atomic uint8_t state;
	bool notify;
	bool packed; /* poller: it came with all of its pack */
	bool more;   /* poller; tables: the push goes on in another */

	const struct layout_push_head *head; /* the trainer's to write, at any time */
	_Atomic uint64_t step; /* poller; sync: the step whose gradient it last held; others may look */
	uint64_t push; /* poller: number of the push, from 1; sync: its step. The same for all its blocks */
	uint64_t seen; /* poller: of head */
	uint32_t rows; /* poller; tables: in it */
	uint32_t arrived; /* actor; whole gradients, first block: how many of the push have come */
	uint64_t blamed;  /* actor; first block: the push that was counted as not finite */
	_Atomic uint32_t *singles; /* of a joint pack's parameter: its lane's; else NULL */
} __attribute__((aligned(64)));
_Static_assert(offsetof(struct slot, head) == 64, "the first line has what every gradient needs");

/* A slot of a whole joint pack (joint.h): the slots of its parameters, filled and used as one. */
struct delivery {
	struct item item;
	struct session *session;
	const uint8_t *data; /* of the first; the others' lie behind it */
	const struct layout_push_head *head; /* the first's, which speaks for all */
	float weight, scale; /* poller: of head, checked */
	uint32_t pack;
	_Atomic uint8_t state;
	_Atomic uint64_t step; /* as a slot's */
} __attribute__((aligned(64)));

/* What a session's poller knows of a joint pack. */
struct lane {
	_Atomic uint32_t singles; /* slots of its parameters that are queued one by one: the poller adds,
				   * actors subtract */
	uint64_t step, singles_step; /* of the last gradients: of all as one; of any by itself */
};

struct pull {
	struct item item;
	struct session *session;
	uint32_t block;
	uint64_t seen;   /* actor: 1 + the updates in the last answer; 0: none yet */
	uint32_t planes; /* actor: of initial weights that came */
	_Atomic uint32_t wanted; /* requests unanswered; whoever moves it from 0 queues the item */
};

struct credit {
	struct item item;
	struct session *session;
	uint32_t block;
	bool parked, notify; /* actor */
	bool wide;           /* actor: of all of its pack, in one write */
};

/* A trainer's word on a parameter's learning rate. */
struct rate {
	struct item item;
	struct session *session;
	uint32_t param;
	double lr;
};

/* A hashed table had no room for a key of a push. */
struct refusal {
	uint32_t param;
	int64_t key;
};

/* What a pull is answered with: `len` bytes at `offset` of the mailbox. */
struct answer {
	uint64_t offset, len;
	uint32_t imm;
	const void *source; /* the weights themselves, or NULL: then `fill` makes it */
	void (*fill)(const void *arg, void *to);
	const void *arg;
};

/* A checkpoint that a trainer asked for. */
enum session_save { SAVE_NONE, SAVE_ASKED, SAVE_UNDER_WAY };

/* What a trainer is told of in its mailbox's head, in this order. */
enum session_count { SESSION_NONFINITE, SESSION_SKIPPED, SESSION_REFUSED, SESSION_COUNTS };

/* What became of the place of one whose connection was lost. */
enum lost_place {
	PLACE_NONE,   /* it had none yet, or it was given up at once */
	PLACE_KEPT,   /* its step waits for it */
	PLACE_PASSED, /* the next step waits for it */
};

enum {
	SESSION_BOUNCES = 4,
	SESSION_BEAT = SESSION_BOUNCES, /* the cookie behind those of the bounce buffers */
	SESSION_MAX_PULLS = 4, /* of one block, unanswered */
};

struct session {
	struct srv *srv;
	struct poller *poller;
	struct tp_conn *conn;
	struct session *next; /* control's list */
	char who[224];        /* for logs: rank, name, peer */

	_Atomic int state;
	_Atomic bool condemned; /* its end was decided: nothing more is taken from it */
	_Atomic uint32_t refs;

	/* control */
	bool has_rank;
	uint32_t rank;
	uint64_t deadline; /* of the talk before ACTIVE and after bye; 0: none */
	uint64_t answered; /* its messages that were handled */
	enum session_save save;
	bool waiting;      /* HELLO, PROVING: for the end of its rank's last session */
	struct wire_hello asked; /* what it said */
	uint8_t token[WIRE_SESSION_LEN];
	bool resumed;      /* it goes on with the rank's last session */
	bool took_part;    /* it got as far as ready */
	bool dropped;      /* its rank is not waited for: a straggler, or the server ends */
	struct beat beat;
	uint64_t since;    /* it is connected */
	struct bucket talk; /* of its messages */
	struct access *access; /* where there is a key: what its proof is about */
	struct wire_param *declared;
	uint32_t n_declared, cap_declared;
	struct outgoing *out_first, *out_last;

	/* poller */
	uint64_t posting LINE_BEGINS; /* sync, ssp: the step of its next gradient; control sets it before
			       * ACTIVE */
	uint32_t passing;     /* bit r: its barrier came by rail r */
	uint32_t all_rails;   /* bits of all of them; control sets it when it is connected */
	uint64_t last_pushed; /* sync: the step of its last gradient */
	uint64_t *last_step;  /* [block]; sync, dense: the same of each, also of its rank's last session */
	bool early;           /* early_note is under way */
	uint64_t heard;       /* its messages so far */
	uint64_t data_after;  /* data may come while `heard` is this; control sets it before the state
			       * that allows data */

	/* round, or pace */
	uint64_t first_step LINE_BEGINS;
	uint64_t pass_step;
	bool release_parked;
	enum lost_place lost_place; /* before its lost_note */
	uint64_t lost_step;
	_Atomic uint64_t released; /* ssp: the last step that it may go past; the poller reads it */
	struct item join, pass, leave, release;

	/* memory; set up before ACTIVE, then constant */
	uint64_t max_chunk LINE_BEGINS; /* of its connection */
	struct table *table; /* srv_table(), for those that run once it is ATTACHING */
	struct tp_arena *slot_mem, *words_mem, *bounce_mem;
	struct tp_region *weights_region, *slot_region, *words_region, *bounce_region;
	struct tp_remote *mailbox;
	struct slot *slot;     /* [block * slots + s] */
	uint64_t *pushes;      /* async, ssp; poller; [block]: that came so far. Control: those it begins
				* with */
	struct delivery *delivery; /* [pack * slots + s]; sync */
	struct lane *lane;     /* [pack]; sync; poller */
	_Atomic uint64_t *pack_done; /* [pack]; async, ssp: gradients of whole packs that were applied */
	struct part *part;     /* [param]; tables' actors */
	struct part_claim *claim; /* [param]; poller */
	struct pull *pull;     /* [block] */
	struct credit *credit; /* [block] */
	uint8_t *backup;       /* dc_lambda: weights as it last pulled them; parameters' actors */
	uint8_t *words;        /* a copy of the mailbox's head, credits and kept words */

	/* Whoever applies, or answers. */
	_Atomic uint32_t bounce_busy LINE_BEGINS; /* bit i: bounce buffer i carries a pull's answer */
	_Atomic bool beating;         /* a beat is under way */

	_Atomic uint32_t unsettled; /* ssp: of its step, gradients that are not in the weights, and 1
				     * for the barrier; who takes it to 0 ends the step */
	struct ages ages; /* of its gradients */
	/* What the trainer is to be told of, how often any of it moved, and which of those moves it
	 * was told of. */
	_Atomic uint64_t count[SESSION_COUNTS], counted, told;
	pthread_spinlock_t told_lock; /* who writes the counts */
	bool rate_busy;       /* control: a set_rate is under way */
	struct rate rate;

	/* The last refused push that nobody told of yet: whoever moves refusal_noted from false writes
	 * it, control moves it back once it has read it. */
	_Atomic bool refusal_noted;
	struct refusal refusal;

	/* items that wait for room on the connection */
	pthread_spinlock_t park_lock;
	struct item *parked;
	uint32_t room_gen;

	_Atomic uint64_t inbox_bytes; /* messages that control has yet to handle */
	_Atomic bool room_noted;
	struct note early_note, closed_note, reap_note, started_note, left_note, room_note,
		rate_note, refused_note, lost_note;
};
#define SESSION_LINE_OF(field) (offsetof(struct session, field) / LINE)
_Static_assert(SESSION_LINE_OF(refs) < SESSION_LINE_OF(posting) &&
		   SESSION_LINE_OF(data_after) < SESSION_LINE_OF(first_step) &&
		   SESSION_LINE_OF(release) < SESSION_LINE_OF(max_chunk) &&
		   SESSION_LINE_OF(words) < SESSION_LINE_OF(bounce_busy),
	       "the poller, the round and the parameters don't write in one another's lines, nor in "
	       "those of what is constant");

/* A session for a connection to come; refs = 1 (control's). NULL: no memory. */
struct session *session_create(struct srv *srv, struct poller *poller);
/* Frees all that it has, its connection too. */
void session_destroy(struct session *s);

enum session_state session_state(const struct session *s);
void session_set_state(struct session *s, enum session_state state);
const char *session_state_name(enum session_state state);

static inline void session_get_many(struct session *s, uint32_t n)
{
	atomic_fetch_add_explicit(&s->refs, n, memory_order_relaxed);
}
static inline void session_get(struct session *s)
{
	session_get_many(s, 1);
}
/* The last reference is gone: the control thread frees it. */
void session_reap(struct session *s);
static inline void session_put_many(struct session *s, uint32_t n)
{
	if (atomic_fetch_sub_explicit(&s->refs, n, memory_order_acq_rel) == n)
		session_reap(s);
}
static inline void session_put(struct session *s)
{
	session_put_many(s, 1);
}
/* Posts an item of the session to its actor, with the reference that the actor drops. */
void session_queue(struct session *s, struct item *item);
/* The session of one of its items join, pass, leave, release. */
struct session *session_of(struct item *item);
/* Tells the control thread, which drops the reference that comes along. */
void session_note(struct session *s, struct note *note);
/* Ssp: a gradient, or the barrier, of its step is done with. */
void session_settled_one(struct session *s);

/* Slots, credits, regions for the table: after it was declared. -ENOMEM, tp_expose's. */
int session_allocate(struct session *s);
/* Reaches the trainer's mailbox. */
int session_attach(struct session *s, const struct wire_ref *mailbox);

/* Ends it with a reason: logs, tells the trainer, closes the connection. Any thread, once. */
void session_condemn(struct session *s, enum wire_error_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* No data may come behind a message of this kind until it is answered: all but a rate, and the wish for
 * a checkpoint. */
static inline bool session_ends_data(enum wire_kind kind)
{
	return kind != WIRE_SET_RATE && kind != WIRE_SAVE;
}

/* The trainer broke the protocol. */
#define violation(s, ...) session_condemn(s, WIRE_E_PROTOCOL, __VA_ARGS__)

static inline void slot_set_state(struct slot *slot, enum slot_state state)
{
	/* Release: whoever fills or queues it next does so after what its user did before. */
	atomic_store_explicit(&slot->state, (uint8_t)state, memory_order_release);
}

/* It was used. */
static inline void slot_free(struct slot *slot)
{
	slot_set_state(slot, SLOT_FREE);
	/* Release: who finds it gone from the count finds it free. */
	if (slot->singles)
		atomic_fetch_sub_explicit(slot->singles, 1, memory_order_release);
}

static inline uint64_t slot_step(const struct slot *slot)
{
	return atomic_load_explicit(&slot->step, memory_order_relaxed);
}

/* The slot was used: free it, and drop its reference. The trainer is told by the caller. */
static inline void session_free_slot(struct slot *slot)
{
	struct session *s = slot->session;

	slot_free(slot);
	session_put(s);
}

/* Moves the credit of `block` and writes it to the trainer: now, or with those that follow it, of which
 * no more than `longest` are put off. Only the block's actor calls it. */
void session_credit(struct session *s, uint32_t block, bool notify, struct credit_run *run,
		    uint32_t longest);
/* Writes what was put off. */
void session_end_credits(struct credit_run *run);
/* Moves it where the gradient came with all of its pack: over a network the credits of the pack are
 * written together, once all of it is applied; and only that wakes the trainer. */
void session_credit_packed(struct session *s, uint32_t block);
/* ITEM_CREDIT: writes a parked credit. */
void session_retry_credit(struct credit *credit);
/* Writes the step that is released to the trainer. Only the round, or the pace, calls it. */
void session_release(struct session *s, uint64_t step);
void session_retry_release(struct session *s);
/* Raises a count; the next word that is written takes it along. */
void session_count(struct session *s, enum session_count which);
/* Counts a push that was refused, and has control tell why. */
void session_refuse(struct session *s, uint32_t param, int64_t key);
/* How many were. */
uint64_t session_refused(struct session *s);
/* Kept words, and the credits that begin with them, from the ledger; they are still to be sent. Before
 * it may send data. */
void session_seed_words(struct session *s);
/* What the server had of the block's from its rank before this session. */
uint64_t session_kept(const struct session *s, uint32_t block);
/* Writes its mailbox's beat. False: no room. */
bool session_post_beat(struct session *s);
/* The one that was posted has ended. */
bool session_beat_ended(const struct session *s);
/* ITEM_PULL: answers it. Without room it comes again. */
void session_answer_pull(struct pull *pull, const struct answer *answer);
/* A bounce buffer's write has ended. */
void session_bounce_done(struct session *s, uint64_t bounce);
/* There is room, or the connection is over: parked items go back to their actors. Poller. */
void session_unpark(struct session *s);

#endif

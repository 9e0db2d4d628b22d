/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger: what the server has of each rank, whatever process and connection it came by. So that
 * a gradient counts once, also when its trainer was lost and came again: who takes the rank is told
 * in its mailbox (proto/layout.h, kept words), and sends what is missing.
 *
 *  async, ssp  a word counts the rank's pushes of the block that are applied (of a parameter that is
 *              updated whole, in all its blocks, and of a table, in its first: whole pushes), those
 *              too that a policy kept out of the weights. The parameter's actor writes it.
 *  sync        a word is the last step of which the server has the block's gradient. The control
 *              thread writes it, when a connection is over.
 *
 * And who a rank belongs to: the tokens of its last sessions, which a trainer shows to go on with one.
 *
 * Invariants: 1. words of a rank never fall, but for ledger_forget; 2. a word is written by one thread
 * at a time, and read by any.
 */
#ifndef GS_SERVER_LEDGER_H
#define GS_SERVER_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/wire.h"

struct ledger_rank { /* control */
	uint8_t newest[WIRE_SESSION_LEN]; /* of the last session that was welcomed */
	uint8_t last[WIRE_SESSION_LEN];   /* of the last one that took part; or, if it was resumed
					   * since, what was shown for that */
	bool has_newest, has_last;
	bool lost;    /* that one went without a bye, and nobody has taken its place */
	bool trained; /* since the last bye */
};

struct ledger {
	uint32_t ranks, blocks;
	_Atomic uint64_t *word; /* [rank * blocks + block] */
	struct ledger_rank *rank;
};

/* For so many ranks; their words once the blocks are known. -ENOMEM. */
int ledger_init(struct ledger *l, uint32_t ranks);
int ledger_reserve(struct ledger *l, uint32_t blocks);
void ledger_fini(struct ledger *l);

/* ---- words ---- */

static inline _Atomic uint64_t *ledger_word(const struct ledger *l, uint32_t rank, uint32_t block)
{
	return &l->word[(uint64_t)rank * l->blocks + block];
}

/* What the word says. Async, ssp: exact in the actor of the block's parameter; elsewhere a look that may
 * be old. */
static inline uint64_t ledger_look(const struct ledger *l, uint32_t rank, uint32_t block)
{
	return atomic_load_explicit(ledger_word(l, rank, block), memory_order_relaxed);
}

/* Below, and for what a checkpoint says that is in its weights: before any trainer is granted memory. */
static inline void ledger_set(struct ledger *l, uint32_t rank, uint32_t block, uint64_t to)
{
	atomic_store_explicit(ledger_word(l, rank, block), to, memory_order_relaxed);
}

/* Async, ssp: one more push of the block is applied. The actor of the block's parameter. */
static inline void ledger_count(struct ledger *l, uint32_t rank, uint32_t block)
{
	ledger_set(l, rank, block, ledger_look(l, rank, block) + 1);
}

/* Sync: the server has the block's gradient of this step. Control. */
void ledger_has(struct ledger *l, uint32_t rank, uint32_t block, uint64_t step);
/* Sync: the rank was left with a bye. Control. */
void ledger_forget(struct ledger *l, uint32_t rank);

/* ---- tokens; all on the control thread ---- */

/* A session of the rank is welcomed with this token. */
void ledger_issue(struct ledger *l, uint32_t rank, const uint8_t token[WIRE_SESSION_LEN]);
/* It goes on with the session of the token that it showed, which is known. Before it is issued one. */
void ledger_resume(struct ledger *l, uint32_t rank, const uint8_t shown[WIRE_SESSION_LEN]);
/* It takes part: from here on no older one is known. True: its rank's last session had been lost. */
bool ledger_settle(struct ledger *l, uint32_t rank);
/* It trains. True: it is the first, since the start or the last bye. */
bool ledger_train(struct ledger *l, uint32_t rank);
/* It was lost. */
void ledger_lose(struct ledger *l, uint32_t rank);
/* It was left with a bye: no token of the rank is known any more. */
void ledger_revoke(struct ledger *l, uint32_t rank);
/* The token is that of the rank's last session. (One that was welcomed and lost before it took part
 * leaves the one before it known: its trainer may never have got the welcome.) */
bool ledger_knows(const struct ledger *l, uint32_t rank, const uint8_t token[WIRE_SESSION_LEN]);

#endif

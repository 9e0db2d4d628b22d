/* SPDX-License-Identifier: Apache-2.0
 *
 * The send queue's bookkeeping: which work requests (WRs) are under way, which of them ask for a
 * completion, and whom a completion is for. It knows no verbs and takes no locks.
 *
 * Every WR has a position, counted from 0 modulo 2^32. A completion for a position retires that WR
 * and every one before it, so that room comes back only from completions (never from what the peer
 * says), and unsignalled WRs are counted by the signalled one that follows them.
 *
 * Invariants:
 *  1. tail <= head <= tail + cap + reserve (as positions).
 *  2. Users may fill `cap`; the `reserve` is for what must never wait for users' WRs: credit
 *     updates, the goodbye, the drain's marker.
 *  3. While no signalled WR is under way fewer than `interval` WRs are, so a user that needs at
 *     most sendq_longest() WRs either finds room or a completion that will make some is coming.
 */
#ifndef GS_TRANSPORT_VERBS_SENDQ_H
#define GS_TRANSPORT_VERBS_SENDQ_H

#include <stdbool.h>
#include <stdint.h>

enum sendq_kind {
	SENDQ_PART,   /* of an op: nobody waits for it by itself */
	SENDQ_OP,     /* the last WR of an op that wants TP_EV_DONE; arg is the cookie */
	SENDQ_MSG,    /* a message; arg is its buffer, or SENDQ_NO_BUFFER */
	SENDQ_CREDIT, /* a credit update, from the reserve */
	SENDQ_BYE,    /* the goodbye, from the reserve */
	SENDQ_PROBE,  /* iWARP: the READ behind the goodbye, from the reserve */
	SENDQ_MARKER, /* the drain's last WR, from the reserve */
};

#define SENDQ_NO_BUFFER UINT64_MAX

struct sendq_wr {
	uint64_t arg;
	uint8_t kind;
	bool signalled;
};

struct sendq {
	uint32_t cap, reserve, interval;
	uint32_t head;     /* the next WR's position */
	uint32_t tail;     /* the oldest WR under way */
	uint32_t quiet;    /* WRs since the last signalled one */
	uint32_t reserved; /* of the WRs under way, those from the reserve */
	uint32_t mask;
	struct sendq_wr *ring;
};

/* Errors: -ENOMEM. */
int sendq_init(struct sendq *q, uint32_t cap, uint32_t reserve);
void sendq_free(struct sendq *q);

/* WRs a user may post now. */
static inline uint32_t sendq_room(const struct sendq *q)
{
	return q->cap - (q->head - q->tail - q->reserved);
}

/* The most WRs that one op may take. */
static inline uint32_t sendq_longest(const struct sendq *q)
{
	return q->cap - q->interval;
}

static inline uint32_t sendq_reserve_room(const struct sendq *q)
{
	return q->reserve - q->reserved;
}

static inline bool sendq_from_reserve(enum sendq_kind kind)
{
	return kind >= SENDQ_CREDIT;
}

/* Takes the next position; the caller has checked the room. Returns whether the WR must be
 * signalled: when `signal` is asked for, when it is from the reserve, or when its turn has come. */
bool sendq_push(struct sendq *q, enum sendq_kind kind, uint64_t arg, bool signal);

/* Takes back the newest `n` WRs: they could not be posted. */
void sendq_unpush(struct sendq *q, uint32_t n);

static inline bool sendq_under_way(const struct sendq *q, uint32_t pos)
{
	return pos - q->tail < q->head - q->tail;
}

static inline const struct sendq_wr *sendq_at(const struct sendq *q, uint32_t pos)
{
	return &q->ring[pos & q->mask];
}

/* Retires the oldest WR and shows what it was; false when none is under way. */
bool sendq_pop(struct sendq *q, struct sendq_wr *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The sync barrier as a pure state machine: who is a member of the step that is being made, who has
 * passed its end, and who is waited for. It counts ranks and steps, never messages.
 *
 *             join                     begin / advance               pass
 *   ABSENT ────────▶ JOINING ───────────────▶ MEMBER ───────────────▶ PASSED
 *      ▲                │                     │ ▲  ▲                   │ ▲
 *      │                │                lose │ │  └──── advance ──────┤ │
 *      │                │                     │ │ return          lose │ │ return
 *      │                │                     ▼ │                      ▼ │
 *      │                │                    LOST ◀──── advance ──── LOST_PASSED
 *      └──── leave ─────┴── (from any, also to give a lost one up)
 *
 * One that is lost keeps its place: the step waits for it as for any member. Who comes back to
 * LOST_PASSED has passed, and takes part from the next step on.
 *
 * Invariants: 1. members = ranks that are MEMBER, PASSED, LOST or LOST_PASSED; passed = those that are
 * PASSED or LOST_PASSED; lost = those that are LOST or LOST_PASSED. 2. Step k+1 begins only when every
 * member of step k has passed it or left. 3. Nobody becomes a member while a step is under way that has
 * other members.
 */
#ifndef GS_SERVER_BARRIER_H
#define GS_SERVER_BARRIER_H

#include <stdbool.h>
#include <stdint.h>

enum barrier_rank {
	BARRIER_ABSENT,  /* no trainer has this rank */
	BARRIER_JOINING, /* waits for the next step to begin */
	BARRIER_MEMBER,  /* the step waits for it */
	BARRIER_PASSED,  /* has delivered all of the step */
	BARRIER_LOST,    /* was a member when its trainer was lost: the step waits for its return */
	BARRIER_LOST_PASSED, /* had passed: the step does not wait, the next one will */
};

struct barrier {
	uint64_t step; /* being made; `from`: not begun */
	uint64_t from; /* the step that was made last, by an earlier run; 0: none */
	uint32_t ranks, start_at;
	uint32_t joining, members, passed, lost;
	uint8_t *rank; /* enum barrier_rank of each */
};

/* `ranks` in all; the first step begins when `start_at` have joined. -ENOMEM. */
int barrier_init(struct barrier *b, uint32_t ranks, uint32_t start_at);
void barrier_fini(struct barrier *b);

/* Each returns 0, or -EINVAL when the rank's state does not allow it (nothing changed then). */
int barrier_join(struct barrier *b, uint32_t rank);
int barrier_pass(struct barrier *b, uint32_t rank, uint64_t step);
int barrier_leave(struct barrier *b, uint32_t rank);
/* A member's trainer is lost, and its place kept. */
int barrier_lose(struct barrier *b, uint32_t rank);
/* Somebody takes the place of a lost one. */
int barrier_return(struct barrier *b, uint32_t rank);

bool barrier_is_lost(const struct barrier *b, uint32_t rank);

/* The first step may begin. */
bool barrier_may_begin(const struct barrier *b);
/* All members passed. With no members left there is something to end only if `delivered`. */
bool barrier_complete(const struct barrier *b, bool delivered);
/* No step is under way for anyone: who joins need not wait. */
bool barrier_idle(const struct barrier *b);

/* Begins the next step: those who joined become members, those who passed are members again, lost ones
 * lost members. */
void barrier_advance(struct barrier *b);
/* Makes the joining members of the current step, which nobody else is in. */
void barrier_admit(struct barrier *b);

#endif

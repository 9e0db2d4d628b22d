/* SPDX-License-Identifier: Apache-2.0
 *
 * The vigil: whom sync mode waits for, and for how long. A pure state machine that is told the time;
 * the control thread asks it what is due (watch.c), and acts.
 *
 *  lost ranks    each is waited for until its time is over, unless its own trainer is on its way back
 *  stragglers    told of once, straggler_ns after the first barrier of a step; again after somebody
 *                came back to it, who has had less time
 *  words         a wait that lasts is told of: after tell_ns, then after twice as long each time, up to
 *                VIGIL_TELL_MAX_NS
 *
 * Times are nanoseconds of any clock that does not go back; 0 is no time.
 */
#ifndef GS_SERVER_VIGIL_H
#define GS_SERVER_VIGIL_H

#include <stdbool.h>
#include <stdint.h>

#define VIGIL_TELL_NS     5000000000ULL
#define VIGIL_TELL_MAX_NS 60000000000ULL

struct vigil_rank {
	bool waited; /* lost, and its time is not over */
	bool held;   /* its trainer has come, and is in the talk: nobody gives it up meanwhile */
	uint64_t since;
};

struct vigil {
	uint32_t ranks, waited;
	uint64_t loss_wait_ns;
	uint64_t straggler_ns; /* 0: nobody is one */
	uint64_t straggled;    /* the first barrier that stragglers were told of */
	uint64_t wait_since, tell_at, tell_gap;
	struct vigil_rank *rank;
};

/* -ENOMEM. */
int vigil_init(struct vigil *v, uint32_t ranks, uint64_t loss_wait_ns, uint64_t straggler_ns);
void vigil_fini(struct vigil *v);

/* The rank is lost, and waited for. */
void vigil_lose(struct vigil *v, uint32_t rank, uint64_t now);
bool vigil_waits(const struct vigil *v, uint32_t rank);
/* What is left of its time; 0 when it is over. */
uint64_t vigil_left(const struct vigil *v, uint32_t rank, uint64_t now);
/* Its own trainer has come for it, or went again before it took its place. */
void vigil_hold(struct vigil *v, uint32_t rank, bool held);
/* Somebody took its place, or left it: no longer waited for. */
void vigil_settle(struct vigil *v, uint32_t rank);
/* A rank whose time is over: it is no longer waited for. False: there is none. */
bool vigil_expire(struct vigil *v, uint64_t now, uint32_t *rank);

/* Those who lack are stragglers now, of the step whose first barrier came at `first` (0: none has).
 * True once for each such time. */
bool vigil_straggles(struct vigil *v, uint64_t first, uint64_t now);

/* What has been waited for since `since` (0: nothing is) is to be told of now. */
bool vigil_tells(struct vigil *v, uint64_t since, uint64_t now);

#endif

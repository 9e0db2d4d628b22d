/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a wait polls before it sleeps: adaptive, as a pure state machine.
 *
 * Polling saves the 28 µs that waking a sleeper takes, and costs a core meanwhile. So it is done
 * only while it pays: while waits ended within the bound lately. One that polled in vain halves
 * what it is worth, so when nothing comes any more a few waits poll for the bound, and none after
 * that. Waits that sleep at once are looked at too: when they turn out short, polling begins again.
 */
#ifndef GS_BASE_SPIN_H
#define GS_BASE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum {
	SPIN_FOREVER = -1, /* bound_us */
	SPIN_WORTH = 2,    /* from here on it pays */
	SPIN_BEST = 8,
};

/* Who polls lets others have the processor every 2 µs: what it waits for may need it, and comes no
 * sooner than that. When nobody wants it, it costs a third of a microsecond. One that got it back
 * late gave it to somebody who computes: then polling is barred, for longer each time that it
 * happens again. And when somebody has it at each yield, they share it, maybe with another idle:
 * threads that always run are not moved, but one that wakes up is put where nobody is; so it naps
 * then, every 10 ms at most. Who polls for ever does none of that; it yields every 50 µs. */
struct yields {
	uint64_t every;  /* ns */
	uint64_t at;     /* the next is due */
	uint64_t until;  /* polling is barred */
	uint64_t bar;    /* for so long, the last time; ns */
	uint64_t nap_at; /* not before */
	uint32_t shared; /* one behind the other */
};

struct spin {
	uint64_t bound; /* ns; UINT64_MAX: for ever */
	struct yields yields;
	uint64_t began; /* of the wait under way */
	uint32_t worth; /* 0..SPIN_BEST */
};

void spin_init(struct spin *s, int32_t bound_us);
/* A wait begins. Until when it polls; `now` is not at all. */
uint64_t spin_begin(struct spin *s, uint64_t now);
/* What it waited for came while it polled, or was there at the first look. */
void spin_found(struct spin *s);
/* It slept, and is over. */
void spin_slept(struct spin *s, uint64_t now);

void yields_init(struct yields *y, bool forever);
/* Polling begins; goes on: yields when it is due. */
void yields_begin(struct yields *y, uint64_t now);
void yields_turn(struct yields *y, uint64_t now);
/* A yield took from `began` to `ended`. True: it is time for a nap. */
bool yields_took(struct yields *y, uint64_t began, uint64_t ended);
static inline bool yields_barred(const struct yields *y, uint64_t now)
{
	return now < y->until;
}

#endif

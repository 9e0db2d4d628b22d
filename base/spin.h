/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a wait polls before it sleeps: adaptive, as a pure state machine.
 *
 * Polling saves the 28 µs that waking a sleeper takes, and costs a core meanwhile. So it is done only
 * while it pays: while waits ended within the bound lately. One that polled in vain halves what it is
 * worth, so when nothing comes any more a few waits poll for the bound, and none after that. Waits
 * that sleep at once are looked at too: when they turn out short, polling begins again.
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

struct spin {
	uint64_t bound; /* ns; UINT64_MAX: for ever */
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

/* Who polls lets others have the processor every 2 µs: what it waits for may need it, and comes no sooner
 * than that. When nobody wants it, it costs a third of a microsecond.
 * Returns when the next is due; `due` is 0 at first. */
uint64_t spin_yield(uint64_t now, uint64_t due);

#endif

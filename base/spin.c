/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a wait polls before it sleeps.
 */
#include "base/spin.h"

#include "base/clock.h"

#include <sched.h>

#define YIELD_NS (2 * NS_PER_US)
/* What waking adds to a wait that slept. */
#define WAKE_NS (30 * NS_PER_US)

void spin_init(struct spin *s, int32_t bound_us)
{
	*s = (struct spin){
	    .bound = bound_us < 0 ? UINT64_MAX : (uint64_t)bound_us * NS_PER_US,
	    .worth = SPIN_WORTH,
	};
}

static bool polls(const struct spin *s)
{
	return s->worth >= SPIN_WORTH || s->bound == UINT64_MAX;
}

uint64_t spin_begin(struct spin *s, uint64_t now)
{
	s->began = now;
	if (!polls(s))
		return now;
	return s->bound > UINT64_MAX - now ? UINT64_MAX : now + s->bound;
}

void spin_found(struct spin *s)
{
	if (polls(s))
		s->worth = SPIN_BEST;
	else
		s->worth++;
}

void spin_slept(struct spin *s, uint64_t now)
{
	if (polls(s))
		s->worth /= 2; /* all of the bound, in vain */
	else if (now - s->began <= s->bound + WAKE_NS)
		s->worth++;
	else
		s->worth = 0;
}

uint64_t spin_yield(uint64_t now, uint64_t due)
{
	if (now < due)
		return due;
	if (due) {
		sched_yield();
		now = clock_ns();
	}
	return now + YIELD_NS;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a wait polls before it sleeps.
 */
#include "base/spin.h"

#include "base/clock.h"

#include <sched.h>

#define YIELD_NS (2 * NS_PER_US)
/* A yield that took as long as this lost the processor to one who computes: a scheduler's slice. */
#define LATE_NS    (500 * NS_PER_US)
#define BAR_NS     (10 * NS_PER_MS)
#define BAR_MAX_NS (1280 * NS_PER_MS)
#define AGAIN      8 /* bars, from one's end to the next loss: it is the same one who computes */
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
	yields_begin(&s->yields, now);
	if (!polls(s) || (yields_barred(&s->yields, now) && s->bound != UINT64_MAX))
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

void yields_begin(struct yields *y, uint64_t now)
{
	y->at = now + YIELD_NS;
}

void yields_took(struct yields *y, uint64_t began, uint64_t ended)
{
	bool again = y->bar && began - y->until < AGAIN * y->bar;

	y->at = ended + YIELD_NS;
	if (ended - began < LATE_NS)
		return;
	y->bar = !again ? BAR_NS : y->bar < BAR_MAX_NS ? 2 * y->bar : BAR_MAX_NS;
	y->until = ended + y->bar;
}

void yields_turn(struct yields *y, uint64_t now)
{
	if (now < y->at)
		return;
	sched_yield();
	yields_took(y, now, clock_ns());
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a wait polls before it sleeps.
 */
#include "base/spin.h"

#include "base/clock.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#define YIELD_NS  (2 * NS_PER_US)
#define RARELY_NS (50 * NS_PER_US)
/* A yield that took as long as this lost the processor to one who computes: a scheduler's slice. */
#define LATE_NS    (500 * NS_PER_US)
#define BAR_NS     (10 * NS_PER_MS)
#define BAR_MAX_NS (1280 * NS_PER_MS)
#define AGAIN      8 /* bars, from one's end to the next loss: it is the same one who computes */
/* One that took so long found somebody there, and so many show that it is no chance. */
#define SHARED_NS    (1 * NS_PER_US)
#define SHARED_LONG  32
#define NAP_EVERY_NS (10 * NS_PER_MS)
/* What waking adds to a wait that slept. */
#define WAKE_NS (30 * NS_PER_US)

void spin_init(struct spin *s, int32_t bound_us)
{
	*s = (struct spin){
	    .bound = bound_us < 0 ? UINT64_MAX : (uint64_t)bound_us * NS_PER_US,
	    .worth = SPIN_WORTH,
	};
	yields_init(&s->yields, bound_us < 0);
}

static bool polls(const struct spin *s)
{
	return s->worth >= SPIN_WORTH || s->bound == UINT64_MAX;
}

uint64_t spin_begin(struct spin *s, uint64_t now)
{
	s->began = now;
	yields_begin(&s->yields, now);
	if (!polls(s) || yields_barred(&s->yields, now))
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

void yields_init(struct yields *y, bool forever)
{
	*y = (struct yields){.every = forever ? RARELY_NS : YIELD_NS};
}

void yields_begin(struct yields *y, uint64_t now)
{
	y->at = now + y->every;
}

static void bar(struct yields *y, uint64_t began, uint64_t ended)
{
	bool again = y->bar && began - y->until < AGAIN * y->bar;

	y->bar = !again ? BAR_NS : y->bar < BAR_MAX_NS ? 2 * y->bar : BAR_MAX_NS;
	y->until = ended + y->bar;
}

bool yields_took(struct yields *y, uint64_t began, uint64_t ended)
{
	uint64_t took = ended - began;

	y->at = ended + y->every;
	if (y->every == RARELY_NS)
		return false;
	if (took >= LATE_NS)
		bar(y, began, ended);
	y->shared = took >= SHARED_NS ? y->shared + 1 : 0;
	if (y->shared < SHARED_LONG || ended < y->nap_at)
		return false;
	y->shared = 0;
	y->nap_at = ended + NAP_EVERY_NS;
	return true;
}

/* For as short as can be: the one that has the processor is to have it still at the end. */
static void nap(void)
{
	const struct timespec least = {.tv_nsec = 1};
	int slack = prctl(PR_GET_TIMERSLACK);

	prctl(PR_SET_TIMERSLACK, 1);
	nanosleep(&least, NULL);
	prctl(PR_SET_TIMERSLACK, slack > 0 ? slack : 0);
}

void yields_turn(struct yields *y, uint64_t now)
{
	if (now < y->at)
		return;
	sched_yield();
	if (yields_took(y, now, clock_ns()))
		nap();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How long to pause before trying again, pure: twice as long after each try, up to half a second;
 * from half to all of that, drawn at random, so that trainers that lost their server together don't
 * knock together.
 */
#ifndef GS_TRAINER_BACKOFF_H
#define GS_TRAINER_BACKOFF_H

#include <stdint.h>

#include "base/clock.h"

enum { BACKOFF_FIRST_MS = 5, BACKOFF_MAX_MS = 500 };

/* `attempt` from 0; `random`: any 64 bits. */
static inline uint64_t backoff_ns(uint32_t attempt, uint64_t random)
{
	uint64_t ms = attempt < 7 ? (uint64_t)BACKOFF_FIRST_MS << attempt : BACKOFF_MAX_MS;

	if (ms > BACKOFF_MAX_MS)
		ms = BACKOFF_MAX_MS;
	return ms * NS_PER_MS / 2 + random % (ms * NS_PER_MS / 2 + 1);
}

#endif

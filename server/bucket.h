/* SPDX-License-Identifier: Apache-2.0
 *
 * A token bucket, as a function of the clock alone: `burst` tokens at most, a new one every `every`
 * nanoseconds. All zeros is a full one.
 */
#ifndef GS_SERVER_BUCKET_H
#define GS_SERVER_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

struct bucket {
	uint64_t full_at; /* when all tokens will be there again */
};

/* Takes one; false: there is none. burst · every must not reach 2^63. */
static inline bool bucket_take(struct bucket *b, uint64_t now, uint64_t every, uint64_t burst)
{
	uint64_t missing = b->full_at > now ? b->full_at - now : 0;

	if (missing + every > burst * every)
		return false;
	b->full_at = now + missing + every;
	return true;
}

/* Puts one back. */
static inline void bucket_give(struct bucket *b, uint64_t every)
{
	b->full_at -= b->full_at < every ? b->full_at : every;
}

#endif

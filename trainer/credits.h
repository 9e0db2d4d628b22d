/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of slots and credits, pure.
 *
 * A parameter's pushes are numbered from 0 (initial weights count as one). Push n uses slot
 * n % slots of each of its blocks. A block's credit counter says how many of its pushes the server
 * is done with, in their order; so the slot of push n is free again once the counter has passed
 * push n - slots, the one that used it before.
 */
#ifndef GS_TRAINER_CREDITS_H
#define GS_TRAINER_CREDITS_H

#include <stdbool.h>
#include <stdint.h>

static inline uint32_t credits_slot(uint64_t push, uint32_t slots)
{
	return (uint32_t)(push % slots);
}

/* What every block's counter must have reached before push `push` may be written. */
static inline uint64_t credits_needed(uint64_t push, uint32_t slots)
{
	return push < slots ? 0 : push - slots + 1;
}

/* A counter can't say more than was pushed. */
static inline bool credits_plausible(uint64_t counter, uint64_t pushes)
{
	return counter <= pushes;
}

#endif

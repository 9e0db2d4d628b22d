/* SPDX-License-Identifier: Apache-2.0
 *
 * How a long op is cut into work requests: all of `max` bytes but the last, which has the rest.
 */
#ifndef GS_TRANSPORT_VERBS_CHUNK_H
#define GS_TRANSPORT_VERBS_CHUNK_H

#include <stdint.h>

/* `len` and `max` are 1 at least. */
static inline uint64_t chunk_count(uint64_t len, uint64_t max)
{
	return (len - 1) / max + 1;
}

/* Bytes of chunk `i` of an op of `len` bytes. */
static inline uint32_t chunk_len(uint64_t len, uint64_t max, uint64_t i)
{
	uint64_t left = len - i * max;

	return (uint32_t)(left < max ? left : max);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox4x32-10, a counter-based random number generator: J. K. Salmon, M. A. Moraes, R. O. Dror,
 * D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11,
 * https://doi.org/10.1145/2063384.2063405.
 */
#ifndef GS_KERNELS_PHILOX_H
#define GS_KERNELS_PHILOX_H

#include <stdint.h>

/* Turns the counter into 128 random bits, in place, under the key. */
static inline void philox4x32_10(uint32_t ctr[4], uint64_t key)
{
	uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = 0xD2511F53ULL * ctr[0], p1 = 0xCD9E8D57ULL * ctr[2];
		uint32_t c1 = ctr[1], c3 = ctr[3];

		ctr[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		ctr[1] = (uint32_t)p1;
		ctr[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		ctr[3] = (uint32_t)p0;
		/* The key's steps: the golden ratio's and sqrt(3) - 1's first 32 bits. */
		k0 += 0x9E3779B9U;
		k1 += 0xBB67AE85U;
	}
}

#endif

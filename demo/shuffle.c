/* SPDX-License-Identifier: Apache-2.0
 *
 * Fisher and Yates' shuffle (Knuth, The Art of Computer Programming, volume 2, algorithm 3.4.2 P).
 */
#include "demo/shuffle.h"

#include "kernels/philox.h"

void demo_shuffle(uint64_t seed, uint32_t which, uint32_t pass, uint32_t *order, uint32_t n)
{
	for (uint32_t i = n; i-- > 1;) {
		uint32_t r[4] = {i, pass, which, 0}, other, j;

		philox4x32_10(r, seed);
		/* The product's high half is uneven by at most n/2^32. */
		j = (uint32_t)((uint64_t)r[0] * (i + 1) >> 32);
		other = order[j];
		order[j] = order[i];
		order[i] = other;
	}
}

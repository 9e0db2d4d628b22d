/* SPDX-License-Identifier: Apache-2.0
 *
 * Checksums, by xxHash.
 */
#include "kernels/kern.h"

#include <xxhash.h>

uint64_t kern_checksum(const void *data, size_t bytes, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, bytes, seed);
}

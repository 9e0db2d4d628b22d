/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashing of 64-bit keys.
 */
#ifndef GS_SERVER_MIX_H
#define GS_SERVER_MIX_H

#include <stdint.h>
#include <sys/random.h>

/* A bijection in which each bit of the input turns half of the output's (splitmix64's). */
static inline uint64_t mix64(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Of a hash whose collisions nobody shall be able to choose. */
static inline uint64_t mix_key(void)
{
	uint64_t key;

	/* It waits while the machine has not had any randomness yet; signals may cut that short. */
	while (getrandom(&key, sizeof(key), 0) != sizeof(key))
		;
	return key;
}

/* A number and a secret, mixed twice: what collides under one key does not under another. */
static inline uint64_t mix_keyed(uint64_t x, uint64_t key)
{
	return mix64(mix64(x + key) ^ (key << 32 | key >> 32));
}

/* The least power of two that is n at least. n <= 2^63. */
static inline uint64_t pow2_at_least(uint64_t n)
{
	return n <= 1 ? 1 : UINT64_C(1) << (64 - __builtin_clzll(n - 1));
}

#endif

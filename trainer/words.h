/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that another process, or its NIC, writes while it is read here. Each function is one
 * ordering point with a purpose.
 */
#ifndef GS_TRAINER_WORDS_H
#define GS_TRAINER_WORDS_H

#include <stdint.h>
#include <string.h>

/* A counter in the mailbox or a version word: what its writer wrote before it is seen after it. */
static inline uint64_t word_acquire(const void *base, uint64_t off)
{
	return __atomic_load_n((const uint64_t *)((const uint8_t *)base + off), __ATOMIC_ACQUIRE);
}

/* Copies n floats that may change meanwhile: each comes over whole, of whatever moment. 8 bytes at
 * a time, from where src is 8-byte aligned (a block may begin at an odd element).
 *
 * Loads are acquiring and not relaxed so that a version word read after the copy is read after it:
 * on x86 that is free, and elsewhere it spares a fence. */
static inline void copy_live_float(float *dst, const float *src)
{
	uint32_t one = __atomic_load_n((const uint32_t *)(const void *)src, __ATOMIC_ACQUIRE);

	memcpy(dst, &one, sizeof(one));
}

static inline void copy_live_floats(float *dst, const float *src, uint64_t n)
{
	if (n > 0 && (uintptr_t)src % sizeof(uint64_t)) {
		copy_live_float(dst++, src++);
		n--;
	}
	const uint64_t *from = (const uint64_t *)(const void *)src;

	for (uint64_t i = 0; i < n / 2; i++) {
		uint64_t two = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);

		memcpy(dst + 2 * i, &two, sizeof(two));
	}
	if (n % 2)
		copy_live_float(dst + n - 1, src + n - 1);
}

#endif

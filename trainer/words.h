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

/* Copies n elements of `size` bytes, 4 or 2, that may change meanwhile: each comes over whole, of
 * whatever moment. 8 bytes at a time, from where src is 8-byte aligned (a block may begin
 * anywhere).
 *
 * Loads are acquiring and not relaxed so that a version word read after the copy is read after it:
 * on x86 that is free, and elsewhere it spares a fence. */
static inline void copy_live_element(uint8_t *dst, const uint8_t *src, uint32_t size)
{
	if (size == sizeof(uint32_t)) {
		uint32_t one =
		    __atomic_load_n((const uint32_t *)(const void *)src, __ATOMIC_ACQUIRE);

		memcpy(dst, &one, sizeof(one));
	} else {
		uint16_t one =
		    __atomic_load_n((const uint16_t *)(const void *)src, __ATOMIC_ACQUIRE);

		memcpy(dst, &one, sizeof(one));
	}
}

static inline void copy_live(void *to, const void *from, uint64_t n, uint32_t size)
{
	uint8_t *dst = to;
	const uint8_t *src = from, *end = src + n * size;

	for (; src < end && (uintptr_t)src % sizeof(uint64_t); src += size, dst += size)
		copy_live_element(dst, src, size);
	for (; src + sizeof(uint64_t) <= end; src += sizeof(uint64_t), dst += sizeof(uint64_t)) {
		uint64_t word =
		    __atomic_load_n((const uint64_t *)(const void *)src, __ATOMIC_ACQUIRE);

		memcpy(dst, &word, sizeof(word));
	}
	for (; src < end; src += size, dst += size)
		copy_live_element(dst, src, size);
}

#endif

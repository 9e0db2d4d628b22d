/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving bytes between this process and a mapped remote.
 */
#include "transport/shm/copy.h"

#include "base/copy.h"
#include "transport/shm/order.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* From here on stores go around the caches. Measured, copying and then reading on another core:
 * even at 512 KiB, at 1 MiB the whole takes little more than half the time of memcpy, and it stays
 * ahead: the lines written need not be fetched first, and nothing else is pushed out of the cache.
 */
#define STREAM_FROM ((size_t)1 << 20)

static bool aligned(const void *p, size_t to)
{
	return ((uintptr_t)p & (to - 1)) == 0;
}

static bool overlap(const void *a, const void *b, size_t len)
{
	uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

	return x < y ? y - x < len : x - y < len;
}

static void copy_bytes(void *to, const void *from, size_t len)
{
	if (overlap(to, from, len))
		memmove(to, from, len);
	else if (len >= STREAM_FROM)
		copy_streaming(to, from, len);
	else
		memcpy(to, from, len);
}

void shm_copy_out(void *remote, const void *local, size_t len)
{
	if (remote == local)
		return;
	if (len == 8 && aligned(remote, 8)) {
		uint64_t word;

		memcpy(&word, local, 8);
		atomic_store_explicit((_Atomic uint64_t *)remote, word, memory_order_release);
	} else if (len == 4 && aligned(remote, 4)) {
		uint32_t word;

		memcpy(&word, local, 4);
		atomic_store_explicit((_Atomic uint32_t *)remote, word, memory_order_release);
	} else {
		copy_bytes(remote, local, len);
	}
}

void shm_copy_in(void *local, const void *remote, size_t len)
{
	if (remote == local)
		return;
	if (len == 8 && aligned(remote, 8)) {
		uint64_t word =
		    atomic_load_explicit((const _Atomic uint64_t *)remote, memory_order_acquire);

		memcpy(local, &word, 8);
	} else if (len == 4 && aligned(remote, 4)) {
		uint32_t word =
		    atomic_load_explicit((const _Atomic uint32_t *)remote, memory_order_acquire);

		memcpy(local, &word, 4);
	} else {
		copy_bytes(local, remote, len);
		order_reads();
	}
}

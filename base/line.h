/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of memory, what cores hand to one another. Two threads that write side by side in one wait for
 * each other as if they wrote the same word; perf/sharing finds such lines.
 */
#ifndef GS_BASE_LINE_H
#define GS_BASE_LINE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LINE 64

/* Begins a line: what follows in a struct is written by others than what stands before. */
#define LINE_BEGINS __attribute__((aligned(LINE)))

/* `n` times `size` bytes of 0 in lines of their own; free() frees them. NULL: no memory. */
static inline void *line_alloc(size_t n, size_t size)
{
	size_t bytes;
	void *at;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - LINE)
		return NULL;
	bytes = bytes ? (bytes + LINE - 1) / LINE * LINE : LINE;
	at = aligned_alloc(LINE, bytes);
	return at ? memset(at, 0, bytes) : NULL;
}

#endif

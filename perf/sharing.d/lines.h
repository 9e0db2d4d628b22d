/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of who has a line of memory: from every access to it, how often it moved from core to core,
 * and whether it had to. Pure; the caller sees to it that a line is touched by one thread at a time.
 *
 * Each thread stands for a core whose cache is never full. A write leaves the line with its writer
 * alone; who touches it without having it makes it move. A move was *needed* when the thread, before
 * it loses the line again, touches a byte that others wrote since the last move that it needed; else
 * it was *useless*: the bytes that it was after had not changed, the line is falsely shared. (M. Dubois and others, "The
 * detection and elimination of useless misses in multiprocessors", 1993.)
 */
#ifndef GS_PERF_SHARING_LINES_H
#define GS_PERF_SHARING_LINES_H

#include <stdbool.h>
#include <stdint.h>

enum {
	LINE_BYTES = 64,
	LINE_THREADS = 16,
	LINE_PLACES = 12, /* of a thread; what comes from others is counted together */
};

/* Where in the program it was touched. Bytes of a line are bits: 0 is the first. */
struct line_place {
	uintptr_t pc;
	uint64_t read, written;
	uint64_t n;
};

struct line_use {
	bool has, knows; /* has it; has had it */
	bool counts;     /* the copy that it has came by a move */
	bool met;        /* and it touched something that was new in it */
	uint64_t stale;  /* bytes that others wrote while it was away, and it has not seen */
	uint64_t fresh;  /* of its copy: those that were new when it came */
	uint64_t needed, useless; /* moves */
	uint64_t written; /* bytes, from wherever */
	struct line_place place[LINE_PLACES];
	uint64_t elsewhere; /* accesses from other places */
};

struct line {
	struct line_use use[LINE_THREADS];
};

/* The thread reads or writes these bytes. */
void line_touch(struct line *line, unsigned thread, uint64_t bytes, bool write, uintptr_t pc);
/* Nothing comes any more: moves that were not found needed were useless. */
void line_end(struct line *line);
/* `len` bytes at `offset` of a line, len >= 1, as far as the line goes. */
uint64_t line_bytes(unsigned offset, uint64_t len);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * How a parameter is cut into blocks, and which parameters are packed. Pure.
 */
#ifndef GS_SERVER_GEOMETRY_H
#define GS_SERVER_GEOMETRY_H

#include <stdint.h>

struct geometry {
	uint64_t elems;
	uint64_t block_elems; /* of every block but perhaps the last */
	uint32_t blocks;
};

/* The longest block that a row may force: its bytes must fit a completion's 32-bit length. */
#define GEOMETRY_MAX_BLOCK_BYTES (1ULL << 30)

/* Cuts `ndim` dimensions into blocks of at most `block_bytes`, at whole rows (the first dimension)
 * when ndim ≥ 2; a row longer than that makes a longer block. Errors: -EINVAL (a row exceeds
 * GEOMETRY_MAX_BLOCK_BYTES, or more than `max_blocks` blocks). */
int geometry_cut(uint32_t ndim, const uint64_t *dim, uint64_t block_bytes, uint64_t max_blocks,
		 struct geometry *out);

/* Over a network a block is updated while the next one arrives; only the last one's update comes behind the
 * wire's time. So a parameter that makes few blocks of `block_bytes` is cut into four, but not into shorter
 * ones than GEOMETRY_WIRED_BYTES: each costs an immediate and a turn in the queue. */
enum { GEOMETRY_WIRED_BYTES = 32 << 10 };
uint64_t geometry_wired_block(uint64_t block_bytes, uint64_t bytes);

/* Runs of small parameters are packed (proto/layout.h): those of at most GEOMETRY_PACKED_BYTES of
 * gradient, up to GEOMETRY_PACK_BYTES and GEOMETRY_PACK_MAX of them together. */
enum {
	GEOMETRY_PACKED_BYTES = 32 << 10,
	GEOMETRY_PACK_BYTES = 256 << 10,
	GEOMETRY_PACK_MAX = 256,
};

/* bytes[i]: of a slot of parameter i, aligned; 0: it can't be packed. Sets pack[i], from 1 and
 * rising; 0: it is in none (one alone is none). Returns how many packs; no more than `max`. */
uint32_t geometry_pack(const uint64_t *bytes, uint32_t n, uint32_t max, uint32_t *pack);

/* Elements of block `index`. */
uint64_t geometry_block_elems(const struct geometry *g, uint32_t index);

#endif

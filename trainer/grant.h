/* SPDX-License-Identifier: Apache-2.0
 *
 * Is what the server granted sound? Pure: numbers in, verdict out.
 */
#ifndef GS_TRAINER_GRANT_H
#define GS_TRAINER_GRANT_H

#include <stdint.h>

#include "proto/wire.h"

/* What all grant messages of a session say together. */
struct grant {
	uint32_t n; /* places */
	uint32_t slots, blocks;
	struct wire_ref weights, slot_mem;
	struct wire_place *place;
};

/* `elems[i]`: what was declared for parameter i, of n. Returns 0, or -EPROTO with a text that names
 * the field, its value and the limit. After 0:
 *  1. each parameter's weights, and each of its slots, lie within their region, behind the words at
 *     its start, 64-byte aligned, and no two overlap;
 *  2. blocks 0 .. blocks-1 belong to the parameters in their order, all but a parameter's last have
 *     block_elems elements, and that one has 1 at least;
 *  3. 1 <= slots <= IMM_MAX_SLOTS, blocks <= IMM_MAX_BLOCKS;
 *  4. no sum or product of these numbers wraps around. */
int grant_check(const struct grant *g, const uint64_t *elems, uint32_t n);

#endif

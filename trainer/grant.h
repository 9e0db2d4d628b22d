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

/* What was declared for a parameter, as far as memory goes. */
struct grant_need {
	uint64_t elems, row; /* row: elements that lie in one block; 1 but for tables */
	uint64_t weights, slot, request, landing; /* bytes; request: 0 but for tables */
};

/* `need[i]`: of parameter i, of n. Returns 0, or -EPROTO with a text that names
 * the field, its value and the limit. After 0:
 *  1. each parameter's weights, each of its slots, its push heads and its request lie within their
 *     region, behind the words at its start, 64-byte aligned, and no two overlap; so do the landing
 *     areas, in a mailbox of grant_mailbox_len bytes, which is less than 2^58;
 *  2. blocks 0 .. blocks-1 belong to the parameters in their order, all but a parameter's last have
 *     block_elems elements, and that one has 1 at least; block_elems is a multiple of `row`;
 *  3. 1 <= slots <= IMM_MAX_SLOTS, blocks and packs together <= IMM_MAX_BLOCKS;
 *  4. packs are numbered from 1, each is two or more neighbours of one block that are no tables, and
 *     lies in the slots as layout.h says;
 *  5. no sum or product of these numbers wraps around. */
int grant_check(const struct grant *g, const struct grant_need *need, uint32_t n);

/* The mailbox that its places need. */
uint64_t grant_mailbox_len(const struct grant *g, const struct grant_need *need, uint32_t n);

#endif

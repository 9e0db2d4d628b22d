/* SPDX-License-Identifier: Apache-2.0
 *
 * Immediate data: 32 bits, a kind and a value. It is untrusted: whoever unpacks one checks the
 * kind against the direction it came from and the value against what the peer was granted.
 *
 *   31..29 kind    28 notify    27..25 slot    24..0 block       GRAD, INIT, PULL, APPLIED, PULLED
 *   31..29 kind                                28..0 step        BARRIER, RELEASE (low 29 bits)
 *
 * A GRAD whose block is `blocks` + k is of all parameters of pack k + 1 (layout.h): one gradient each, in
 * the same slot. Notify: answer once all of them are applied, with the last one's block.
 *
 * Kinds of the gradient path have the top bit set, so that a transport that mistakes the word for
 * a signed or a short one is found out at the first gradient.
 */
#ifndef GS_PROTO_IMM_H
#define GS_PROTO_IMM_H

#include <stdbool.h>
#include <stdint.h>

#define IMM_BLOCK_BITS 25
#define IMM_MAX_BLOCKS (1u << IMM_BLOCK_BITS)
#define IMM_MAX_SLOTS  8u
#define IMM_STEP_MASK  0x1fffffffu

enum imm_kind {
	/* trainer to server */
	IMM_GRAD = 4,    /* slot `slot` of `block` holds a gradient; notify: answer with APPLIED */
	IMM_INIT = 5,    /* slot `slot` of `block` holds its initial weights */
	IMM_BARRIER = 6, /* all of `step` was sent */
	IMM_PULL = 7,    /* write `block`'s weights into my landing area once you get to it; of a table
			  * (its first block): the rows that the request names */
	/* server to trainer */
	IMM_APPLIED = 4, /* the credit of `block` moved (notify) */
	IMM_RELEASE = 6, /* `step` is over: all of it is in the weights */
	IMM_PULLED = 7,  /* `block` has landed; of a table, with IMM_REFUSED as slot: a key found no
			  * room, and it is what has landed */
};

enum { IMM_REFUSED = 1 };

struct imm {
	uint32_t kind, slot, block, step;
	bool notify;
};

static inline uint32_t imm_block(enum imm_kind kind, uint32_t block, uint32_t slot, bool notify)
{
	return (uint32_t)kind << 29 | (uint32_t)notify << 28 | slot << 25 | block;
}

static inline uint32_t imm_step(enum imm_kind kind, uint64_t step)
{
	return (uint32_t)kind << 29 | (uint32_t)(step & IMM_STEP_MASK);
}

static inline struct imm imm_unpack(uint32_t word)
{
	return (struct imm){
		.kind = word >> 29,
		.notify = word >> 28 & 1,
		.slot = word >> 25 & (IMM_MAX_SLOTS - 1),
		.block = word & (IMM_MAX_BLOCKS - 1),
		.step = word & IMM_STEP_MASK,
	};
}

#endif

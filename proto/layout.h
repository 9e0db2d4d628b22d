/* SPDX-License-Identifier: Apache-2.0
 *
 * Where things lie in the three regions that a trainer and the server share. All words are
 * little-endian, as are the machines that this is built for (checked below).
 *
 *  weights  (server's memory; every trainer reads, none writes)
 *      u64 version word of each block: 2 × updates, + 1 while an update is under way
 *      … padding to a page …  the parameters, each at its weights_off
 *  slots    (server's memory; one trainer writes)
 *      struct layout_slots_head, then per parameter
 *      at heads_off:   struct layout_push_head of each slot, heads_stride apart: what is to be known
 *                      about a push. Of a dense parameter each lies right before its slot (heads_stride
 *                      and slots_stride are the same): one WRITE can take both there
 *      at slots_off:   slots, slots_stride apart. Of a dense parameter: the tensor, in its gradient's
 *                      type. Of a table: `rows` ids (i64), then as many rows of values; of no rows:
 *                      8 bytes of anything
 *      A *pack* is a run of small dense parameters, one block each, numbered from 1. Slot i of all of
 *      them lies together, one behind the other, each from a multiple of LAYOUT_ALIGN; then slot i + 1
 *      of all of them: slots_stride is the pack's. Their heads in front of the slots likewise. So one
 *      WRITE fills a slot of the whole pack:
 *          heads  A0 B0 C0  A1 B1 C1      slots  A0 B0 C0  A1 B1 C1
 *      at request_off: (tables) struct layout_request_head, then up to pull_rows ids, the rows that a
 *                      pull asks for
 *  mailbox  (trainer's memory; the server writes)
 *      struct layout_mailbox_head, then u64 credit counter of each block, then u64 kept word of each
 *      block: what the server has of this rank from before, written once ahead of ready
 *          sync: the last step of which it has the block's gradient (of a table, of a parameter that
 *                is updated whole: all of it)
 *          async, ssp: how many of the rank's pushes of the block are in the weights (of a table,
 *                in its first block's: whole pushes)
 *      In async and ssp mode the credit counters begin with kept[block] - the least kept of the
 *      parameter's blocks; so pushes are numbered alike for all its blocks, from that least one.
 *      … padding to a page …  per parameter, at landing_off: where weights land. Of a dense
 *      parameter: the tensor, in its weights' type. Of a table: up to pull_rows rows, in the order
 *      of the ids that asked for them; or, of a pull that was refused, the key that found no room
 */
#ifndef GS_PROTO_LAYOUT_H
#define GS_PROTO_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are shared as they are");

#define LAYOUT_PAGE  4096u
#define LAYOUT_ALIGN 64u /* of each parameter and of each slot */

struct layout_slots_head {
	uint64_t barrier; /* means nothing: a barrier's immediate needs a payload, since some networks
			   * drop empty ones */
	uint8_t pad[LAYOUT_ALIGN - 8];
};
_Static_assert(sizeof(struct layout_slots_head) == 64, "on the wire");

struct layout_mailbox_head {
	uint64_t released_step; /* sync: the last step that is wholly in the weights; ssp: the last
				 * one that this trainer may go past */
	uint64_t nonfinite;     /* pushes of this trainer with an infinity or a NaN */
	uint64_t skipped;       /* updates that were left out for one, anybody's */
	uint64_t refused;       /* pushes of rows that were refused; a notice says why */
	uint64_t beat;          /* means nothing: that it could be written shows that the trainer's
				 * machine is alive */
	uint8_t pad[LAYOUT_ALIGN - 40];
};
_Static_assert(sizeof(struct layout_mailbox_head) == 64, "on the wire");

/* Written by the trainer before the push that it is about, when it has something to say: what stood
 * there before holds on. All zero: nothing was said. */
struct layout_push_head {
	float weight;    /* WIRE_WEIGHTED: samples behind the gradient; 0: 1 */
	float scale;     /* the gradient is so many times too large (loss scaling); 0: 1 */
	uint64_t seen;   /* 1 + the updates that the weights had seen of which the gradient is; 0: not
			  * known */
	uint32_t rows;   /* tables: rows in this slot */
	uint32_t flags;  /* LAYOUT_MORE_ROWS */
	uint8_t pad[LAYOUT_ALIGN - 24];
};
_Static_assert(sizeof(struct layout_push_head) == 64, "on the wire");

/* What weight and scale may be, from 2^-60 to 2^60: then neither their quotients nor the sum of all
 * trainers' weights leave what a float can tell. A NaN is not. */
static inline bool layout_factor_ok(float f)
{
	return f >= 0x1p-60f && f <= 0x1p60f;
}

enum { LAYOUT_MORE_ROWS = 1 }; /* tables: the push goes on in the next slot */

/* Of the pull of rows that is asked for by the write it comes with. One is under way at a time. */
struct layout_request_head {
	uint32_t rows; /* 1 at least */
	uint8_t pad[LAYOUT_ALIGN - 4];
};
_Static_assert(sizeof(struct layout_request_head) == 64, "on the wire");

static inline uint64_t layout_slot_bytes(uint64_t rows, uint64_t row_bytes)
{
	return rows ? rows * (sizeof(int64_t) + row_bytes) : sizeof(int64_t);
}

static inline uint64_t layout_request_bytes(uint64_t rows)
{
	return sizeof(struct layout_request_head) + rows * sizeof(int64_t);
}

/* A row that is shorter leaves room for a refused pull's key all the same. */
static inline uint64_t layout_landing_bytes(uint64_t rows, uint64_t row_bytes)
{
	return rows * row_bytes < sizeof(int64_t) ? sizeof(int64_t) : rows * row_bytes;
}

/* Each head lies right before its slot. */
static inline bool layout_heads_lead(uint64_t heads_off, uint64_t heads_stride, uint64_t slots_off,
				     uint64_t slots_stride)
{
	return heads_stride == slots_stride && heads_stride > sizeof(struct layout_push_head) &&
	       slots_off - heads_off == sizeof(struct layout_push_head);
}

static inline uint64_t layout_align(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static inline uint64_t layout_version_off(uint64_t block)
{
	return 8 * block;
}

static inline uint64_t layout_weights_start(uint64_t blocks)
{
	return layout_align(8 * blocks, LAYOUT_PAGE);
}

static inline uint64_t layout_credit_off(uint64_t block)
{
	return sizeof(struct layout_mailbox_head) + 8 * block;
}

/* No step, no count of updates or of a rank's pushes gets there: more is no number of this protocol's. */
#define LAYOUT_COUNT_MAX (UINT64_C(1) << 48)

static inline uint64_t layout_kept_off(uint64_t blocks, uint64_t block)
{
	return layout_credit_off(blocks) + 8 * block;
}

static inline uint64_t layout_landing_start(uint64_t blocks)
{
	return layout_align(layout_kept_off(blocks, blocks), LAYOUT_PAGE);
}

#endif

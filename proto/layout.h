/* SPDX-License-Identifier: Apache-2.0
 *
 * Where things lie in the three regions that a trainer and the server share. All words are
 * little-endian, as are the machines that this is built for (checked below).
 *
 *  weights  (server's memory; every trainer reads, none writes)
 *      u64 version word of each block: 2 × updates, + 1 while an update is under way
 *      … padding to a page …  the parameters, each at its weights_off
 *  slots    (server's memory; one trainer writes)
 *      struct layout_slots_head, then per parameter `slots` tensors at slots_off + s * slots_stride
 *  mailbox  (trainer's memory; the server writes)
 *      struct layout_mailbox_head, then u64 credit counter of each block,
 *      … padding to a page …  the landing area, which mirrors the parameters of `weights`
 */
#ifndef GS_PROTO_LAYOUT_H
#define GS_PROTO_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are shared as they are");

#define LAYOUT_PAGE  4096u
#define LAYOUT_ALIGN 64u /* of each parameter and of each slot */

struct layout_slots_head {
	uint64_t barrier_step; /* source of nothing: a barrier's immediate needs a payload, since some
				* networks drop empty ones */
	uint8_t pad[LAYOUT_ALIGN - 8];
};
_Static_assert(sizeof(struct layout_slots_head) == 64, "on the wire");

struct layout_mailbox_head {
	uint64_t released_step; /* sync: the last step that is wholly in the weights */
	uint8_t pad[LAYOUT_ALIGN - 8];
};
_Static_assert(sizeof(struct layout_mailbox_head) == 64, "on the wire");

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

static inline uint64_t layout_landing_start(uint64_t blocks)
{
	return layout_align(layout_credit_off(blocks), LAYOUT_PAGE);
}

/* Of a region `weights` of weights_len bytes. */
static inline uint64_t layout_mailbox_len(uint64_t blocks, uint64_t weights_len)
{
	return layout_landing_start(blocks) + (weights_len - layout_weights_start(blocks));
}

/* Where the byte at `weights_off` of the weights lands in the mailbox. */
static inline uint64_t layout_landing_off(uint64_t blocks, uint64_t weights_off)
{
	return layout_landing_start(blocks) + (weights_off - layout_weights_start(blocks));
}

#endif

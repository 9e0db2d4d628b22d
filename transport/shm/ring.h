/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of a ring between two processes that do not trust each other: one sends entries,
 * one takes them. No memory of the peer's is touched here; callers read it once and pass the value.
 *
 * Invariants:
 *  1. Positions count from 0 and never go back; position p lies in slot p mod depth. Each side
 * counts in memory of its own, so the peer can't move it.
 *  2. An entry is there when its slot's `seq` says so for this very lap: a slot still holds the seq
 *     of one lap before (0 before the first) until it is written, and any third value is a lie.
 *  3. sent - taken <= depth. What the peer says it took can only grow, up to what was sent.
 */
#ifndef GS_TRANSPORT_SHM_RING_H
#define GS_TRANSPORT_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ring_entry {
	_Atomic uint32_t seq; /* written last, by the sender */
	_Atomic uint32_t kind;
	_Atomic uint32_t imm;
	_Atomic uint32_t len;
};

enum ring_kind { RING_IMM = 1, RING_MSG = 2 };

/* The sender's own account. */
struct ring_tx {
	uint32_t depth; /* a power of two */
	uint64_t sent;  /* slots handed to writers */
	uint64_t taken; /* the last believable count of the peer's */
};

/* The taker's own account. */
struct ring_rx {
	uint32_t depth;
	uint64_t taken;
};

enum ring_look { RING_EMPTY, RING_READY, RING_LIE };

static inline uint32_t ring_slot(uint32_t depth, uint64_t pos)
{
	return (uint32_t)pos & (depth - 1);
}

/* What `seq` is once the entry at `pos` is there. */
static inline uint32_t ring_seq(uint64_t pos)
{
	return (uint32_t)(pos + 1);
}

/* What a slot of `pos` holds before that. */
static inline uint32_t ring_seq_before(uint32_t depth, uint64_t pos)
{
	return pos < depth ? 0 : ring_seq(pos - depth);
}

static inline uint32_t ring_tx_room(const struct ring_tx *tx)
{
	return tx->depth - (uint32_t)(tx->sent - tx->taken);
}

/* Takes in what the peer says it took, modulo 2^32. False: that can't be. */
static inline bool ring_tx_credit(struct ring_tx *tx, uint32_t peer_taken)
{
	uint32_t more = peer_taken - (uint32_t)tx->taken;

	if (more > tx->sent - tx->taken)
		return false;
	tx->taken += more;
	return true;
}

/* The position for the next entry; only when there is room. */
static inline uint64_t ring_tx_reserve(struct ring_tx *tx)
{
	return tx->sent++;
}

/* What the `seq` read from the next slot means. */
static inline enum ring_look ring_rx_look(const struct ring_rx *rx, uint32_t seq)
{
	if (seq == ring_seq(rx->taken))
		return RING_READY;
	return seq == ring_seq_before(rx->depth, rx->taken) ? RING_EMPTY : RING_LIE;
}

/* The smallest power of two that is n at least; n <= 2^31. */
static inline uint32_t ring_depth(uint32_t n)
{
	uint32_t depth = 1;

	while (depth < n)
		depth <<= 1;
	return depth;
}

#endif

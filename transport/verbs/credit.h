/* SPDX-License-Identifier: Apache-2.0
 *
 * Receive credits: the right to use up one of the peer's posted receives. Pure arithmetic on
 * cumulative counts modulo 2^32.
 *
 * The receiver counts the receives that it has posted again and tells the sender the cumulative
 * count, each time it has grown by a quarter of the depth. The count travels in a SEND, and not in
 * an RDMA WRITE, because nothing completes at a sender whose memory was written: one that ran out
 * of credits and sleeps would never learn of them. These SENDs land on receives of their own
 * (CREDIT_RESERVE), so they need no credit themselves.
 *
 * Why CREDIT_RESERVE is enough, which is why there is no RNR: let K be the count that the sender
 * has taken in and A the last one that was sent to it. It takes a count in only after posting the
 * receive on which it came again. The receiver can't have reposted more than was sent to it, which
 * is at most K + depth, so A - K <= depth. Each update that is under way has raised A by at least
 * ceil(depth/4), so there are at most 4 of them. The fifth receive is for the goodbye, sent once.
 * (The connecting side's first message lands here too, before it can have anything to update.)
 */
#ifndef GS_TRANSPORT_VERBS_CREDIT_H
#define GS_TRANSPORT_VERBS_CREDIT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#define CREDIT_UPDATES 4
#define CREDIT_RESERVE (CREDIT_UPDATES + 1)

/* What this side may send. */
struct credit_tx {
	uint32_t depth;
	uint32_t used;     /* cumulative: receives used up */
	uint32_t returned; /* cumulative: as the peer told */
};

static inline uint32_t credit_tx_room(const struct credit_tx *tx)
{
	return tx->depth - (tx->used - tx->returned);
}

/* Takes in the peer's count. -EPROTO when it can't be: not grown, or beyond what was used. */
static inline int credit_tx_learn(struct credit_tx *tx, uint32_t returned)
{
	uint32_t grown = returned - tx->returned;

	if (grown == 0 || grown > tx->used - tx->returned)
		return -EPROTO;
	tx->returned = returned;
	return 0;
}

/* What the peer may send. */
struct credit_rx {
	uint32_t depth;
	uint32_t arrived;  /* cumulative: receives that the peer used up */
	uint32_t reposted; /* cumulative: of these, posted again */
	uint32_t told;     /* cumulative: as last sent to the peer */
};

/* A receive was used up. -EPROTO when the peer had no credit for it. */
static inline int credit_rx_arrive(struct credit_rx *rx)
{
	if (rx->arrived - rx->told >= rx->depth)
		return -EPROTO;
	rx->arrived++;
	return 0;
}

static inline uint32_t credit_quantum(uint32_t depth)
{
	return (depth + CREDIT_UPDATES - 1) / CREDIT_UPDATES;
}

/* The peer should be told now. */
static inline bool credit_rx_due(const struct credit_rx *rx)
{
	return rx->reposted - rx->told >= credit_quantum(rx->depth);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Run to completion: which of the actors that a poller's batch of completions owes a run the poller
 * runs itself, and which go to workers. Decisions only, in bytes that updates read: time comes down to
 * that.
 *
 * A worker that sleeps begins some 28 µs after it is called, which is what TURN_WAKE bytes of gradients
 * take; so an actor whose item takes less is done sooner by whoever has it in hand. One that looks for
 * work anyway begins after the hand-over of a few cache lines: TURN_HAND. And since the poller does not
 * look at its queue meanwhile, it does no more than that by itself, all in all, before it polls again:
 * what goes beyond is better shared, too.
 */
#ifndef GS_SERVER_TURN_H
#define GS_SERVER_TURN_H

#include <stdbool.h>
#include <stdint.h>

enum {
	TURN_MAX = 128, /* actors that one poller holds */
	TURN_WAKE = 512 << 10,
	TURN_HAND = 16 << 10,
	TURN_ITEM = 2 << 10, /* what an item costs beside its bytes */
};

/* What an actor's items cost. */
struct turn_cost {
	uint64_t most;  /* one item that came from a trainer, at worst */
	uint64_t whole; /* any other: it may be about all that the actor has */
	uint64_t each;  /* one from a trainer, on the average */
	uint64_t pack;  /* a joint pack's: one of all its parameters; else 0 */
};

static inline uint64_t turn_times(uint64_t bytes, uint32_t n)
{
	return __builtin_mul_overflow(bytes, (uint64_t)n, &bytes) ? UINT64_MAX : bytes;
}

/* The most that a poller keeps for itself: `awake` workers look for work. Without workers it is all. */
static inline uint64_t turn_limit(uint32_t workers, uint32_t awake)
{
	if (!workers)
		return UINT64_MAX;
	return awake ? TURN_HAND : TURN_WAKE;
}

static inline bool turn_keeps(uint64_t cost, uint64_t limit)
{
	return cost <= limit;
}

/* An item that came from a trainer, be it what it may. */
static inline uint64_t turn_each(const struct turn_cost *cost)
{
	return (cost->pack ? cost->pack : cost->each) + TURN_ITEM;
}

/* How many of an actor's `pending` items are run when so much of the limit is spent: one at least, if
 * nothing is. */
static inline uint32_t turn_items(const struct turn_cost *cost, uint32_t pending, uint64_t spent,
				  uint64_t limit)
{
	uint64_t each = turn_each(cost), room = spent < limit ? (limit - spent) / each : 0;

	if (spent == 0 && room == 0)
		room = 1;
	return room < pending ? (uint32_t)room : pending;
}

/* A poller's turn: from one look at its completion queue to the next. */
struct turn {
	struct actor *actor[TURN_MAX]; /* held, or let go of since */
	uint32_t n;
	uint64_t spent, limit;
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory-ordering points of the shared-memory backend, by purpose.
 */
#ifndef GS_TRANSPORT_SHM_ORDER_H
#define GS_TRANSPORT_SHM_ORDER_H

#include "transport/shm/wire.h"

#include <stdatomic.h>

/* TSan does not follow fences (the tsan preset says -Wno-tsan); what they order here lies in memory
 * that it sees as two, one for each mapping, so that loses it nothing. They must be real there too:
 * a sleeper and its waker depend on them. */
#define order_fence(how) atomic_thread_fence(how)

/* An entry and the bytes written before it become visible: its seq goes last. */
static inline void publish_entry(struct ring_entry *entry, uint32_t seq)
{
	atomic_store_explicit(&entry->seq, seq, memory_order_release);
}

/* If the seq read here announces an entry, the entry and the bytes before it can be read after. */
static inline uint32_t look_for_entry(const struct ring_entry *entry)
{
	return atomic_load_explicit(&entry->seq, memory_order_acquire);
}

/* The peer may overwrite the entries counted here: they were read before. */
static inline void publish_taken(struct shm_side *mine, uint64_t taken)
{
	atomic_store_explicit(&mine->taken, (uint32_t)taken, memory_order_release);
}

static inline uint32_t look_for_taken(const struct shm_side *peer)
{
	return atomic_load_explicit(&peer->taken, memory_order_acquire);
}

/* Going to sleep: says so, before the last look at what the peer may have published. Together with
 * take_sleeper: all changes of one word have one order and each sees what came before it, so either
 * the waker finds the sleeper, or the sleeper's last look finds what the waker published. */
static inline void announce_sleep(struct shm_side *mine, uint32_t what)
{
	atomic_exchange_explicit(&mine->sleep, what, memory_order_acq_rel);
}

/* After publishing: whether the peer sleeps and waits for `what`; if so it is this caller's to
 * wake, and nobody else's. */
static inline bool take_sleeper(struct shm_side *peer, uint32_t what)
{
	if (!(atomic_fetch_add_explicit(&peer->sleep, 0, memory_order_acq_rel) & what))
		return false;
	return atomic_exchange_explicit(&peer->sleep, 0, memory_order_acq_rel) & what;
}

/* The word is still there: nobody has published anything for it since, or is about to ring. */
static inline bool sleep_is_announced(struct shm_side *mine, uint32_t what)
{
	return atomic_load_explicit(&mine->sleep, memory_order_relaxed) == what;
}

static inline void end_sleep(struct shm_side *mine)
{
	atomic_store_explicit(&mine->sleep, 0, memory_order_relaxed);
}

/* Between two READs, so that the second does not see older bytes than the first. */
static inline void order_reads(void)
{
	order_fence(memory_order_acquire);
}

#endif

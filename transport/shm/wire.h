/* SPDX-License-Identifier: Apache-2.0
 *
 * What two processes on one host share: the packets on their socket and the layout of the
 * connection's segment. Changing anything here means a new SHM_VERSION.
 *
 * The handshake, on a SOCK_SEQPACKET socket bound to the abstract address "gradslot/NAME":
 *
 *   connector                                listener
 *   shm_hello                    ->
 *                                <-          shm_welcome, with the segment's descriptor (status 0)
 *                                <-     or   shm_welcome with a status and a text; closed
 *
 * After it the socket carries shm_packet: doorbells, and descriptors of regions. Its end is the end
 * of the connection.
 *
 * The segment: one page of shm_shared, then the ring of entries that side 0 (the listener) sends,
 * the ring that side 1 sends, and the message buffers of side 0 and side 1, one for each ring
 * entry.
 */
#ifndef GS_TRANSPORT_SHM_WIRE_H
#define GS_TRANSPORT_SHM_WIRE_H

#include "transport/shm/ring.h"
#include "transport/transport.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC   0x746f6c7364617267ULL /* "gradslot" */
#define SHM_VERSION 3u
#define SHM_LINE    128 /* two lines, since processors fetch them in pairs */
#define SHM_PAGE    4096
#define SHM_WHY     256
#define SHM_BINDING 32 /* drawn; the rest of a binding is 0 */

struct shm_hello {
	uint64_t magic;
	uint32_t version; /* magic, version and size stay where they are in every version */
	uint32_t size;    /* of this struct */
	uint32_t entry_size;
	uint32_t msg_max;
	uint32_t depth;     /* wanted; the smaller of both sides' holds, rounded up to 2^n */
	uint32_t max_chunk; /* 0: no wish */
	/* Of several connections that are one bundle's rails: its id, drawn by the connector, which of
	 * them this is, and how many there are; 0: it is none of such. */
	uint64_t bundle;
	uint32_t rail, rails;
};
static_assert(sizeof(struct shm_hello) == 48, "wire");

struct shm_welcome {
	uint64_t magic;
	uint32_t version;
	uint32_t size;
	int32_t status; /* 0, or the errno (positive) of a refusal */
	uint32_t depth;
	uint32_t max_chunk;
	uint32_t reserved;
	uint64_t segment_size;
	uint8_t binding[SHM_BINDING];
	char text[184]; /* why it was refused */
};
static_assert(sizeof(struct shm_welcome) == 256, "wire");

enum shm_packet_type {
	SHM_DOORBELL = 1, /* there is something for a sleeper */
	SHM_REGION = 2,   /* carries one descriptor: the file of region `key` */
	SHM_REGION_GONE = 3,
};

struct shm_packet {
	uint32_t type;
	uint32_t access;
	uint64_t key;
};
static_assert(sizeof(struct shm_packet) == 16, "wire");

/* What a side writes for the other to see. */
struct shm_side {
	/* What its sleeping poller waits for (enum shm_sleep); the waker takes it away. */
	_Alignas(SHM_LINE) _Atomic uint32_t sleep;
	/* How many of the peer's entries it has taken, since the start, modulo 2^32. */
	_Alignas(SHM_LINE) _Atomic uint32_t taken;
	/* How it ended the connection (enum shm_bye), and why. */
	_Alignas(SHM_LINE) _Atomic uint32_t bye;
	char why[SHM_WHY];
};

enum shm_sleep { SHM_SLEEP_ENTRY = 1 << 0, SHM_SLEEP_ROOM = 1 << 1 };
enum shm_bye { SHM_BYE_NONE, SHM_BYE_CLOSED, SHM_BYE_BROKEN };

struct shm_shared {
	struct shm_side side[2];
};
static_assert(sizeof(struct shm_shared) <= SHM_PAGE, "the first page holds it");
static_assert(sizeof(struct ring_entry) == 16, "wire");

static inline size_t shm_ring_bytes(uint32_t depth)
{
	size_t bytes = (size_t)depth * sizeof(struct ring_entry);

	return (bytes + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
}

static inline size_t shm_ring_at(uint32_t depth, int side)
{
	return SHM_PAGE + (size_t)side * shm_ring_bytes(depth);
}

static inline size_t shm_msgs_at(uint32_t depth, int side)
{
	return shm_ring_at(depth, 2) + (size_t)side * depth * TP_MSG_MAX;
}

static inline size_t shm_segment_bytes(uint32_t depth)
{
	return shm_msgs_at(depth, 2);
}

#endif

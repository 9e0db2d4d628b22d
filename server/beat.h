/* SPDX-License-Identifier: Apache-2.0
 *
 * Keepalive: a trainer whose machine no longer answers is lost, though its connection never ended.
 * Eight bytes that mean nothing are written to its mailbox (proto/layout.h, beat); that the write ends
 * shows that its machine is alive. `struct beat` is a pure state machine, told the time; what follows
 * it acts on a session, on the control thread.
 *
 * Invariant: one beat is under way at a time.
 */
#ifndef GS_SERVER_BEAT_H
#define GS_SERVER_BEAT_H

#include <stdbool.h>
#include <stdint.h>

struct beat {
	uint64_t next;  /* when the next one is due */
	uint64_t since; /* of the one that is under way, or wants room; 0: none is */
	bool posted;
};

/* A write is to be posted now. */
bool beat_due(const struct beat *b, uint64_t now);
/* It was; or there was no room, and it is to be tried again. */
void beat_tried(struct beat *b, bool posted, uint64_t now);
/* It has ended: the next is due a while later. */
void beat_ended(struct beat *b, uint64_t gap_ns, uint64_t now);
/* It is under way, or in want of room, for so long. */
bool beat_is_silent(const struct beat *b, uint64_t limit_ns, uint64_t now);

struct srv;

/* For every session that has a mailbox; ends those that are silent. */
void beat_all(struct srv *srv, uint64_t now);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a listener knows of bundles whose rails have not all come. Pure: no clock, no sockets; a
 * request is the backend's, which refuses what it is given back.
 *
 * Whoever connects can begin bundles and never complete them, so there are few places, each for a
 * limited time; when none is free, the oldest has to make room unless it is very young. The id is
 * drawn by the connecting side: with 48 random bits nobody meets another's by chance, or guesses it
 * within the time. (Who did would keep that bundle from being completed, and no more: what names a
 * connection, tp_conn_binding, is of all its rails.)
 */
#ifndef GS_TRANSPORT_GATHER_H
#define GS_TRANSPORT_GATHER_H

#include "transport/transport.h"

#include <stdint.h>

enum { GATHER_PLACES = 16, GATHER_YOUNG_MS = 100 };

struct gathering {
	uint64_t id;
	uint64_t since;
	uint8_t rails; /* 0: a free place */
	uint8_t have;  /* how many came */
	void *request[TP_RAILS_MAX]; /* NULL: not come */
};

struct gather {
	struct gathering at[GATHER_PLACES];
};

enum gather_verdict {
	GATHER_WAITS,
	GATHER_COMPLETE, /* *out has them all; its place is free */
	GATHER_WRONG,    /* not 2 to TP_RAILS_MAX rails, another number than before, or it came already */
	GATHER_CROWDED,  /* no place, and none that has been used for long */
};

/* A rail came. It is kept when the verdict is GATHER_WAITS or GATHER_COMPLETE. `out` is what the
 * caller has to see to in any case: the complete bundle, one that had to make room (then the verdict
 * is GATHER_WAITS), or nothing (out->rails is 0). */
enum gather_verdict gather_add(struct gather *g, uint64_t id, uint32_t rails, uint32_t rail,
			       void *request, uint64_t now, struct gathering *out);
/* Takes out one whose time is over, or, with now = UINT64_MAX, any. False: there is none. */
bool gather_expired(struct gather *g, uint64_t now, struct gathering *out);
/* Takes out the one with that id. */
bool gather_drop(struct gather *g, uint64_t id, struct gathering *out);
/* When the next one's time is over; UINT64_MAX: there is none. */
uint64_t gather_deadline(const struct gather *g);

#endif

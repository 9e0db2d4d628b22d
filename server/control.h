/* SPDX-License-Identifier: Apache-2.0
 *
 * The control thread's bounds.
 */
#ifndef GS_SERVER_CONTROL_H
#define GS_SERVER_CONTROL_H

#include "base/clock.h"
#include "server/internal.h"

/* How long a trainer may be silent in the talk before its training, and after its bye. */
static inline uint64_t control_talk_ns(const struct srv *srv)
{
	return srv->opt.talk_ms * NS_PER_MS;
}

/* Waits a little for what comes, and handles it. */
void control_turn(struct srv *srv, bool accepting);

/* How long connections may take to end when the server stops. */
#define CONTROL_END_NS (2 * NS_PER_S)

#endif

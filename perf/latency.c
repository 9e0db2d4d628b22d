/* SPDX-License-Identifier: Apache-2.0
 *
 * One gradient at a time: there, applied, and the weights back.
 */
#include "perf/loops.h"

#include "base/clock.h"

static int once(struct peer *p, uint64_t ns[PEER_SERIES])
{
	uint64_t began = clock_ns();
	int rc = peer_push(p);
	uint64_t pushed = clock_ns();

	if (rc == 0)
		rc = p->config->sync ? peer_lib(gs_step_end(p->trainer)) : peer_wait_applied(p);
	uint64_t applied = clock_ns();
	if (rc == 0)
		rc = peer_pull(p);
	uint64_t pulled = clock_ns();

	ns[0] = pulled - began;
	ns[1] = pushed - began;
	ns[2] = applied - began;
	ns[3] = pulled - applied;
	return rc;
}

static uint32_t messages(const struct peer_config *c)
{
	return c->params;
}

static uint64_t moved(const struct peer_config *c)
{
	return 2 * c->bytes * c->params;
}

const struct peer_loop perf_latency = {
    .name = "latency",
    .unit = "gradients",
    .count = "params",
    .series = {"round", "post", "applied", "pull"},
    .trip = {PEER_NO_TRIP, PEER_NO_TRIP, PEER_TRIP, PEER_TRIP_REMOTE},
    .once = once,
    .messages = messages,
    .moved = moved,
};

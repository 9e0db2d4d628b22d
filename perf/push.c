/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients one behind the other, as fast as slots come back.
 */
#include "perf/loops.h"

#include "base/clock.h"

static int once(struct peer *p, uint64_t ns[PEER_SERIES])
{
	uint64_t began = clock_ns();
	int rc = peer_push(p);

	ns[0] = clock_ns() - began;
	return rc;
}

static uint32_t messages(const struct peer_config *c)
{
	return c->params;
}

static uint64_t moved(const struct peer_config *c)
{
	return c->bytes * c->params;
}

const struct peer_loop perf_push = {
    .name = "push",
    .unit = "gradients",
    .count = "params",
    .series = {"push"},
    .once = once,
    .rates = true,
    .messages = messages,
    .moved = moved,
};

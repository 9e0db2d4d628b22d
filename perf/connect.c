/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections, one after the other: what it takes until a trainer may push, and until it is gone.
 */
#include "perf/loops.h"

#include "base/clock.h"

/* The weights' count before. */
static int prepare(struct peer *p)
{
	int rc = peer_join(p);

	if (rc == 0)
		rc = peer_count(p, false, &p->before);
	return rc < 0 ? rc : peer_leave(p);
}

static int once(struct peer *p, uint64_t ns[PEER_SERIES])
{
	uint64_t began = clock_ns();
	int rc = peer_connect(p);
	uint64_t connected = clock_ns();

	if (rc == 0)
		rc = peer_declare(p);
	if (rc == 0)
		rc = peer_start(p);
	uint64_t started = clock_ns();
	/* Not in the time: a gradient that shows at the end that this connection was one. */
	if (rc == 0)
		rc = peer_push_applied(p);
	uint64_t leaving = clock_ns();
	if (rc == 0)
		rc = peer_leave(p);
	uint64_t gone = clock_ns();

	ns[1] = connected - began;
	ns[2] = started - connected;
	ns[3] = gone - leaving;
	ns[0] = ns[1] + ns[2] + ns[3];
	return rc;
}

static uint32_t messages(const struct peer_config *c)
{
	(void)c;
	return 1;
}

static uint64_t moved(const struct peer_config *c)
{
	(void)c;
	return 0;
}

const struct peer_loop perf_connect = {
    .name = "connect",
    .unit = "connections",
    .count = "params",
    .series = {"all", "connect", "start", "leave"},
    .prepare = prepare,
    .once = once,
    .connects = true,
    .messages = messages,
    .moved = moved,
};

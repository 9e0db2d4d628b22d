/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights, read again and again while nobody changes them.
 */
#include "perf/loops.h"

#include <errno.h>

#include "base/clock.h"
#include "base/err.h"

/* Something to read that is not what the memory began with. */
static int prepare(struct peer *p)
{
	return peer_push_applied(p);
}

static int once(struct peer *p, uint64_t ns[PEER_SERIES])
{
	uint64_t began = clock_ns();
	int rc = peer_pull(p);

	ns[0] = clock_ns() - began;
	/* The last element that came: a pull that brought nothing is none. */
	if (rc == 0 && p->config->read != PEER_VIEW) {
		float *w = p->dst[p->config->params - 1];

		if (!(w[p->elems - 1] < 0))
			return err_set(EBADMSG, "a pull brought %g as the last weight",
				       w[p->elems - 1]);
		w[p->elems - 1] = 0;
	}
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

const struct peer_loop perf_pull = {
    .name = "pull",
    .unit = "pulls",
    .count = "params",
    .series = {"pull"},
    .prepare = prepare,
    .once = once,
    .rates = true,
    .messages = messages,
    .moved = moved,
};

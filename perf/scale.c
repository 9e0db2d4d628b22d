/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole steps of a model of many parameters; and in turn with them, under the same conditions,
 * those of one parameter that is as large as all of them.
 */
#include "perf/loops.h"

#include "base/clock.h"

static int step_of_many(struct peer *p, uint64_t *ns)
{
	uint64_t began = clock_ns();
	int rc = peer_push(p);

	if (rc == 0)
		rc = peer_lib(gs_step_pull(p->trainer, p->param, p->dst, p->config->params));
	*ns = clock_ns() - began;
	return rc;
}

static int step_of_one(struct peer *p, uint64_t *ns)
{
	uint32_t i = p->config->params;
	uint64_t began = clock_ns();
	int rc = peer_gradient(p, i);

	if (rc == 0)
		rc = peer_lib(gs_push(p->trainer, p->param[i], p->grad[i]));
	if (rc == 0)
		rc = peer_lib(gs_step_pull(p->trainer, &p->param[i], &p->dst[i], 1));
	*ns = clock_ns() - began;
	return rc;
}

static int once(struct peer *p, uint64_t ns[PEER_SERIES])
{
	return step_of_many(p, &ns[0]);
}

static int once_each(struct peer *p, uint64_t ns[PEER_SERIES])
{
	int rc = step_of_many(p, &ns[0]);

	return rc < 0 ? rc : step_of_one(p, &ns[1]);
}

static uint32_t steps(const struct peer_config *c)
{
	return 1 + c->one;
}

static uint64_t moved(const struct peer_config *c)
{
	return 2 * c->bytes * c->params * steps(c);
}

const struct peer_loop perf_scale = {
    .name = "scale",
    .unit = "steps",
    .count = "params",
    .series = {"step"},
    .once = once,
    .messages = steps,
    .moved = moved,
};

const struct peer_loop perf_scale_one = {
    .name = "scale-one",
    .unit = "steps",
    .count = "params",
    .series = {"step", "one"},
    .once = once_each,
    .messages = steps,
    .moved = moved,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks of bounded staleness.
 */
#include "server/clocks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"

int clocks_init(struct clocks *c, uint32_t ranks, uint32_t start_at, uint32_t bound)
{
	*c = (struct clocks){.ranks = ranks, .start_at = start_at, .bound = bound};
	c->ended = calloc(ranks, sizeof(*c->ended));
	c->member = calloc(ranks, sizeof(*c->member));
	return c->ended && c->member ? 0 : err_set(ENOMEM, "no memory for %u clocks", ranks);
}

void clocks_fini(struct clocks *c)
{
	free(c->ended);
	free(c->member);
	c->ended = NULL;
	c->member = NULL;
}

/* The slowest may have moved, or gone. */
static void look_for_slowest(struct clocks *c)
{
	uint64_t slowest = UINT64_MAX;

	for (uint32_t r = 0; r < c->ranks; r++)
		if (c->member[r] && c->ended[r] < slowest)
			slowest = c->ended[r];
	if (c->members)
		c->slowest = slowest;
}

int clocks_join(struct clocks *c, uint32_t rank)
{
	if (rank >= c->ranks || c->member[rank])
		return err_set(EINVAL, "rank %u can't join: it is there already, or not below %u",
			       rank, c->ranks);
	c->member[rank] = true;
	c->members++;
	c->ended[rank] = c->slowest;
	c->begun |= c->members >= c->start_at;
	return 0;
}

int clocks_return(struct clocks *c, uint32_t rank)
{
	uint64_t was = rank < c->ranks ? c->ended[rank] : 0;
	int rc = clocks_join(c, rank);

	if (!rc && was > c->ended[rank])
		c->ended[rank] = was;
	if (!rc)
		look_for_slowest(c); /* with nobody else there it is this one */
	return rc;
}

int clocks_pass(struct clocks *c, uint32_t rank, uint64_t step)
{
	if (rank >= c->ranks || !c->member[rank] || step != c->ended[rank] + 1)
		return err_set(EINVAL, "rank %u can't end step %llu", rank,
			       (unsigned long long)step);
	c->ended[rank] = step;
	look_for_slowest(c);
	return 0;
}

int clocks_leave(struct clocks *c, uint32_t rank)
{
	if (rank >= c->ranks || !c->member[rank])
		return err_set(EINVAL, "rank %u can't leave: it is not there", rank);
	c->member[rank] = false;
	c->members--;
	look_for_slowest(c);
	return 0;
}

uint64_t clocks_released(const struct clocks *c, uint32_t rank)
{
	uint64_t limit = c->slowest + c->bound;

	return c->ended[rank] < limit ? c->ended[rank] : limit;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The vigil.
 */
#include "server/vigil.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"

int vigil_init(struct vigil *v, uint32_t ranks, uint64_t loss_wait_ns, uint64_t straggler_ns)
{
	*v = (struct vigil){
		.ranks = ranks, .loss_wait_ns = loss_wait_ns, .straggler_ns = straggler_ns};
	v->rank = calloc(ranks, sizeof(*v->rank));
	return v->rank ? 0 : err_set(ENOMEM, "no memory to wait for %u ranks", ranks);
}

void vigil_fini(struct vigil *v)
{
	free(v->rank);
	v->rank = NULL;
}

/* ---- lost ranks -------------------------------------------------------------------------------- */

/* The one place where a rank's wait begins or ends. */
static void set_waited(struct vigil *v, uint32_t rank, bool waited, uint64_t since)
{
	v->waited += (uint32_t)waited - (uint32_t)v->rank[rank].waited;
	v->rank[rank] = (struct vigil_rank){.waited = waited, .since = since};
}

void vigil_lose(struct vigil *v, uint32_t rank, uint64_t now)
{
	set_waited(v, rank, true, now);
}

bool vigil_waits(const struct vigil *v, uint32_t rank)
{
	return rank < v->ranks && v->rank[rank].waited;
}

uint64_t vigil_left(const struct vigil *v, uint32_t rank, uint64_t now)
{
	uint64_t until = v->rank[rank].since + v->loss_wait_ns;

	return now < until ? until - now : 0;
}

void vigil_hold(struct vigil *v, uint32_t rank, bool held)
{
	v->rank[rank].held = held && v->rank[rank].waited;
}

void vigil_settle(struct vigil *v, uint32_t rank)
{
	set_waited(v, rank, false, 0);
}

bool vigil_expire(struct vigil *v, uint64_t now, uint32_t *rank)
{
	for (uint32_t r = 0; v->waited && r < v->ranks; r++) {
		if (!v->rank[r].waited || v->rank[r].held || vigil_left(v, r, now))
			continue;
		vigil_settle(v, r);
		*rank = r;
		return true;
	}
	return false;
}

/* ---- stragglers and words ---------------------------------------------------------------------- */

bool vigil_straggles(struct vigil *v, uint64_t first, uint64_t now)
{
	if (!v->straggler_ns || !first || first == v->straggled ||
	    now < first + v->straggler_ns)
		return false;
	v->straggled = first;
	return true;
}

bool vigil_tells(struct vigil *v, uint64_t since, uint64_t now)
{
	if (since != v->wait_since) {
		v->wait_since = since;
		v->tell_gap = VIGIL_TELL_NS;
		v->tell_at = since + v->tell_gap;
	}
	if (!since || now < v->tell_at)
		return false;
	v->tell_gap = 2 * v->tell_gap < VIGIL_TELL_MAX_NS ? 2 * v->tell_gap : VIGIL_TELL_MAX_NS;
	v->tell_at = now + v->tell_gap;
	return true;
}

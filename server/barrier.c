/* SPDX-License-Identifier: Apache-2.0
 *
 * The sync barrier's state machine.
 */
#include "server/barrier.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"

static void count(struct barrier *b, enum barrier_rank state, int by)
{
	if (state == BARRIER_JOINING)
		b->joining += (uint32_t)by;
	if (state >= BARRIER_MEMBER)
		b->members += (uint32_t)by;
	if (state == BARRIER_PASSED || state == BARRIER_LOST_PASSED)
		b->passed += (uint32_t)by;
	if (state >= BARRIER_LOST)
		b->lost += (uint32_t)by;
}

/* The one place where a rank changes state. */
static void set_rank(struct barrier *b, uint32_t rank, enum barrier_rank state)
{
	count(b, b->rank[rank], -1);
	b->rank[rank] = state;
	count(b, state, 1);
}

int barrier_init(struct barrier *b, uint32_t ranks, uint32_t start_at)
{
	*b = (struct barrier){.ranks = ranks, .start_at = start_at};
	b->rank = calloc(ranks, 1);
	return b->rank ? 0 : err_set(ENOMEM, "no memory for a barrier of %u ranks", ranks);
}

void barrier_fini(struct barrier *b)
{
	free(b->rank);
	b->rank = NULL;
}

int barrier_join(struct barrier *b, uint32_t rank)
{
	if (rank >= b->ranks || b->rank[rank] != BARRIER_ABSENT)
		return err_set(EINVAL, "rank %u can't join: it is there already, or not below %u",
			       rank, b->ranks);
	set_rank(b, rank, BARRIER_JOINING);
	return 0;
}

int barrier_pass(struct barrier *b, uint32_t rank, uint64_t step)
{
	if (rank >= b->ranks || b->rank[rank] != BARRIER_MEMBER || step != b->step)
		return err_set(EINVAL, "rank %u can't pass step %llu: step %llu is being made",
			       rank, (unsigned long long)step, (unsigned long long)b->step);
	set_rank(b, rank, BARRIER_PASSED);
	return 0;
}

int barrier_leave(struct barrier *b, uint32_t rank)
{
	if (rank >= b->ranks || b->rank[rank] == BARRIER_ABSENT)
		return err_set(EINVAL, "rank %u can't leave: it is not there", rank);
	set_rank(b, rank, BARRIER_ABSENT);
	return 0;
}

int barrier_lose(struct barrier *b, uint32_t rank)
{
	if (rank >= b->ranks ||
	    (b->rank[rank] != BARRIER_MEMBER && b->rank[rank] != BARRIER_PASSED))
		return err_set(EINVAL, "rank %u can't be lost: it is no member", rank);
	set_rank(b, rank, b->rank[rank] == BARRIER_MEMBER ? BARRIER_LOST : BARRIER_LOST_PASSED);
	return 0;
}

int barrier_return(struct barrier *b, uint32_t rank)
{
	if (!barrier_is_lost(b, rank))
		return err_set(EINVAL, "rank %u can't return: it is not lost", rank);
	set_rank(b, rank, b->rank[rank] == BARRIER_LOST ? BARRIER_MEMBER : BARRIER_PASSED);
	return 0;
}

bool barrier_is_lost(const struct barrier *b, uint32_t rank)
{
	return rank < b->ranks && b->rank[rank] >= BARRIER_LOST;
}

bool barrier_may_begin(const struct barrier *b)
{
	return b->step == b->from && b->joining >= b->start_at;
}

bool barrier_complete(const struct barrier *b, bool delivered)
{
	return b->step > b->from && b->passed == b->members && (b->members > 0 || delivered);
}

bool barrier_idle(const struct barrier *b)
{
	return b->step > b->from && b->members == 0;
}

void barrier_admit(struct barrier *b)
{
	for (uint32_t r = 0; r < b->ranks; r++)
		if (b->rank[r] == BARRIER_JOINING)
			set_rank(b, r, BARRIER_MEMBER);
}

void barrier_advance(struct barrier *b)
{
	b->step++;
	for (uint32_t r = 0; r < b->ranks; r++)
		if (b->rank[r] == BARRIER_PASSED)
			set_rank(b, r, BARRIER_MEMBER);
		else if (b->rank[r] == BARRIER_LOST_PASSED)
			set_rank(b, r, BARRIER_LOST);
	barrier_admit(b);
}

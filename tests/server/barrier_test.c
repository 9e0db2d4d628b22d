/* SPDX-License-Identifier: Apache-2.0
 *
 * The sync barrier (server/barrier.h): its transitions one by one, and a long random walk beside a
 * model that knows nothing but sets.
 */
#include "server/barrier.h"

#include <errno.h>

#include "suite.h"

enum { RANKS = 5, WALK = 100000 };

/* ---- one by one --------------------------------------------------------------------------------
 */

START_TEST(begins_when_enough_have_joined)
{
	struct barrier b;

	ck_assert_int_eq(barrier_init(&b, 3, 2), 0);
	ck_assert(!barrier_may_begin(&b));
	ck_assert_int_eq(barrier_join(&b, 2), 0);
	ck_assert(!barrier_may_begin(&b));
	ck_assert(!barrier_idle(&b));
	ck_assert_int_eq(barrier_join(&b, 0), 0);
	ck_assert(barrier_may_begin(&b));
	ck_assert(!barrier_complete(&b, true));
	barrier_advance(&b);
	ck_assert_uint_eq(b.step, 1);
	ck_assert_uint_eq(b.members, 2);
	ck_assert_uint_eq(b.joining, 0);
	ck_assert(!barrier_may_begin(&b));
	barrier_fini(&b);
}
END_TEST

START_TEST(completes_when_all_members_passed)
{
	struct barrier b;

	ck_assert_int_eq(barrier_init(&b, 2, 2), 0);
	barrier_join(&b, 0);
	barrier_join(&b, 1);
	barrier_advance(&b);
	ck_assert_int_eq(barrier_pass(&b, 1, 1), 0);
	ck_assert(!barrier_complete(&b, true));
	ck_assert_int_eq(barrier_pass(&b, 0, 1), 0);
	ck_assert(barrier_complete(&b, false));
	barrier_advance(&b);
	ck_assert_uint_eq(b.step, 2);
	ck_assert_uint_eq(b.members, 2);
	ck_assert_uint_eq(b.passed, 0);
	barrier_fini(&b);
}
END_TEST

START_TEST(who_leaves_is_not_waited_for)
{
	struct barrier b;

	ck_assert_int_eq(barrier_init(&b, 3, 3), 0);
	for (uint32_t r = 0; r < 3; r++)
		barrier_join(&b, r);
	barrier_advance(&b);
	barrier_pass(&b, 0, 1);
	barrier_pass(&b, 2, 1);
	ck_assert(!barrier_complete(&b, false));
	ck_assert_int_eq(barrier_leave(&b, 1), 0);
	ck_assert(barrier_complete(&b, false));
	/* One who passed and left is not counted either. */
	ck_assert_int_eq(barrier_leave(&b, 2), 0);
	ck_assert_uint_eq(b.members, 1);
	ck_assert_uint_eq(b.passed, 1);
	barrier_fini(&b);
}
END_TEST

START_TEST(a_joiner_waits_for_the_next_step)
{
	struct barrier b;

	ck_assert_int_eq(barrier_init(&b, 2, 1), 0);
	barrier_join(&b, 0);
	barrier_advance(&b);
	barrier_join(&b, 1);
	ck_assert_int_eq(b.rank[1], BARRIER_JOINING);
	ck_assert_int_eq(barrier_pass(&b, 1, 1), -EINVAL);
	barrier_pass(&b, 0, 1);
	ck_assert(barrier_complete(&b, false));
	barrier_advance(&b);
	ck_assert_int_eq(b.rank[1], BARRIER_MEMBER);
	ck_assert_uint_eq(b.members, 2);
	barrier_fini(&b);
}
END_TEST

START_TEST(all_leave_and_one_comes)
{
	struct barrier b;

	ck_assert_int_eq(barrier_init(&b, 2, 1), 0);
	barrier_join(&b, 0);
	barrier_advance(&b);
	barrier_leave(&b, 0);
	ck_assert(barrier_idle(&b));
	ck_assert(!barrier_complete(&b, false));
	/* Its gradients are still to be settled: then there is a step to end. */
	ck_assert(barrier_complete(&b, true));
	barrier_join(&b, 1);
	barrier_admit(&b);
	ck_assert_uint_eq(b.step, 1);
	ck_assert_uint_eq(b.members, 1);
	ck_assert(!barrier_idle(&b));
	barrier_fini(&b);
}
END_TEST

START_TEST(refuses_what_the_state_does_not_allow)
{
	struct barrier b;

	ck_assert_int_eq(barrier_init(&b, 2, 1), 0);
	ck_assert_int_eq(barrier_join(&b, 2), -EINVAL);
	ck_assert_int_eq(barrier_leave(&b, 0), -EINVAL);
	ck_assert_int_eq(barrier_leave(&b, 2), -EINVAL);
	ck_assert_int_eq(barrier_pass(&b, 0, 0), -EINVAL);
	barrier_join(&b, 0);
	ck_assert_int_eq(barrier_join(&b, 0), -EINVAL);
	barrier_advance(&b);
	ck_assert_int_eq(barrier_pass(&b, 0, 2), -EINVAL);
	EXPECT_TEXT("step 2", "step 1");
	ck_assert_int_eq(barrier_pass(&b, 2, 1), -EINVAL);
	ck_assert_int_eq(barrier_pass(&b, 0, 1), 0);
	ck_assert_int_eq(barrier_pass(&b, 0, 1), -EINVAL);
	ck_assert_uint_eq(b.passed, 1);
	barrier_fini(&b);
}
END_TEST

START_TEST(a_lost_member_is_waited_for)
{
	struct barrier b;

	ck_assert_int_eq(barrier_init(&b, 2, 2), 0);
	barrier_join(&b, 0);
	barrier_join(&b, 1);
	ck_assert_int_eq(barrier_lose(&b, 0), -EINVAL); /* no member yet */
	barrier_advance(&b);
	ck_assert_int_eq(barrier_lose(&b, 0), 0);
	ck_assert_int_eq(barrier_lose(&b, 0), -EINVAL);
	ck_assert(barrier_is_lost(&b, 0) && !barrier_is_lost(&b, 1));
	ck_assert_uint_eq(b.lost, 1);
	ck_assert_uint_eq(b.members, 2);
	barrier_pass(&b, 1, 1);
	ck_assert(!barrier_complete(&b, false));
	ck_assert_int_eq(barrier_pass(&b, 0, 1), -EINVAL);
	ck_assert_int_eq(barrier_return(&b, 1), -EINVAL);
	ck_assert_int_eq(barrier_return(&b, 2), -EINVAL);
	ck_assert_int_eq(barrier_return(&b, 0), 0);
	ck_assert_int_eq(b.rank[0], BARRIER_MEMBER);
	ck_assert_int_eq(barrier_pass(&b, 0, 1), 0);
	ck_assert(barrier_complete(&b, false));
	barrier_fini(&b);
}
END_TEST

/* Its barrier counts; the step after waits for it. */
START_TEST(lost_behind_its_barrier)
{
	struct barrier b;

	ck_assert_int_eq(barrier_init(&b, 2, 2), 0);
	barrier_join(&b, 0);
	barrier_join(&b, 1);
	barrier_advance(&b);
	barrier_pass(&b, 0, 1);
	barrier_lose(&b, 0);
	ck_assert_int_eq(b.rank[0], BARRIER_LOST_PASSED);
	/* Back and lost again: it has passed all the same. */
	barrier_return(&b, 0);
	ck_assert_int_eq(b.rank[0], BARRIER_PASSED);
	barrier_lose(&b, 0);
	barrier_pass(&b, 1, 1);
	ck_assert(barrier_complete(&b, false));
	barrier_advance(&b);
	ck_assert_int_eq(b.rank[0], BARRIER_LOST);
	barrier_pass(&b, 1, 2);
	ck_assert(!barrier_complete(&b, false));
	/* Given up. */
	ck_assert_int_eq(barrier_leave(&b, 0), 0);
	ck_assert_uint_eq(b.lost, 0);
	ck_assert(barrier_complete(&b, false));
	barrier_fini(&b);
}
END_TEST

START_TEST(all_are_lost)
{
	struct barrier b;

	ck_assert_int_eq(barrier_init(&b, 2, 2), 0);
	barrier_join(&b, 0);
	barrier_join(&b, 1);
	barrier_advance(&b);
	barrier_lose(&b, 0);
	barrier_lose(&b, 1);
	ck_assert(!barrier_idle(&b)); /* who joins now waits for them */
	ck_assert(!barrier_complete(&b, true));
	barrier_leave(&b, 0);
	barrier_leave(&b, 1);
	ck_assert(barrier_idle(&b));
	barrier_fini(&b);
}
END_TEST

/* ---- the walk ----------------------------------------------------------------------------------
 */

struct model {
	uint64_t step;
	/* Sets of ranks, as bits; passed and lost are parts of members. */
	uint32_t joining, members, passed, lost;
};

static uint32_t bits(uint32_t set)
{
	return (uint32_t)__builtin_popcount(set);
}

/* One Check assertion a round: each costs more than the barrier does. */
static bool agrees(const struct barrier *b, const struct model *m)
{
	bool same = b->step == m->step && b->joining == bits(m->joining) &&
		    b->members == bits(m->members) && b->passed == bits(m->passed) &&
		    b->lost == bits(m->lost);

	for (uint32_t r = 0; r < RANKS; r++) {
		bool lost = m->lost >> r & 1;
		enum barrier_rank want = m->passed >> r & 1    ? lost ? BARRIER_LOST_PASSED
								      : BARRIER_PASSED
					 : lost                ? BARRIER_LOST
					 : m->members >> r & 1 ? BARRIER_MEMBER
					 : m->joining >> r & 1 ? BARRIER_JOINING
							       : BARRIER_ABSENT;

		same = same && b->rank[r] == want;
	}
	return same;
}

static bool walk_join(struct barrier *b, struct model *m, uint32_t r)
{
	bool absent = !((m->joining | m->members) >> r & 1);

	if (absent)
		m->joining |= 1u << r;
	return barrier_join(b, r) == (absent ? 0 : -EINVAL);
}

static bool walk_leave(struct barrier *b, struct model *m, uint32_t r)
{
	bool there = (m->joining | m->members) >> r & 1;

	m->joining &= ~(1u << r);
	m->members &= ~(1u << r);
	m->passed &= ~(1u << r);
	m->lost &= ~(1u << r);
	return barrier_leave(b, r) == (there ? 0 : -EINVAL);
}

static bool walk_pass(struct barrier *b, struct model *m, uint32_t r, uint64_t step)
{
	bool may = (m->members & ~m->passed & ~m->lost) >> r & 1 && step == m->step;

	if (may)
		m->passed |= 1u << r;
	return barrier_pass(b, r, step) == (may ? 0 : -EINVAL);
}

static bool walk_lose(struct barrier *b, struct model *m, uint32_t r)
{
	bool may = (m->members & ~m->lost) >> r & 1;

	m->lost |= (uint32_t)may << r;
	return barrier_lose(b, r) == (may ? 0 : -EINVAL);
}

static bool walk_return(struct barrier *b, struct model *m, uint32_t r)
{
	bool may = m->lost >> r & 1;

	m->lost &= ~(1u << r);
	return barrier_return(b, r) == (may ? 0 : -EINVAL);
}

/* What the round does after each change. */
static bool walk_settle(struct barrier *b, struct model *m, uint32_t start_at)
{
	bool begin = m->step == 0 && bits(m->joining) >= start_at;
	bool complete = m->step > 0 && m->members && m->members == m->passed;
	bool idle = m->step > 0 && !m->members;

	bool same = barrier_may_begin(b) == begin && barrier_complete(b, false) == complete &&
		    barrier_idle(b) == idle;

	if (begin || complete) {
		barrier_advance(b);
		m->step++;
		m->members |= m->joining;
		m->passed = m->joining = 0;
	} else if (idle) {
		barrier_admit(b);
		m->members = m->joining;
		m->joining = 0;
	}
	return same;
}

static bool walk_once(struct barrier *b, struct model *m, uint64_t *seed)
{
	uint32_t r = rnd(seed, RANKS + 1); /* one too many: refused */

	if (r == RANKS)
		return barrier_join(b, r) && barrier_leave(b, r) &&
		       barrier_pass(b, r, b->step) && barrier_lose(b, r) && barrier_return(b, r);
	switch (rnd(seed, 12)) {
	case 8:
		return walk_lose(b, m, r);
	case 9:
	case 10:
		return walk_return(b, m, r);
	case 0:
		return walk_leave(b, m, r);
	case 1:
	case 2:
		return walk_join(b, m, r);
	case 3:
		return walk_pass(b, m, r, m->step + rnd(seed, 3) - 1);
	default:
		return walk_pass(b, m, r, m->step);
	}
}

START_TEST(walk_beside_a_model)
{
	uint64_t seed = 0x9e3779b97f4a7c15ULL + (uint64_t)_i;
	uint32_t start_at = 1 + rnd(&seed, RANKS);
	struct barrier b;
	struct model m = {0};

	ck_assert_int_eq(barrier_init(&b, RANKS, start_at), 0);
	for (int i = 0; i < WALK; i++) {
		bool ok = walk_once(&b, &m, &seed);

		if (rnd(&seed, 4))
			ok = walk_settle(&b, &m, start_at) && ok;
		ck_assert_msg(ok && agrees(&b, &m), "seed %d, round %d", _i, i);
	}
	ck_assert_uint_gt(m.step, 100);
	barrier_fini(&b);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("barrier");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, begins_when_enough_have_joined);
	tcase_add_test(t, completes_when_all_members_passed);
	tcase_add_test(t, who_leaves_is_not_waited_for);
	tcase_add_test(t, a_joiner_waits_for_the_next_step);
	tcase_add_test(t, all_leave_and_one_comes);
	tcase_add_test(t, a_lost_member_is_waited_for);
	tcase_add_test(t, lost_behind_its_barrier);
	tcase_add_test(t, all_are_lost);
	tcase_add_test(t, refuses_what_the_state_does_not_allow);
	tcase_add_loop_test(t, walk_beside_a_model, 0, 8);
	return run_suite("barrier", t);
}

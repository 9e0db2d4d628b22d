/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks of bounded staleness (server/clocks.h): their transitions one by one, and a long
 * random walk beside a model that looks at every member each time.
 */
#include "server/clocks.h"

#include <errno.h>

#include "suite.h"

enum { RANKS = 5, WALK = 100000 };

static void pass_up_to(struct clocks *c, uint32_t rank, uint64_t step)
{
	while (c->ended[rank] < step)
		ck_assert_int_eq(clocks_pass(c, rank, c->ended[rank] + 1), 0);
}

START_TEST(begins_when_enough_have_joined)
{
	struct clocks c;

	ck_assert_int_eq(clocks_init(&c, 3, 2, 1), 0);
	ck_assert_int_eq(clocks_join(&c, 2), 0);
	ck_assert(!c.begun);
	ck_assert_int_eq(clocks_leave(&c, 2), 0);
	ck_assert_int_eq(clocks_join(&c, 0), 0);
	ck_assert(!c.begun);
	ck_assert_int_eq(clocks_join(&c, 1), 0);
	ck_assert(c.begun);
	/* Once: who comes after all have gone waits for nobody. */
	clocks_leave(&c, 0);
	clocks_leave(&c, 1);
	ck_assert_int_eq(clocks_join(&c, 2), 0);
	ck_assert(c.begun);
	clocks_fini(&c);
}
END_TEST

/* With n steps ended, one may go on while n - slowest <= bound. */
START_TEST(the_bound)
{
	uint32_t bound = (uint32_t)_i;
	struct clocks c;

	ck_assert_int_eq(clocks_init(&c, 2, 2, bound), 0);
	clocks_join(&c, 0);
	clocks_join(&c, 1);
	for (uint64_t n = 1; n <= bound; n++) {
		pass_up_to(&c, 0, n);
		ck_assert_uint_eq(clocks_released(&c, 0), n);
	}
	pass_up_to(&c, 0, bound + 1);
	ck_assert_uint_eq(clocks_released(&c, 0), bound);
	ck_assert_uint_eq(clocks_released(&c, 1), 0);
	pass_up_to(&c, 1, 1);
	ck_assert_uint_eq(c.slowest, 1);
	ck_assert_uint_eq(clocks_released(&c, 0), bound + 1);
	ck_assert_uint_eq(clocks_released(&c, 1), 1);
	clocks_fini(&c);
}
END_TEST

START_TEST(the_slowest_leaves)
{
	struct clocks c;

	ck_assert_int_eq(clocks_init(&c, 3, 3, 1), 0);
	for (uint32_t r = 0; r < 3; r++)
		clocks_join(&c, r);
	pass_up_to(&c, 0, 2);
	pass_up_to(&c, 1, 1);
	ck_assert_uint_eq(clocks_released(&c, 0), 1);
	ck_assert_int_eq(clocks_leave(&c, 2), 0);
	ck_assert_uint_eq(c.slowest, 1);
	ck_assert_uint_eq(clocks_released(&c, 0), 2);
	/* Who is not the slowest releases nobody. */
	pass_up_to(&c, 0, 3);
	clocks_leave(&c, 0);
	ck_assert_uint_eq(c.slowest, 1);
	/* With the last one gone time stands still. */
	clocks_leave(&c, 1);
	ck_assert_uint_eq(c.slowest, 1);
	clocks_fini(&c);
}
END_TEST

START_TEST(who_joins_late_is_as_far_as_the_slowest)
{
	struct clocks c;

	ck_assert_int_eq(clocks_init(&c, 3, 1, 2), 0);
	clocks_join(&c, 0);
	pass_up_to(&c, 0, 7);
	clocks_join(&c, 1);
	ck_assert_uint_eq(c.ended[1], 7);
	ck_assert_int_eq(clocks_pass(&c, 1, 1), -EINVAL);
	pass_up_to(&c, 0, 9);
	ck_assert_uint_eq(clocks_released(&c, 0), 9);
	clocks_join(&c, 2);
	ck_assert_uint_eq(c.ended[2], 7);
	/* Its rank's earlier life is forgotten. */
	clocks_leave(&c, 0);
	clocks_join(&c, 0);
	ck_assert_uint_eq(c.ended[0], 7);
	clocks_leave(&c, 0);
	clocks_leave(&c, 1);
	clocks_leave(&c, 2);
	clocks_join(&c, 1);
	ck_assert_uint_eq(c.ended[1], 7);
	clocks_fini(&c);
}
END_TEST

START_TEST(refuses_what_the_state_does_not_allow)
{
	struct clocks c;

	ck_assert_int_eq(clocks_init(&c, 2, 1, 3), 0);
	ck_assert_int_eq(clocks_join(&c, 2), -EINVAL);
	ck_assert_int_eq(clocks_pass(&c, 2, 1), -EINVAL);
	ck_assert_int_eq(clocks_leave(&c, 2), -EINVAL);
	ck_assert_int_eq(clocks_pass(&c, 0, 1), -EINVAL);
	ck_assert_int_eq(clocks_leave(&c, 0), -EINVAL);
	clocks_join(&c, 0);
	ck_assert_int_eq(clocks_join(&c, 0), -EINVAL);
	EXPECT_TEXT("rank 0", "already");
	ck_assert_int_eq(clocks_pass(&c, 0, 0), -EINVAL);
	ck_assert_int_eq(clocks_pass(&c, 0, 2), -EINVAL);
	EXPECT_TEXT("rank 0", "step 2");
	ck_assert_uint_eq(c.members, 1);
	ck_assert_uint_eq(c.ended[0], 0);
	clocks_fini(&c);
}
END_TEST

/* ---- beside a model -------------------------------------------------------------------------- */

struct model {
	bool there[RANKS];
	uint64_t ended[RANKS], slowest;
};

static uint64_t least(const struct model *m)
{
	uint64_t low = UINT64_MAX;

	for (uint32_t r = 0; r < RANKS; r++)
		if (m->there[r] && m->ended[r] < low)
			low = m->ended[r];
	return low == UINT64_MAX ? m->slowest : low;
}

static bool walk_once(struct clocks *c, struct model *m, uint64_t *seed)
{
	uint32_t r = rnd(seed, RANKS), what = rnd(seed, 12);
	bool was = m->there[r];

	if (what == 0) {
		m->there[r] = false;
		return (clocks_leave(c, r) == 0) == was;
	}
	if (what < 3) {
		if (!was)
			m->ended[r] = m->slowest;
		m->there[r] = true;
		return (clocks_join(c, r) == 0) == !was;
	}
	/* A trainer goes on only once it was released; the clocks take any next step. */
	if (was && clocks_released(c, r) < m->ended[r])
		return true;
	m->ended[r] += was;
	return (clocks_pass(c, r, m->ended[r] + !was) == 0) == was;
}

static bool agrees(const struct clocks *c, struct model *m, uint32_t bound)
{
	uint64_t low = least(m);
	bool same = c->slowest == low && low >= m->slowest;

	m->slowest = low;
	for (uint32_t r = 0; r < RANKS && same; r++) {
		uint64_t may = m->ended[r] < low + bound ? m->ended[r] : low + bound;

		same = c->member[r] == m->there[r];
		if (m->there[r])
			same = same && c->ended[r] == m->ended[r] && clocks_released(c, r) == may &&
			       m->ended[r] <= low + bound + 1;
	}
	return same;
}

START_TEST(walk_beside_a_model)
{
	uint64_t seed = 0x9e3779b97f4a7c15ULL + (uint64_t)_i;
	uint32_t bound = rnd(&seed, 6);
	struct model m = {0};
	struct clocks c;

	ck_assert_int_eq(clocks_init(&c, RANKS, 1 + rnd(&seed, RANKS), bound), 0);
	for (int i = 0; i < WALK; i++) {
		bool ok = walk_once(&c, &m, &seed);

		ck_assert_msg(ok && agrees(&c, &m, bound), "seed %d, round %d", _i, i);
	}
	ck_assert_uint_gt(m.slowest, 100);
	clocks_fini(&c);
}
END_TEST

/* One whose session was lost goes on from its own clock; it may have to wait for the slowest again. */
START_TEST(who_returns_goes_on_from_its_own_clock)
{
	struct clocks c;

	ck_assert_int_eq(clocks_init(&c, 3, 2, 2), 0);
	ck_assert_int_eq(clocks_join(&c, 0), 0);
	ck_assert_int_eq(clocks_join(&c, 1), 0);
	for (uint64_t step = 1; step <= 3; step++)
		ck_assert_int_eq(clocks_pass(&c, 0, step), 0);
	ck_assert_int_eq(clocks_leave(&c, 0), 0);
	ck_assert_int_eq(clocks_return(&c, 0), 0);
	ck_assert_int_eq(clocks_return(&c, 0), -EINVAL);
	ck_assert_int_eq(clocks_return(&c, 3), -EINVAL);
	ck_assert_uint_eq(c.ended[0], 3);
	ck_assert_uint_eq(clocks_released(&c, 0), 2); /* the other has ended none */
	clocks_pass(&c, 1, 1);
	ck_assert_uint_eq(clocks_released(&c, 0), 3);
	/* Behind the slowest is nobody: it returns as far as that one. */
	clocks_leave(&c, 1);
	ck_assert_uint_eq(c.slowest, 3);
	ck_assert_int_eq(clocks_return(&c, 1), 0);
	ck_assert_uint_eq(c.ended[1], 3);
	/* Alone again, it is the slowest itself. */
	clocks_pass(&c, 1, 4);
	clocks_pass(&c, 1, 5);
	clocks_leave(&c, 1);
	clocks_leave(&c, 0);
	ck_assert_uint_eq(c.slowest, 3);
	ck_assert_int_eq(clocks_return(&c, 1), 0);
	ck_assert_uint_eq(c.slowest, 5);
	ck_assert_uint_eq(clocks_released(&c, 1), 5);
	clocks_fini(&c);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("clocks");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, begins_when_enough_have_joined);
	tcase_add_loop_test(t, the_bound, 0, 4);
	tcase_add_test(t, the_slowest_leaves);
	tcase_add_test(t, who_returns_goes_on_from_its_own_clock);
	tcase_add_test(t, who_joins_late_is_as_far_as_the_slowest);
	tcase_add_test(t, refuses_what_the_state_does_not_allow);
	tcase_add_loop_test(t, walk_beside_a_model, 0, 8);
	return run_suite("clocks", t);
}

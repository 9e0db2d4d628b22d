/* SPDX-License-Identifier: Apache-2.0
 *
 * The token bucket, which knows no clock but what it is told.
 */
#include "server/bucket.h"

#include "suite.h"

enum { EVERY = 500 };

START_TEST(a_burst_and_no_more)
{
	struct bucket b = {0};

	for (int i = 0; i < 10; i++)
		ck_assert(bucket_take(&b, 1000000, EVERY, 10));
	ck_assert(!bucket_take(&b, 1000000, EVERY, 10));
	/* What was refused cost nothing. */
	ck_assert(!bucket_take(&b, 1000000 + EVERY - 1, EVERY, 10));
	ck_assert(bucket_take(&b, 1000000 + EVERY, EVERY, 10));
	ck_assert(!bucket_take(&b, 1000000 + EVERY, EVERY, 10));
}
END_TEST

START_TEST(the_rate_for_ever)
{
	struct bucket b = {0};
	uint64_t now = 5, taken = 0;

	for (int i = 0; i < 100000; i++, now += EVERY / 2)
		taken += bucket_take(&b, now, EVERY, 7);
	ck_assert_uint_ge(taken, 50000);
	ck_assert_uint_le(taken, 50000 + 7);
}
END_TEST

START_TEST(rest_fills_it_and_no_more)
{
	struct bucket b = {0};
	int taken = 0;

	for (int i = 0; i < 3; i++)
		ck_assert(bucket_take(&b, 100, EVERY, 3));
	while (bucket_take(&b, UINT64_C(1) << 60, EVERY, 3))
		taken++;
	ck_assert_int_eq(taken, 3);
}
END_TEST

/* Who gets an answer to each message, and its token back, may go on as fast as answers come. */
START_TEST(what_is_given_back)
{
	struct bucket b = {0};

	for (int i = 0; i < 1000; i++) {
		ck_assert(bucket_take(&b, 7, EVERY, 1));
		ck_assert(!bucket_take(&b, 7, EVERY, 1));
		bucket_give(&b, EVERY);
	}
	/* Not more than there is room for. */
	bucket_give(&b, EVERY);
	bucket_give(&b, EVERY);
	ck_assert(bucket_take(&b, 7, EVERY, 1));
	ck_assert(!bucket_take(&b, 7, EVERY, 1));
}
END_TEST

START_TEST(the_largest_numbers)
{
	const uint64_t second = 1000000000, most = UINT64_C(1) << 30;
	struct bucket b = {0};

	b.full_at = 100 + (most - 1) * second;
	ck_assert(bucket_take(&b, 100, second, most));
	ck_assert(!bucket_take(&b, 100, second, most));
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("bucket");

	tcase_add_test(t, a_burst_and_no_more);
	tcase_add_test(t, the_rate_for_ever);
	tcase_add_test(t, rest_fills_it_and_no_more);
	tcase_add_test(t, what_is_given_back);
	tcase_add_test(t, the_largest_numbers);
	return run_suite("bucket", t);
}

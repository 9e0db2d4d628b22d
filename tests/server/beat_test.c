/* SPDX-License-Identifier: Apache-2.0
 *
 * Keepalive (server/beat.h): when a beat is due, and when its absence is a silence.
 */
#include "server/beat.h"

#include "suite.h"

enum { LIMIT = 3000, GAP = 1000 };

START_TEST(one_is_under_way_at_a_time)
{
	struct beat b = {0};

	ck_assert(beat_due(&b, 100));
	beat_tried(&b, true, 100);
	ck_assert(!beat_due(&b, 100000));
	beat_ended(&b, GAP, 200);
	ck_assert(!beat_due(&b, 200 + GAP - 1));
	ck_assert(beat_due(&b, 200 + GAP));
}
END_TEST

START_TEST(one_that_does_not_end_is_a_silence)
{
	struct beat b = {0};

	ck_assert(!beat_is_silent(&b, LIMIT, 1 << 30));
	beat_tried(&b, true, 100);
	ck_assert(!beat_is_silent(&b, LIMIT, 100 + LIMIT - 1));
	ck_assert(beat_is_silent(&b, LIMIT, 100 + LIMIT));
	beat_ended(&b, GAP, 100 + LIMIT);
	ck_assert(!beat_is_silent(&b, LIMIT, 1 << 30));
}
END_TEST

/* Counted from the first time that there was none; what got through at last has its own time no more. */
START_TEST(want_of_room_is_a_silence)
{
	struct beat b = {0};

	beat_tried(&b, false, 100);
	ck_assert(beat_due(&b, 101));
	beat_tried(&b, false, 2000);
	beat_tried(&b, true, 3000);
	ck_assert(!beat_due(&b, 3001));
	ck_assert(!beat_is_silent(&b, LIMIT, 100 + LIMIT - 1));
	ck_assert(beat_is_silent(&b, LIMIT, 100 + LIMIT));
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("beat");

	tcase_add_test(t, one_is_under_way_at_a_time);
	tcase_add_test(t, one_that_does_not_end_is_a_silence);
	tcase_add_test(t, want_of_room_is_a_silence);
	return run_suite("beat", t);
}

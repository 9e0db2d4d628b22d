/* SPDX-License-Identifier: Apache-2.0
 *
 * perf/sharing's model of who has a line: which moves it counts, and which of them it calls useless.
 */
#include <check.h>
#include <string.h>

#include "perf/sharing.d/lines.h"
#include "run.h"

enum { A, B, C };

static struct line line;

static void begin(void)
{
	memset(&line, 0, sizeof(line));
}

static void reads(unsigned thread, unsigned offset)
{
	line_touch(&line, thread, line_bytes(offset, 8), false, 1);
}

static void writes(unsigned thread, unsigned offset)
{
	line_touch(&line, thread, line_bytes(offset, 8), true, 2);
}

static void moved(unsigned thread, uint64_t needed, uint64_t useless)
{
	ck_assert_uint_eq(line.use[thread].needed, needed);
	ck_assert_uint_eq(line.use[thread].useless, useless);
}

/* Each write is seen by the other. */
START_TEST(handed_over)
{
	begin();
	for (int i = 0; i < 10; i++) {
		writes(A, 0);
		reads(B, 0);
		reads(B, 0);
	}
	line_end(&line);
	moved(A, 0, 0); /* it has the line still; the others' copies go */
	moved(B, 9, 0); /* but for the first time */
}
END_TEST

/* Two that write side by side. */
START_TEST(false_sharing)
{
	begin();
	for (int i = 0; i < 10; i++) {
		writes(A, 0);
		writes(B, 8);
	}
	line_end(&line);
	moved(A, 0, 9);
	moved(B, 0, 9);
}
END_TEST

/* What is read beside what another writes. */
START_TEST(reader_beside_writer)
{
	begin();
	for (int i = 0; i < 10; i++) {
		reads(A, 56);
		writes(B, 0);
	}
	line_end(&line);
	moved(A, 0, 9);
	moved(B, 0, 0); /* it has the line all the time */
}
END_TEST

/* It came for bytes that had not changed, but before it was lost again what had was used, too. */
START_TEST(used_later)
{
	begin();
	writes(A, 0);
	reads(B, 8);
	writes(A, 0);
	reads(B, 8);
	moved(B, 0, 0);
	reads(B, 0);
	moved(B, 1, 0);
	reads(B, 0);
	line_end(&line);
	moved(B, 1, 0);
}
END_TEST

/* What is new stays new until it is looked at. */
START_TEST(seen_late)
{
	begin();
	reads(B, 0);
	writes(A, 0);
	reads(B, 8); /* useless: it is lost before byte 0 is looked at */
	writes(C, 16);
	reads(B, 0);
	writes(C, 16);
	reads(B, 0); /* useless: that was seen */
	line_end(&line);
	moved(B, 1, 2);
}
END_TEST

/* Who only reads takes nothing away. */
START_TEST(readers)
{
	begin();
	writes(A, 0);
	for (int i = 0; i < 10; i++) {
		reads(A, 0);
		reads(B, 0);
		reads(C, 8);
	}
	line_end(&line);
	moved(A, 0, 0);
	moved(B, 0, 0);
	moved(C, 0, 0);
}
END_TEST

START_TEST(places)
{
	begin();
	for (uintptr_t pc = 1; pc <= LINE_PLACES + 2; pc++)
		line_touch(&line, A, line_bytes(0, 1), false, pc);
	line_touch(&line, A, line_bytes(63, 1), true, 1);
	ck_assert_uint_eq(line.use[A].place[0].pc, 1);
	ck_assert_uint_eq(line.use[A].place[0].n, 2);
	ck_assert_uint_eq(line.use[A].place[0].read, 1);
	ck_assert_uint_eq(line.use[A].place[0].written, UINT64_C(1) << 63);
	ck_assert_uint_eq(line.use[A].elsewhere, 2);
}
END_TEST

START_TEST(bytes)
{
	ck_assert_uint_eq(line_bytes(0, 64), UINT64_MAX);
	ck_assert_uint_eq(line_bytes(0, 1), 1);
	ck_assert_uint_eq(line_bytes(60, 4), UINT64_C(15) << 60);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf sharing");
	TCase *tc = tcase_create("lines");

	tcase_add_test(tc, handed_over);
	tcase_add_test(tc, false_sharing);
	tcase_add_test(tc, reader_beside_writer);
	tcase_add_test(tc, used_later);
	tcase_add_test(tc, seen_late);
	tcase_add_test(tc, readers);
	tcase_add_test(tc, places);
	tcase_add_test(tc, bytes);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	return run_all(runner);
}

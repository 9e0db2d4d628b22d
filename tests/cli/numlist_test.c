/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists and ranges of numbers.
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "cli/numlist.h"
#include "run.h"

static struct numlist sizes(void)
{
	return (struct numlist){
	    .value = {7}, .n = 1, .min = 4, .max = 1 << 30, .multiple = 4, .sizes = true};
}

static struct numlist numbers(void)
{
	return (struct numlist){.value = {7}, .n = 1, .min = 1, .max = 1000};
}

static void expect(struct numlist list, const char *text, unsigned n, const int64_t *values)
{
	ck_assert_msg(numlist_parse(text, &list) == 0, "'%s': %s", text, err_text());
	ck_assert_uint_eq(list.n, n);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(list.value[i], values[i]);
}

START_TEST(accepts)
{
	expect(numbers(), "1", 1, (int64_t[]){1});
	expect(numbers(), "1000,1,1", 3, (int64_t[]){1000, 1, 1});
	expect(numbers(), "3:3", 1, (int64_t[]){3});
	expect(numbers(), "3:24", 4, (int64_t[]){3, 6, 12, 24});
	/* The last that is not too large. */
	expect(numbers(), "3:47", 4, (int64_t[]){3, 6, 12, 24});
	expect(sizes(), "4", 1, (int64_t[]){4});
	expect(sizes(), "4K,1m,1G", 3, (int64_t[]){4096, 1 << 20, 1 << 30});
	expect(sizes(), "1K:4K", 3, (int64_t[]){1024, 2048, 4096});
}
END_TEST

START_TEST(refuses)
{
	static const char *const bad[] = {
	    "",    ",",     "1,",    ",1",  "x", "1 ",   " 1", "-1",     "1:",
	    ":1",  "1:2:4", "1,2:4", "4:2", "0", "1001", "1K", "1:2000", "99999999999999999999",
	    "1;2", "1:2,3"};
	static const char *const bad_sizes[] = {"2",     "6",   "2G",          "4KiB",
						"4K:5G", "4KK", "8589934592T", "K"};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct numlist list = numbers();

		ck_assert_msg(numlist_parse(bad[i], &list) == -EINVAL, "'%s'", bad[i]);
		ck_assert_ptr_nonnull(strstr(err_text(), "1 to 1000"));
		/* Untouched. */
		ck_assert_uint_eq(list.n, 1);
		ck_assert_int_eq(list.value[0], 7);
	}
	for (unsigned i = 0; i < sizeof(bad_sizes) / sizeof(bad_sizes[0]); i++) {
		struct numlist list = sizes();

		ck_assert_msg(numlist_parse(bad_sizes[i], &list) == -EINVAL, "'%s'", bad_sizes[i]);
		ck_assert_ptr_nonnull(strstr(err_text(), "multiples of 4"));
	}
}
END_TEST

START_TEST(holds_so_many)
{
	char text[4 * NUMLIST_MAX + 8] = "1";
	struct numlist list = numbers();

	for (unsigned i = 1; i < NUMLIST_MAX; i++)
		strcat(text, ",2");
	ck_assert_int_eq(numlist_parse(text, &list), 0);
	ck_assert_uint_eq(list.n, NUMLIST_MAX);
	strcat(text, ",3");
	ck_assert_int_eq(numlist_parse(text, &list), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("numlist");
	TCase *tc = tcase_create("numlist");

	tcase_add_test(tc, accepts);
	tcase_add_test(tc, refuses);
	tcase_add_test(tc, holds_so_many);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	return run_all(runner);
}

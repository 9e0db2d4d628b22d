/* SPDX-License-Identifier: Apache-2.0
 *
 * Picking the instruction set, by name and by GRADSLOT_ISA. Each test runs in a process of its own,
 * in which nothing has been picked yet.
 */
#include "suites.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/kern.h"

START_TEST(names)
{
	ck_assert_str_eq(kern_isa_at(0), "baseline");
#if defined(__x86_64__)
	ck_assert_str_eq(kern_isa_at(1), "avx2");
	ck_assert_str_eq(kern_isa_at(2), "avx512");
#endif
	ck_assert_ptr_null(kern_isa_at(100));
}
END_TEST

START_TEST(by_name)
{
	ck_assert_int_eq(kern_isa_use("baseline"), 0);
	ck_assert_str_eq(kern_isa(), "baseline");
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2")) {
		ck_assert_int_eq(kern_isa_use("avx2"), 0);
		ck_assert_str_eq(kern_isa(), "avx2");
	} else {
		ck_assert_int_eq(kern_isa_use("avx2"), -ENOTSUP);
		ck_assert_ptr_nonnull(strstr(err_text(), "this CPU lacks it; it has baseline"));
		ck_assert_str_eq(kern_isa(), "baseline");
	}
#endif
}
END_TEST

START_TEST(by_environment)
{
	setenv("GRADSLOT_ISA", "baseline", 1);
	ck_assert_int_eq(kern_isa_use(NULL), 0);
	ck_assert_str_eq(kern_isa(), "baseline");
}
END_TEST

START_TEST(widest_by_default)
{
	const char *widest = "baseline";

#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
		widest = "avx2";
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
		widest = "avx512";
#endif
	if (_i)
		setenv("GRADSLOT_ISA", "", 1);
	else
		unsetenv("GRADSLOT_ISA");
	ck_assert_str_eq(kern_isa(), widest);
}
END_TEST

START_TEST(unknown_is_an_error)
{
	ck_assert_int_eq(kern_isa_use("baseline"), 0);
	setenv("GRADSLOT_ISA", "sse9", 1);
	ck_assert_int_eq(kern_isa_use(NULL), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "GRADSLOT_ISA \"sse9\": unknown; there are base"));
	ck_assert_int_eq(kern_isa_use("AVX2"), -EINVAL);
	ck_assert_str_eq(kern_isa(), "baseline");
}
END_TEST

/* No silent fallback, also when the program never asked. */
START_TEST(unknown_ends_the_first_apply)
{
	const struct kern_opt o = {.value = {1}};
	float w = 1, g = 1;
	const float *const grads[] = {&g};

	setenv("GRADSLOT_ISA", "sse9", 1);
	kern_apply_mean(&o, 1, &w, NULL, grads, 1, 1);
}
END_TEST

Suite *isa_suite(void)
{
	Suite *suite = suite_create("instruction sets");
	TCase *tc = tcase_create("pick");

	tcase_add_test(tc, names);
	tcase_add_test(tc, by_name);
	tcase_add_test(tc, by_environment);
	tcase_add_loop_test(tc, widest_by_default, 0, 2);
	tcase_add_test(tc, unknown_is_an_error);
	tcase_add_test_raise_signal(tc, unknown_ends_the_first_apply, SIGABRT);
	suite_add_tcase(suite, tc);
	return suite;
}

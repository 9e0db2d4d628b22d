/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinning OpenBLAS's kernel: this program was started again by its main, if need be.
 */
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "demo/pin.h"
#include "kernels/kern.h"

START_TEST(pinned_here)
{
	if (!demo_blas_pin()[0])
		return;
	ck_assert_str_eq(getenv("OPENBLAS_CORETYPE"), demo_blas_pin());
	ck_assert_int_eq(strcasecmp(kern_gemm_core(), demo_blas_pin()), 0);
}
END_TEST

/* Runs this program, to print its kernel, in an environment with OPENBLAS_CORETYPE as given. */
static void core_of_child(const char *core, char *out, size_t size)
{
	int fds[2], status;
	pid_t pid;
	ssize_t n;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (core)
			setenv("OPENBLAS_CORETYPE", core, 1);
		else
			unsetenv("OPENBLAS_CORETYPE");
		dup2(fds[1], STDOUT_FILENO);
		execl("/proc/self/exe", "demo", PRINT_CORE, (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	n = read(fds[0], out, size - 1);
	ck_assert_int_gt(n, 0);
	out[strcspn(out, "\n")] = 0;
	close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

START_TEST(from_any_start)
{
	static const char *const cores[] = {NULL, "Prescott", "SkylakeX", "nonsense", ""};
	char got[64] = "";

	if (!demo_blas_pin()[0])
		return;
	core_of_child(cores[_i], got, sizeof(got));
	ck_assert_str_eq(got, demo_blas_pin());
}
END_TEST

Suite *pin_suite(void)
{
	Suite *suite = suite_create("pin");
	TCase *tc = tcase_create("pin");

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, pinned_here);
	tcase_add_loop_test(tc, from_any_start, 0, 5);
	suite_add_tcase(suite, tc);
	return suite;
}

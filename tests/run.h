/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of each test program's main.
 */
#ifndef GS_TESTS_RUN_H
#define GS_TESTS_RUN_H

#include <check.h>

/* Runs what the runner holds, frees it, gives the exit status. CK_VERBOSITY and CK_RUN_CASE hold. */
static inline int run_all(SRunner *runner)
{
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

#endif

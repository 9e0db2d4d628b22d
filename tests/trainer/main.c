/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the trainer's suites; with "unmapped", as if remotes could not be mapped.
 */
#include "fake.h"

#include <stdlib.h>
#include "run.h"

int main(int argc, char **argv)
{
	fake_unmapped = argc > 1 && strcmp(argv[1], "unmapped") == 0;
	SRunner *runner = srunner_create(grant_suite());

	srunner_add_suite(runner, connect_suite());
	srunner_add_suite(runner, access_suite());
	srunner_add_suite(runner, start_suite());
	srunner_add_suite(runner, push_suite());
	srunner_add_suite(runner, push_many_suite());
	srunner_add_suite(runner, pull_suite());
	srunner_add_suite(runner, step_pull_suite());
	srunner_add_suite(runner, rows_suite());
	srunner_add_suite(runner, hostile_suite());
	srunner_add_suite(runner, threads_suite());
	srunner_add_suite(runner, kept_suite());
	srunner_add_suite(runner, reconnect_suite());
	srunner_add_suite(runner, silence_suite());
	srunner_add_suite(runner, checkpoint_suite());
	return run_all(runner);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the kernels' suites.
 */
#include "suites.h"
#include "run.h"

int main(void)
{
	SRunner *runner = srunner_create(opt_suite());

	srunner_add_suite(runner, dtype_suite());
	srunner_add_suite(runner, merge_suite());
	srunner_add_suite(runner, loops_suite());
	srunner_add_suite(runner, rules_suite());
	srunner_add_suite(runner, isa_suite());
	srunner_add_suite(runner, init_suite());
	srunner_add_suite(runner, exact_suite());
	srunner_add_suite(runner, rmath_suite());
	srunner_add_suite(runner, schedule_suite());
	srunner_add_suite(runner, gemm_suite());
	return run_all(runner);
}

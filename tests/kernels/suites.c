/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the kernels' suites.
 */
#include "suites.h"
#include "run.h"

#include "kernels/kern.h"

void each_isa(void (*visit)(void))
{
	unsigned ran = 0;

	for (unsigned i = 0; kern_isa_at(i); i++) {
		if (kern_isa_use(kern_isa_at(i)))
			continue;
		ran++;
		visit();
	}
	ck_assert_uint_ge(ran, 1);
}

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

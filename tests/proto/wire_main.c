/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the codec's suites.
 */
#include "wire_samples.h"
#include "run.h"

int main(void)
{
	SRunner *runner = srunner_create(wire_suite());

	srunner_add_suite(runner, wire_hostile_suite());
	return run_all(runner);
}

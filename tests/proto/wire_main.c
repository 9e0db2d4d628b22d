/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the codec's suites.
 */
#include "wire_samples.h"

int main(void)
{
	SRunner *runner = srunner_create(wire_suite());

	srunner_add_suite(runner, wire_hostile_suite());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the demo's suites, with the pinned matrix kernel.
 */
#include "suites.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "demo/pin.h"
#include "kernels/kern.h"
#include "run.h"

int main(int argc, char **argv)
{
	if (demo_pin_blas(argv)) {
		fprintf(stderr, "%s\n", err_text());
		return 1;
	}
	if (argc > 1 && !strcmp(argv[1], PRINT_CORE))
		return puts(kern_gemm_core()) < 0;

	SRunner *runner = srunner_create(digits_suite());

	srunner_add_suite(runner, mlp_suite());
	srunner_add_suite(runner, single_suite());
	srunner_add_suite(runner, optimizer_suite());
	srunner_add_suite(runner, pin_suite());
	srunner_add_suite(runner, words_text_suite());
	srunner_add_suite(runner, words_feed_suite());
	srunner_add_suite(runner, words_model_suite());
	srunner_add_suite(runner, words_single_suite());
	return run_all(runner);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels' suites, and what several of them use.
 */
#ifndef GS_TESTS_KERNELS_SUITES_H
#define GS_TESTS_KERNELS_SUITES_H

#include <check.h>

Suite *opt_suite(void);
Suite *dtype_suite(void);
Suite *merge_suite(void);
Suite *loops_suite(void);
Suite *rules_suite(void);
Suite *isa_suite(void);
Suite *init_suite(void);
Suite *exact_suite(void);
Suite *rmath_suite(void);
Suite *schedule_suite(void);
Suite *gemm_suite(void);

/* Calls visit for each instruction set that this CPU has, with that one in use. */
void each_isa(void (*visit)(void));

#endif

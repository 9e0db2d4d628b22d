/* SPDX-License-Identifier: Apache-2.0
 *
 * The demo's suites.
 */
#ifndef GS_TESTS_DEMO_SUITES_H
#define GS_TESTS_DEMO_SUITES_H

#include <check.h>

/* Makes this program print the matrix kernel that it ends up with, and no more. */
#define PRINT_CORE "print-core"

Suite *digits_suite(void);
Suite *mlp_suite(void);
Suite *single_suite(void);
Suite *pin_suite(void);
Suite *optimizer_suite(void);
Suite *words_text_suite(void);
Suite *words_feed_suite(void);
Suite *words_model_suite(void);
Suite *words_single_suite(void);

#endif

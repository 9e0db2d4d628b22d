/* SPDX-License-Identifier: Apache-2.0
 *
 * The script in force, and whether it acts now.
 */
#ifndef GS_TESTS_FAULTS_RULES_H
#define GS_TESTS_FAULTS_RULES_H

#include "faults.h"

/* The point was reached: counts it. */
void rules_reached(enum fault_point at);
/* Whether `action` is to happen at `at`, which has been reached: the rule that says so, or NULL. */
const struct fault_rule *rules_fire(enum fault_action action, enum fault_point at);
/* From 0 to below - 1, from this thread's numbers. */
uint32_t rules_draw(uint32_t below);
/* Whether the script has rules at all. */
bool rules_any(void);
bool rules_noimm(void);
uint32_t rules_chunk(void);
/* SIGKILLs this process if the script says so. */
void rules_kill(enum fault_point at);
/* Sleeps if the script delays calls here. */
void rules_delay_call(enum fault_point at);
/* A negative errno with a text if the script has the call fail, else 0. */
int rules_fail(enum fault_point at);
/* All of these for a call, in that order. */
int rules_call(enum fault_point at);

#endif

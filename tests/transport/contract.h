/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the contract's tests.
 */
#ifndef TESTS_TRANSPORT_CONTRACT_H
#define TESTS_TRANSPORT_CONTRACT_H

#include <check.h>

TCase *connect_tests(void);
TCase *message_tests(void);
TCase *data_tests(void);
TCase *queue_tests(void);
TCase *death_tests(void);
TCase *wake_tests(void);

#endif

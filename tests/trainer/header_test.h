/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GS_TESTS_TRAINER_HEADER_TEST_H
#define GS_TESTS_TRAINER_HEADER_TEST_H

int header_in_c(void);

#endif

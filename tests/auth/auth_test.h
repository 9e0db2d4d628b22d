/* SPDX-License-Identifier: Apache-2.0
 *
 * What the key's and the proofs' tests share.
 */
#ifndef GS_TESTS_AUTH_TEST_H
#define GS_TESTS_AUTH_TEST_H

#include <check.h>
#include <stddef.h>

#include "auth/auth.h"

/* A new file, in a directory that goes when the tests end, with these bytes and this mode. */
const char *a_file(const void *bytes, size_t len, unsigned mode);

TCase *key_case(void);

#endif

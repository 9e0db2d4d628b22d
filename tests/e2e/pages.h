/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the program's that becomes other memory at the same place.
 */
#ifndef GS_TESTS_E2E_PAGES_H
#define GS_TESTS_E2E_PAGES_H

#include <stddef.h>

/* Fresh pages: over what is at `at`, or, of NULL, anywhere. */
float *pages_map(void *at, size_t bytes);

/* Ways in which it changes; the last leaves it as it is. */
enum { PAGES_CHANGES = 5 };
/* Where it is then. */
float *pages_change(int how, float *mem, size_t bytes);

#endif

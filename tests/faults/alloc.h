/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes one allocation fail: the n-th of memory, mappings, descriptors of this process's own, or
 * threads, that the program and its static libraries ask for (gs_allocs(TARGET); the linker's
 * --wrap, so shared libraries are left alone).
 */
#ifndef GS_TESTS_FAULTS_ALLOC_H
#define GS_TESTS_FAULTS_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* Starts to count from 0; the n-th fails. 0: none does. */
void alloc_fail_at(uint64_t n);
uint64_t alloc_count(void);
/* What failed, such as "calloc"; NULL: nothing did. */
const char *alloc_failed(void);
/* The calling thread's allocations are not counted meanwhile: a test's own. */
void alloc_exempt(bool exempt);

#endif

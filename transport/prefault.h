/* SPDX-License-Identifier: Apache-2.0
 *
 * Touching memory before it is used.
 */
#ifndef GS_TRANSPORT_PREFAULT_H
#define GS_TRANSPORT_PREFAULT_H

#include <stddef.h>

/* Gives every page of [base, base + size), shared memory that is all zero, its memory. A large one is
 * touched by as many threads as the caller may use CPUs; they have the caller's memory policy. Errors:
 * madvise's, negated, without a text. */
int tp_prefault(void *base, size_t size);

#endif

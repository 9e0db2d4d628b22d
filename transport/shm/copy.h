/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving bytes between this process and a mapped remote.
 */
#ifndef GS_TRANSPORT_SHM_COPY_H
#define GS_TRANSPORT_SHM_COPY_H

#include <stddef.h>

/* Writes to a remote. Aligned 4 and 8 bytes are one store with release order; a longer write is
 * complete for whoever sees a release made after it by this thread. Nothing is copied when both
 * are one address; overlaps are allowed. */
void shm_copy_out(void *remote, const void *local, size_t len);

/* Reads from a remote. Aligned 4 and 8 bytes are one load with acquire order; two calls by one
 * thread read in their order. */
void shm_copy_in(void *local, const void *remote, size_t len);

#endif

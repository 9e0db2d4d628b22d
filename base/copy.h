/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying much, past the caches.
 */
#ifndef GS_BASE_COPY_H
#define GS_BASE_COPY_H

#include <stddef.h>

/* memcpy whose stores go around the caches, where the processor can: what is written need not be read
 * first, and nothing else is pushed out. Whoever reads it next finds it in memory. Other threads see the
 * bytes in the order of any other store that follows. */
void copy_streaming(void *to, const void *from, size_t len);

#endif

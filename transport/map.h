/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping a memfd so that huge pages can be used: at an address aligned to them.
 */
#ifndef GS_TRANSPORT_MAP_H
#define GS_TRANSPORT_MAP_H

#include <stddef.h>

#define MAP_HUGE_BYTES ((size_t)2 << 20)

/* Maps `size` bytes of `fd`, shared, with `prot`; from 2 MiB on at a multiple of 2 MiB. Errors:
 * the errno of mmap, negated, without a text. */
int tp_map(int fd, size_t size, int prot, void **out);
void tp_unmap(void *base, size_t size);
/* How much of the mapping that begins at `base`, of a memfd, is in transparent huge pages. Slow. */
size_t tp_huge_bytes(const void *base);

#endif

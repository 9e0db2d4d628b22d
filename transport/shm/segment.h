/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a connection: a sealed memfd that the listener makes and the connector checks.
 */
#ifndef GS_TRANSPORT_SHM_SEGMENT_H
#define GS_TRANSPORT_SHM_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes one for `depth` and maps it; *fd is to be passed on and closed. */
int segment_create(uint32_t depth, int *fd, void **out);
/* Maps the peer's, once it is known that it can't shrink under the mapping. -EPROTO otherwise. */
int segment_open(int fd, uint32_t depth, uint64_t size, void **out);
void segment_unmap(void *segment, uint32_t depth);

/* Checks that a descriptor of the peer's is a memfd that holds `size` bytes and always will.
 * Returns its seals, or -EPROTO with a text. */
int segment_check_sealed(int fd, uint64_t size);
/* Whether its pages come from the pool of huge pages, where a fault can find none left. */
bool segment_is_hugetlb(int fd);

#endif

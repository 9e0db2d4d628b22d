/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON header of a safetensors file, apart from files: text to tensors and back. Private to
 * store/ (and the tests).
 *
 * A file is: the header's length N, 64 bits little-endian; N bytes of JSON, the first of them '{',
 * spaces at the end allowed; the data. The JSON maps each tensor's name to its type, shape and
 * data_offsets [begin, end), which count from the data's start, and "__metadata__" to an object of
 * texts. Laid one after the other the tensors fill the data, without a hole and without overlap.
 */
#ifndef GS_STORE_HEADER_H
#define GS_STORE_HEADER_H

#include <jansson.h>
#include <stdbool.h>

#include "store/store.h"

#define HEADER_MAX UINT64_C(100000000) /* as the reference implementation has it */

struct header {
	uint32_t n;
	struct store_tensor *tensor; /* in the order of their data; `data` is NULL */
	json_t *meta;                /* of texts; or NULL */
};

/* `data_len`: what follows the header in the file. Errors: -EBADMSG, -ENOMEM. */
int header_parse(const char *text, size_t len, uint64_t data_len, struct header *out);

/* Checks the tensors and lays them out: `out` has them in the order of their data.
 *
 * The ones whose length can be divided by 8 come first, then those by 4, by 2, and the rest, each
 * kind in the order given. So every tensor is aligned to the greatest power of two, up to 8, that
 * divides its length, which is its element's size at least, with no hole.
 * Errors: -EINVAL, -ENOMEM. */
int header_layout(const struct store_tensor *tensor, uint32_t n, struct header *out);

/* As text, padded with spaces to a multiple of 8; to be given to free(3).
 * Errors: -EINVAL (too long, a name that is not UTF-8), -ENOMEM. */
int header_print(const struct header *h, char **text, size_t *len);

void header_free(struct header *h);

/* elements times their size; false when that is more than a file can have. */
bool header_bytes(enum store_dtype dtype, uint32_t ndim, const uint64_t *dim, uint64_t *bytes);

/* The numbers 0 .. n-1 sorted by the tensors' names, for finding them. NULL: no memory. */
uint32_t *header_index(const struct store_tensor *tensor, uint32_t n);

#endif

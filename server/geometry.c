/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting parameters into blocks, and packing small ones.
 */
#include "server/geometry.h"

#include <errno.h>
#include <inttypes.h>

#include "base/err.h"

int geometry_cut(uint32_t ndim, const uint64_t *dim, uint64_t block_bytes, uint64_t max_blocks,
		 struct geometry *out)
{
	uint64_t row = 1, elems, per_block, blocks;

	for (uint32_t i = 1; i < ndim; i++)
		row *= dim[i];
	elems = row * dim[0];
	per_block = block_bytes / sizeof(float) / row * row;
	if (per_block == 0)
		per_block = row;
	if (per_block * sizeof(float) > GEOMETRY_MAX_BLOCK_BYTES)
		return err_set(EINVAL,
			       "a row of %" PRIu64 " elements is %" PRIu64
			       " bytes, the longest block is %llu: reshape it to shorter rows",
			       row, (uint64_t)(per_block * sizeof(float)),
			       GEOMETRY_MAX_BLOCK_BYTES);
	if (per_block > elems)
		per_block = elems;
	blocks = (elems + per_block - 1) / per_block;
	if (blocks > max_blocks)
		return err_set(EINVAL,
			       "%" PRIu64 " elements in blocks of %" PRIu64 " make %" PRIu64
			       " blocks, %" PRIu64 " are left: raise --block-size",
			       elems, per_block, blocks, max_blocks);
	*out = (struct geometry){elems, per_block, (uint32_t)blocks};
	return 0;
}

uint64_t geometry_wired_block(uint64_t block_bytes, uint64_t bytes)
{
	/* Whole pages: what blocks share no line of. */
	uint64_t quarter = (bytes / 4 + 4095) / 4096 * 4096;

	if (quarter < GEOMETRY_WIRED_BYTES)
		quarter = GEOMETRY_WIRED_BYTES;
	return quarter < block_bytes ? quarter : block_bytes;
}

uint64_t geometry_block_elems(const struct geometry *g, uint32_t index)
{
	return index + 1 < g->blocks ? g->block_elems
				     : g->elems - (uint64_t)index * g->block_elems;
}

/* How many from `first` on go together. */
static uint32_t pack_len(const uint64_t *bytes, uint32_t first, uint32_t n)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = first; i < n && i - first < GEOMETRY_PACK_MAX; i++) {
		if (!bytes[i] || bytes[i] > GEOMETRY_PACKED_BYTES ||
		    sum + bytes[i] > GEOMETRY_PACK_BYTES)
			break;
		sum += bytes[i];
	}
	return i - first;
}

uint32_t geometry_pack(const uint64_t *bytes, uint32_t n, uint32_t max, uint32_t *pack)
{
	uint32_t packs = 0;

	for (uint32_t i = 0, len; i < n; i += len ? len : 1) {
		uint32_t number = 0;

		len = pack_len(bytes, i, n);
		if (len > 1 && packs < max)
			number = ++packs;
		pack[i] = 0;
		for (uint32_t k = 0; k < len; k++)
			pack[i + k] = number;
	}
	return packs;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The types of a tensor's elements, as the format names them.
 */
#include "store/store.h"

static const struct {
	const char *name;
	uint8_t size;
} dtypes[STORE_DTYPES] = {
    [STORE_F64] = {"F64", 8},   [STORE_F32] = {"F32", 4}, [STORE_F16] = {"F16", 2},
    [STORE_BF16] = {"BF16", 2}, [STORE_I64] = {"I64", 8}, [STORE_I32] = {"I32", 4},
    [STORE_I16] = {"I16", 2},   [STORE_I8] = {"I8", 1},   [STORE_U64] = {"U64", 8},
    [STORE_U32] = {"U32", 4},   [STORE_U16] = {"U16", 2}, [STORE_U8] = {"U8", 1},
    [STORE_BOOL] = {"BOOL", 1},
};

const char *store_dtype_name(enum store_dtype dtype)
{
	return (unsigned)dtype < STORE_DTYPES ? dtypes[dtype].name : "unknown";
}

uint64_t store_dtype_size(enum store_dtype dtype)
{
	return (unsigned)dtype < STORE_DTYPES ? dtypes[dtype].size : 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of named tensors, in the safetensors format (huggingface.co/docs/safetensors), mapped: what
 * other programs wrote is read with every bound checked, and what is written here is written into
 * the mapped file by whoever has the data.
 *
 * Threads: one uses a file at a time; the data of different tensors may be touched by different
 * ones. Errors: negative errno, with the text in err_text(). Outputs are untouched on failure.
 */
#ifndef GS_STORE_STORE_H
#define GS_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_NAME_MAX 255u
#define STORE_DIMS_MAX 8u

enum store_dtype {
	STORE_F64,
	STORE_F32,
	STORE_F16,
	STORE_BF16,
	STORE_I64,
	STORE_I32,
	STORE_I16,
	STORE_I8,
	STORE_U64,
	STORE_U32,
	STORE_U16,
	STORE_U8,
	STORE_BOOL,
	STORE_DTYPES,
};

struct store_tensor {
	char name[STORE_NAME_MAX + 1];
	enum store_dtype dtype;
	uint32_t ndim; /* 0: a scalar */
	uint64_t dim[STORE_DIMS_MAX];
	void *data; /* in the mapped file: read-only of one that was opened. In a file of ours it is
		     * aligned to its elements, and to the greatest power of two, up to 8, that
		     * divides `len`; at any address else */
	uint64_t len; /* bytes */
};

struct store_file;

/* "F32" and so on; bytes of an element. */
const char *store_dtype_name(enum store_dtype dtype);
uint64_t store_dtype_size(enum store_dtype dtype);

/* Opens a safetensors file: its header is parsed, and every tensor's type, shape, length and place
 * checked, before anything is handed out. A file that is changed or cut by somebody meanwhile may
 * raise SIGBUS, as mapped files do.
 * Errors: -ENOENT, -EACCES and what else open(2) gives; -EBADMSG (not a sound file: the text has
 * the path, and what is wrong where), -ENOMEM. */
int store_open(const char *path, struct store_file **out);
uint32_t store_count(const struct store_file *file);
/* In the order of their data. */
const struct store_tensor *store_at(const struct store_file *file, uint32_t i);
/* NULL when there is none. */
const struct store_tensor *store_find(const struct store_file *file, const char *name);
/* A value of the header's __metadata__; NULL when there is none. */
const char *store_metadata(const struct store_file *file, const char *key);
/* The i-th pair of it, upwards from 0; false past the last. */
bool store_metadata_at(const struct store_file *file, uint32_t i, const char **key,
		       const char **value);
const char *store_path(const struct store_file *file);
uint64_t store_size(const struct store_file *file);
/* Of the whole file: XXH3, 128 bits, the low word first. Reads it all, through the mapping: a disk
 * that can't be read raises SIGBUS, too. */
void store_hash(const struct store_file *file, uint64_t hash[2]);

/* Creates `path` (-EEXIST if it is there), with room on disk for all of it, and maps it for
 * writing. Of each tensor name, dtype and shape are given. The format allows no holes between
 * tensors, so for the sake of alignment they lie in another order: those whose length 8 divides
 * come first, then 4, 2, 1; store_at has that order, store_find finds each. On failure no file is
 * left. `meta`: n_meta pairs key, value of __metadata__. Errors: -EINVAL (a name that is there
 * twice, empty, too long, not UTF-8, or "__metadata__", which the format has for itself; a size),
 * -EOPNOTSUPP (the file system can't set space aside), -ENOSPC, -EIO and what else open(2) and
 * posix_fallocate(3) give. */
int store_create(const char *path, const struct store_tensor *tensor, uint32_t n,
		 const char *const (*meta)[2], uint32_t n_meta, struct store_file **out);
/* Writes it to the disk (fsync). -EIO, -ENOSPC: it is not sound. */
int store_sync(struct store_file *file);
/* Unmaps and closes. NULL is allowed. A created one stays on disk as it is. */
void store_close(struct store_file *file);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint to test with, a directory to have it in, and bytes of files. Every function fails
 * the test when it can't do its work.
 */
#ifndef GS_TESTS_STORE_SAMPLES_H
#define GS_TESTS_STORE_SAMPLES_H

#include "store/checkpoint.h"

/* A new directory, removed with all that is in it by sample_clean. */
const char *sample_dir(void);
void sample_clean(void);
/* "DIR/name"; good for the next 63 calls. */
const char *in_dir(const char *dir, const char *name);

struct bytes {
	uint8_t *b;
	size_t n;
};

struct bytes file_read(const char *path); /* b: malloc'ed */
void file_write(const char *path, const void *b, size_t n);
bool file_exists(const char *path);
/* How many names there are in it. */
unsigned dir_entries(const char *path);

/* Three parameters: dense, table, hashed; and their checkpoint_manifest. */
enum { SAMPLE_PARAMS = 3, SAMPLE_STATES = 4 };
extern const struct store_tensor sample_weights[SAMPLE_PARAMS], sample_states[SAMPLE_STATES];
struct checkpoint_manifest sample_manifest(uint64_t step);

/* Bytes that depend on the seed, the name and the place. */
void sample_fill(struct store_file *file, uint64_t seed);
bool sample_holds(const struct store_file *file, uint64_t seed);

/* A checkpoint whose step and data are of `seed`; 0 or what failed. */
int sample_write(const char *dir, uint64_t seed, uint32_t keep, uint64_t *number);
/* It is the one of `seed`, whole. */
void sample_check(const struct checkpoint *c, uint64_t seed);

#endif

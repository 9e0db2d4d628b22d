/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint to test with.
 */
#include "store_samples.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

/* ---- directories and files ------------------------------------------------------------------- */

static char top[128];

const char *sample_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(top, sizeof(top), "%s/gradslot-store-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(top));
	return top;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	return remove(path);
}

void sample_clean(void)
{
	nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *in_dir(const char *dir, const char *name)
{
	static char buf[64][512];
	static unsigned next;
	char *at = buf[next++ % 64];

	snprintf(at, sizeof(buf[0]), "%s/%s", dir, name);
	return at;
}

struct bytes file_read(const char *path)
{
	FILE *f = fopen(path, "re");
	struct bytes got = {0};

	ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
	fseek(f, 0, SEEK_END);
	got.n = (size_t)ftell(f);
	rewind(f);
	got.b = malloc(got.n + 1);
	ck_assert_uint_eq(fread(got.b, 1, got.n, f), got.n);
	fclose(f);
	return got;
}

void file_write(const char *path, const void *b, size_t n)
{
	FILE *f = fopen(path, "we");

	ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
	ck_assert_uint_eq(fwrite(b, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

bool file_exists(const char *path)
{
	return access(path, F_OK) == 0;
}

unsigned dir_entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	ck_assert_msg(dir != NULL, "%s: %s", path, strerror(errno));
	for (const struct dirent *e; (e = readdir(dir));)
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	closedir(dir);
	return n;
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

const struct store_tensor sample_weights[SAMPLE_PARAMS] = {
    {.name = "layer/../w", .dtype = STORE_F32, .ndim = 2, .dim = {7, 5}},
    {.name = "words", .dtype = STORE_F32, .ndim = 2, .dim = {6, 4}},
    {.name = "hashed", .dtype = STORE_F32, .ndim = 2, .dim = {3, 4}},
};

const struct store_tensor sample_states[SAMPLE_STATES] = {
    {.name = "layer/../w.state.0", .dtype = STORE_F32, .ndim = 2, .dim = {7, 5}},
    {.name = "layer/../w.updates", .dtype = STORE_U64, .ndim = 1, .dim = {4}},
    {.name = "hashed.keys", .dtype = STORE_U64, .ndim = 1, .dim = {3}},
    {.name = "hashed.used", .dtype = STORE_U8, .ndim = 1, .dim = {3}},
};

static struct checkpoint_param params[SAMPLE_PARAMS] = {
    {.decl = {.name = "layer/../w",
	      .ndim = 2,
	      .dim = {7, 5},
	      .rule = "adam",
	      .n_settings = 2,
	      .setting = {{"lr", 0.1}, {"beta1", 1.0 / 3}},
	      .init = WIRE_INIT_TRAINER,
	      .schedule = "cosine warmup=10 \"x\\y\"\n",
	      .grad_type = WIRE_BF16,
	      .reduce = WIRE_WEIGHTED,
	      .nonfinite = WIRE_NONFINITE_SKIP},
     .rate = 0.1,
     .block_elems = 10,
     .blocks = 4,
     .updates = 77},
    {.decl = {.name = "words",
	      .ndim = 2,
	      .dim = {6, 4},
	      .rule = "adagrad",
	      .init = WIRE_INIT_UNIFORM,
	      .init_a = -0.5,
	      .init_b = 5e-324,
	      .init_seed = UINT64_MAX,
	      .storage = WIRE_TABLE,
	      .slot_rows = 2,
	      .push_rows = 4,
	      .pull_rows = 6},
     .rate = 1e-300,
     .block_elems = 24,
     .blocks = 1,
     .updates = UINT64_MAX},
    {.decl = {.name = "hashed",
	      .ndim = 2,
	      .dim = {1000, 4},
	      .rule = "sgd",
	      .init = WIRE_INIT_CONSTANT,
	      .init_a = -0.0,
	      .weight_type = WIRE_F16,
	      .storage = WIRE_HASHED,
	      .slot_rows = 1,
	      .push_rows = 1,
	      .pull_rows = 1,
	      .admit_after = UINT32_MAX,
	      .evict_after = UINT64_MAX - 1},
     .block_elems = 4000,
     .blocks = 1,
     .updates = (UINT64_C(1) << 53) - 1},
};

struct checkpoint_manifest sample_manifest(uint64_t step)
{
	return (struct checkpoint_manifest){.format = CHECKPOINT_FORMAT,
					    .number = 1,
					    .written = 1700000000,
					    .mode = WIRE_SSP,
					    .staleness = 3,
					    .step = step,
					    .trainers = 2,
					    .server = UINT64_C(0xfedcba9876543210),
					    .weights = {1, {0, 1}},
					    .state = {1, {1, UINT64_MAX}},
					    .params = SAMPLE_PARAMS,
					    .param = params};
}

static uint8_t byte_of(const struct store_tensor *t, uint64_t seed, uint64_t i)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u + (uint8_t)t->name[0];

	return (uint8_t)((x ^ x >> 29) * 0x94d049bb133111ebu >> 56);
}

void sample_fill(struct store_file *file, uint64_t seed)
{
	for (uint32_t i = 0; i < store_count(file); i++) {
		const struct store_tensor *t = store_at(file, i);

		for (uint64_t k = 0; k < t->len; k++)
			((uint8_t *)t->data)[k] = byte_of(t, seed, k);
	}
}

bool sample_holds(const struct store_file *file, uint64_t seed)
{
	for (uint32_t i = 0; i < store_count(file); i++) {
		const struct store_tensor *t = store_at(file, i);

		for (uint64_t k = 0; k < t->len; k++) {
			if (((const uint8_t *)t->data)[k] != byte_of(t, seed, k))
				return false;
		}
	}
	return true;
}

int sample_write(const char *dir, uint64_t seed, uint32_t keep, uint64_t *number)
{
	struct checkpoint_manifest m = sample_manifest(seed);
	struct checkpoint_writer *w;
	int rc =
	    checkpoint_begin(dir, sample_weights, SAMPLE_PARAMS, sample_states, SAMPLE_STATES, &w);

	if (rc < 0)
		return rc;
	sample_fill(checkpoint_weights(w), seed);
	sample_fill(checkpoint_state(w), seed);
	return checkpoint_commit(w, &m, keep, number);
}

void sample_check(const struct checkpoint *c, uint64_t seed)
{
	ck_assert_uint_eq(checkpoint_manifest(c)->step, seed);
	ck_assert_uint_eq(store_count(checkpoint_weights_of(c)), SAMPLE_PARAMS);
	ck_assert_uint_eq(store_count(checkpoint_state_of(c)), SAMPLE_STATES);
	ck_assert(sample_holds(checkpoint_weights_of(c), seed));
	ck_assert(sample_holds(checkpoint_state_of(c), seed));
}

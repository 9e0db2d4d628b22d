/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints on disk. One is a directory:
 *
 *   DIR/checkpoint-00000012/   numbered from 1, never reused
 *       weights.safetensors    a tensor for each parameter, under its name: for everybody
 *       state.safetensors      what a server needs beside them
 *       manifest.json          what they are of, their lengths and checksums (XXH3, 128 bits), and
 *                              its own
 *
 * It is made under a temporary name (DIR/.checkpoint-00000012.tmp), every file is fsynced, then the
 * directory, then it is renamed, then DIR is fsynced: a crash at any moment leaves either no
 * checkpoint of that number, or a sound one. Left-over temporary ones are removed by the next
 * begin. One process writes to a DIR at a time (a lock file).
 */
#ifndef GS_STORE_CHECKPOINT_H
#define GS_STORE_CHECKPOINT_H

#include <stdbool.h>

#include "proto/wire.h"
#include "store/store.h"

#define CHECKPOINT_FORMAT  1u
#define CHECKPOINT_WEIGHTS "weights.safetensors"
#define CHECKPOINT_STATE   "state.safetensors"
#define CHECKPOINT_NAME    32u /* bytes of a directory's name */

/* What is known of a parameter beside its tensors. */
struct checkpoint_param {
	struct wire_param decl; /* as it was declared */
	double rate;            /* lr, without the schedule, as it was set last */
	uint64_t block_elems;   /* how it was cut: update counts are for each block */
	uint32_t blocks;
	uint64_t updates; /* tables: of the whole table */
};

struct checkpoint_file {
	uint64_t bytes;
	uint64_t hash[2]; /* store_hash */
};

struct checkpoint_manifest {
	uint32_t format; /* CHECKPOINT_FORMAT; filled in by the writer */
	uint64_t number; /* of the checkpoint; likewise */
	int64_t written; /* seconds since 1970; likewise */
	enum wire_mode mode;
	uint32_t staleness;
	uint64_t step;     /* sync: the last that is in it; ssp: the slowest trainer's; async: 0 */
	uint32_t trainers; /* N of the server */
	uint64_t server;   /* the run that wrote it */
	struct checkpoint_file weights, state; /* filled in by the writer */
	uint32_t params;
	struct checkpoint_param *param; /* owned by who made it; no name is there twice */
};

/* ---- writing ---- */

struct checkpoint_writer;

/* Checkpoints can be written to DIR, as far as can be told now; it is created if its parent is there.
 * Errors: -EACCES, -EROFS, -ENOENT, -ENOTDIR. */
int checkpoint_prepare(const char *dir);

/* Takes the lock, finds the next number, makes the temporary directory and both files.
 * Errors: store_create's; -EBUSY (another process writes to DIR: the text has its pid), -EACCES,
 * -ENOTDIR; DIR is created if its parent is there. */
int checkpoint_begin(const char *dir, const struct store_tensor *weights, uint32_t n_weights,
		     const struct store_tensor *state, uint32_t n_state,
		     struct checkpoint_writer **out);
/* The mapped tensors, for the data. */
struct store_file *checkpoint_weights(struct checkpoint_writer *w);
struct store_file *checkpoint_state(struct checkpoint_writer *w);
/* Checksums, manifest, fsyncs, rename; then removes the oldest ones so that `keep` (1 at least) are
 * left: never the one that was just written. *number (NULL is allowed) is the new one's. Frees `w`,
 * in any case. On failure nothing of it is left behind. Errors: -EIO, -ENOSPC. */
int checkpoint_commit(struct checkpoint_writer *w, const struct checkpoint_manifest *manifest,
		      uint32_t keep, uint64_t *number);
/* Removes what there is of it. NULL is allowed. */
void checkpoint_abandon(struct checkpoint_writer *w);

/* ---- reading ---- */

struct checkpoint;

/* Opens one, by its directory, and verifies all of it: manifest, lengths, checksums, and that the
 * files hold what the manifest says.
 * Errors: -ENOENT, -EBADMSG (the text says which file, and what is wrong), what open(2) gives. */
int checkpoint_open(const char *path, struct checkpoint **out);
/* The newest sound one in DIR. Each newer one that is not sound is told of in the log, with why.
 * Errors: -ENOENT (there is none, nor DIR), -EBADMSG (there are, and none is sound). */
int checkpoint_open_newest(const char *dir, struct checkpoint **out);
const struct checkpoint_manifest *checkpoint_manifest(const struct checkpoint *c);
const char *checkpoint_path(const struct checkpoint *c);
const struct store_file *checkpoint_weights_of(const struct checkpoint *c);
const struct store_file *checkpoint_state_of(const struct checkpoint *c);
void checkpoint_close(struct checkpoint *c);

/* It is a directory that is a checkpoint, be it a broken one: it has a file of one, or the name. */
bool checkpoint_is_one(const char *path);
/* The manifest alone of a checkpoint; to be given to checkpoint_manifest_free. */
int checkpoint_peek(const char *path, struct checkpoint_manifest *out);

/* "checkpoint-00000012". Returns buf. */
const char *checkpoint_name(uint64_t number, char buf[CHECKPOINT_NAME]);
/* The numbers of the checkpoints in DIR, sound or not, upwards; to be given to free(3).
 * Errors: -ENOENT, -ENOTDIR and what else open(2) gives; -ENOMEM. */
int checkpoint_list(const char *dir, uint64_t **numbers, uint32_t *n);

/* The manifest as text and back, for the tests and the fuzzer; the text is malloc'ed. */
int checkpoint_manifest_print(const struct checkpoint_manifest *m, char **text);
int checkpoint_manifest_parse(const char *text, size_t len, struct checkpoint_manifest *out);
void checkpoint_manifest_free(struct checkpoint_manifest *m); /* its param array */

#endif

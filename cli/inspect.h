/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `gradslot inspect`. Each prints what it has to say and returns the exit status.
 */
#ifndef GS_CLI_INSPECT_H
#define GS_CLI_INSPECT_H

#include <jansson.h>
#include <stdbool.h>

#include "store/store.h"

struct inspect {
	bool json, stats;
};

int inspect_file(const char *path, const struct inspect *how);
int inspect_checkpoint(const char *path, const struct inspect *how);
/* A directory of checkpoints. */
int inspect_directory(const char *path, const struct inspect *how);

/* The tensors of a file, as a table on stdout or as JSON. */
void inspect_tensors(const struct store_file *file, const struct inspect *how);
json_t *inspect_tensors_json(const struct store_file *file, const struct inspect *how);

#define SHAPE_TEXT 192u

/* "784x128", "scalar". Returns buf. */
const char *inspect_shape(uint32_t ndim, const uint64_t *dim, char buf[SHAPE_TEXT]);
/* Names of others' files may be anything: control characters become '?'. Returns buf. */
const char *inspect_name(const char *name, char buf[STORE_NAME_MAX + 1]);

#endif

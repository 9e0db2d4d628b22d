/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory that checkpoints are in: its lock, the names in it, what may be removed. Only names
 * of ours are ever touched, and only files that a checkpoint has are removed from them. Private to
 * store/.
 */
#ifndef GS_STORE_FOLDER_H
#define GS_STORE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "store/checkpoint.h"

#define FOLDER_MANIFEST "manifest.json"
/* The greatest number: a longer name than its temporary one has no room, and is none of ours. */
#define FOLDER_NUMBER_MAX UINT64_C(999999999999999)

/* ".checkpoint-00000012.tmp": not a checkpoint yet, or not any more. Returns buf. */
const char *folder_temporary(uint64_t number, char buf[CHECKPOINT_NAME]);

/* The last part of a path is a checkpoint's name. */
bool folder_is_name(const char *path);

/* The directory's descriptor; `make`: created if its parent is there. */
int folder_open(const char *path, bool make, int *fd);
/* One process at a time: -EBUSY, with the other's pid. The lock is held until *lock is closed. */
int folder_lock(int fd, const char *path, int *lock);
/* fsync. */
int folder_sync(int fd, const char *path);

struct folder_names {
	uint64_t *checkpoint, *temporary; /* upwards; to be freed by folder_names_free */
	uint32_t checkpoints, temporaries;
};

int folder_names(int fd, const char *path, struct folder_names *out);
void folder_names_free(struct folder_names *names);

/* Removes a temporary one, with what a checkpoint has in it. */
int folder_remove_temporary(int fd, const char *path, uint64_t number);

/* By what is quickly seen: the manifest, and the files' lengths. */
bool folder_looks_sound(int fd, uint64_t number);

#endif

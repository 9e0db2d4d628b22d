/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process holds, sampled from /proc, and whether it grows.
 */
#ifndef GS_CLI_SOAK_WATCH_H
#define GS_CLI_SOAK_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum watch_what { WATCH_MEMORY, WATCH_DESCRIPTORS, WATCH_MAPPINGS, WATCH_KINDS };
extern const char *const watch_names[WATCH_KINDS];

enum { WATCH_MAX = 256 };

struct watch {
	unsigned n;
	int64_t sample[WATCH_MAX][WATCH_KINDS]; /* bytes, and numbers */
};

/* Adds a sample; when there is no room, every other one before is dropped. Negative errno. */
int watch_sample(struct watch *w, pid_t pid);
/* The medians of the second quarter of the samples (the first is the beginning) and of the last. */
void watch_trend(const struct watch *w, enum watch_what what, int64_t *before, int64_t *after);
/* It does not grow: up to `slack` more. */
bool watch_flat(const struct watch *w, enum watch_what what, int64_t slack);

#endif

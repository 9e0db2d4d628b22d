/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel says in /proc and /sys.
 */
#ifndef GS_BASE_PROC_H
#define GS_BASE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number behind `key` in a file of "Key: value" lines, in its own unit; `none` when it is not
 * there. */
uint64_t proc_number(const char *path, const char *key, int base, uint64_t none);

/* The text behind `key` in such a file, up to the line's end; "unknown" when it is not there. */
void proc_text(const char *path, const char *key, char *buf, size_t size);

/* A file's first line, without its end; false if there is none. */
bool proc_line(const char *path, char *buf, size_t size);

/* This process may lock more memory than RLIMIT_MEMLOCK says (CAP_IPC_LOCK). */
bool proc_may_lock_all(void);

#endif

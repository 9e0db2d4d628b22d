/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel says in /proc.
 */
#ifndef GS_BASE_PROC_H
#define GS_BASE_PROC_H

#include <stdbool.h>
#include <stdint.h>

/* The number behind `key` in a file of "Key: value" lines, in its own unit; `none` when it is not
 * there. */
uint64_t proc_number(const char *path, const char *key, int base, uint64_t none);

/* This process may lock more memory than RLIMIT_MEMLOCK says (CAP_IPC_LOCK). */
bool proc_may_lock_all(void);

#endif

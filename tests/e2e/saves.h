/* SPDX-License-Identifier: Apache-2.0
 *
 * A directory of checkpoints for a test, and servers that write to it.
 */
#ifndef GS_TESTS_E2E_SAVES_H
#define GS_TESTS_E2E_SAVES_H

#include "harness.h"
#include "store/checkpoint.h"

extern char saves_dir[64];

/* Makes it, and removes it with all that is in it. */
void saves_begin(void);
void saves_end(void);
/* A path in it; of the last four that were asked for. */
char *saves_path(const char *name);
/* How many checkpoints are in it, whole and begun. */
uint32_t saves_left(void);

/* Writes there, and keeps all; ssp: 2 steps ahead. */
struct srv_options saves_options(uint32_t trainers, enum srv_mode mode);
/* Until so many are written, or could not be. */
void saves_wait(struct bed *b, uint64_t n);
/* Asks for one, and waits until it is written, or could not be. */
void saves_now(struct bed *b);
/* The newest sound one; its step. */
struct checkpoint *saves_newest(void);
uint64_t saves_newest_step(void);

#endif

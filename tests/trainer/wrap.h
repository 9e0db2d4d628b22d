/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the trainer and the transport: the linker sends calls of tp_* here (--wrap). What is set
 * is of the thread that sets it, so that the fake's own calls go through.
 */
#ifndef GS_TESTS_TRAINER_WRAP_H
#define GS_TESTS_TRAINER_WRAP_H

#include <stdbool.h>
#include <stdint.h>

/* When set, the trainer is told that remotes can't be mapped: the ways of a network, over shm. */
extern bool fake_unmapped;

/* What READs are posted, in between: V for a version word, R for rows; with f where it is fenced.
 */
void wrap_reads_begin(void);
const char *wrap_reads_end(void);
/* The rails, bit by bit, that those but of version words took. */
unsigned wrap_read_rails(void);

/* After so many more ops with immediate data the connection ends: what was posted arrives, and no
 * post takes any more. -1: never. */
void wrap_cut_after(int ops);
/* It was cut. */
bool wrap_was_cut(void);

/* The server's machine is silent: nothing that was posted is told to have ended. */
void wrap_silence(bool silent);
/* Since then: this thread polled a connection's end. */
bool wrap_saw_end(void);
/* Beats that were posted. */
unsigned wrap_beats(void);

/* How many rails connections have from here on. */
void wrap_rails(uint32_t rails);

/* Connections that were tried, and the shortest time between two of them, in ns. */
void wrap_knocks_begin(void);
unsigned wrap_knocks(uint64_t *shortest);

#endif

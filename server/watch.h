/* SPDX-License-Identifier: Apache-2.0
 *
 * Sync mode's patience: what the control thread does about lost trainers and stragglers, and says about
 * whoever is waited for. The decisions are vigil.h's.
 */
#ifndef GS_SERVER_WATCH_H
#define GS_SERVER_WATCH_H

#include <stdint.h>

struct srv;
struct session;

/* Now and then. */
void watch_tick(struct srv *srv, uint64_t now);
/* NOTE_LOST: the round says what became of its place. */
void watch_lost(struct session *s);
/* NOTE_LOOKED: the round says whom the step waits for. */
void watch_looked(struct srv *srv);
/* The server ends: nobody is waited for any more. */
void watch_end(struct srv *srv);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Bare trainers that are lost, and come back: what the cases about it have in common. All push ones
 * to raw_lines (sgd, lr 1, the mean), so every step takes 1 off what anybody pushed.
 */
#ifndef GS_TESTS_E2E_LOSSES_H
#define GS_TESTS_E2E_LOSSES_H

#include "raw.h"

enum {
	LOSS_SOON_MS = 300,
	LOSS_LATER_MS = 1500 /* when a busy machine, too, is in time to look */
};

/* Sync, and a lost trainer is waited for. */
struct srv_options loss_options(uint32_t trainers, uint32_t wait_ms);
void loss_join(struct raw *r, uint32_t n, const char *uri);
/* Blocks from .. to - 1 of "a"; all blocks of both. */
void loss_push(struct raw *r, uint32_t from, uint32_t to, float value);
void loss_push_all(struct raw *r, float value);
/* It must not be over yet: the server has had the time to make a mistake. */
void loss_still_waits(struct raw *r, uint64_t step);
/* Dies, and the server has heard of it. */
void loss_of(struct raw *r, struct bed *bed, uint64_t losses);
/* Control counts it, which may be a moment behind what the round does about it. */
bool loss_is_given_up(void *bed);
void loss_resume(struct raw *r, const char *uri, int32_t rank, const struct raw *old);
void loss_ends(struct raw *r, uint64_t step);
/* What a trainer that reads the weights sees of the first element of each block of "a". */
void loss_sees(const char *uri, const float want[4]);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Updating a block in place, under its version word. Only the parameter's actor calls these.
 */
#ifndef GS_SERVER_APPLY_H
#define GS_SERVER_APPLY_H

#include "server/table.h"

/* One optimizer step of the block with the mean of n gradients, n ≥ 1. */
void apply_gradients(struct block *b, const float *const *grads, uint32_t n);
/* Sets the block's weights. */
void apply_values(struct block *b, const float *values);

#endif

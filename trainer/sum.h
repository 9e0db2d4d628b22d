/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulation. Called by the thread whose push it is, without the lock.
 */
#ifndef GS_TRAINER_SUM_H
#define GS_TRAINER_SUM_H

#include "trainer/trainer.h"

/* `scale`: how many times too large it is. The sum is as many times too large as its first. */
void sum_add(gs_param *p, const void *grad, float scale);
/* The sum or the mean of what was added, into a slot; the next push begins anew. */
void sum_take(gs_param *p, void *slot);

#endif

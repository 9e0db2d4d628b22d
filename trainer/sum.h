/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulation. Called by the thread whose push it is, without the lock.
 */
#ifndef GS_TRAINER_SUM_H
#define GS_TRAINER_SUM_H

#include "trainer/trainer.h"

/* `scale`: how many times too large it is. The sum is as many times too large as its first. */
void sum_add(gs_param *p, const void *grad, float scale);
/* The sum or the mean of what was added, and of `grad` unless it is NULL, into a slot. */
void sum_write(const gs_param *p, const void *grad, float scale, void *slot);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulation. Called by the thread whose push it is, without the lock.
 */
#ifndef GS_TRAINER_SUM_H
#define GS_TRAINER_SUM_H

#include "trainer/trainer.h"

void sum_add(gs_param *p, const void *grad);
/* The sum or the mean of what was added, into a slot; the next push begins anew. */
void sum_take(gs_param *p, void *slot);

#endif

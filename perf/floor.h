/* SPDX-License-Identifier: Apache-2.0
 *
 * The floor: what the memory of this machine takes for the least work of one training step, with
 * nobody to wait for and nothing to say. Measured, by one thread, right when it is asked for.
 */
#ifndef GS_PERF_FLOOR_H
#define GS_PERF_FLOOR_H

#include <stdbool.h>
#include <stddef.h>

/* A step of one trainer with a parameter of `bytes`:
 *   copy:   memcpy of the gradient into the slot (without it the gradient is computed there)
 *   update: the optimizer's arrays read and written once, as in STREAM's triad (w = w - lr·g, and a
 *           state array beside it, or two or more, which count as two)
 *   memcpy of the weights into the trainer's memory
 * Each part is timed, several times and in turn, on warm pages of their own; *us is the sum of the
 * medians, in microseconds. Takes about half a second. bytes: a multiple of 4, at least 4.
 * Errors: -EINVAL, -ENOMEM. */
int floor_step_us(size_t bytes, unsigned arrays, bool copy, double *us);

#endif

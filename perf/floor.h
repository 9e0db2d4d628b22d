/* SPDX-License-Identifier: Apache-2.0
 *
 * The floor: what the memory of this machine takes for the least work of one training step, with
 * nobody to wait for and nothing to say. Measured right when it is asked for.
 */
#ifndef GS_PERF_FLOOR_H
#define GS_PERF_FLOOR_H

#include <stdbool.h>
#include <stddef.h>

enum { FLOOR_TRAINERS_MAX = 16 };

struct floor_job {
	size_t bytes; /* of the parameter: a multiple of 4, at least 4 */
	const char *optimizer;
	unsigned trainers; /* 1 to FLOOR_TRAINERS_MAX */
	unsigned threads;  /* that may be used, 1 to CREW_MAX: the machine's cores */
	unsigned budget_ms;
};

/* The parts that a step is made of, in microseconds, all trainers' together:
 *   in:     each trainer's gradient is copied into its slot
 *   update: one pass of the optimizer over weights, state and all gradients
 *   out:    the weights are copied into each trainer's memory
 *   read:   the weights are loaded by each trainer, and go nowhere
 * Each in the way that was fastest here: by one thread or by all, and copied by memcpy or with
 * stores that go past the caches. */
struct floor_parts {
	double in, update, out, read;
};

/* Of a step whose gradients are made in their slots: the weights are read in place, or pulled; and
 * of one with all its copies. */
enum floor_kind { FLOOR_VIEW, FLOOR_PULL, FLOOR_COPY };

/* Times the parts in turn, on warm pages of their own, several times; gives the medians.
 * Errors: -EINVAL, -ENOMEM, -EAGAIN. */
int floor_measure(const struct floor_job *job, struct floor_parts *parts);
double floor_total(const struct floor_parts *parts, enum floor_kind kind);

/* The same of one trainer, by one thread: of FLOOR_COPY, or FLOOR_PULL, with an optimizer that
 * keeps so many state arrays (two or more count as two). Takes about half a second. */
int floor_step_us(size_t bytes, unsigned arrays, bool copy, double *us);

#endif

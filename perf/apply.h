/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast the update loops run, for each rule and instruction set, beside memcpy, STREAM's triad
 * and OpenBLAS's saxpy, on one thread or several.
 *
 * A machine's memory speed changes with what else it does, so only figures of one run are compared,
 * and in that run everything takes turns: one round times each subject once. Bytes are those that a
 * loop must move: each array read or written counts once each way. The references are compiled like
 * the baseline (memcpy and saxpy pick what the CPU has by themselves).
 */
#ifndef GS_PERF_APPLY_H
#define GS_PERF_APPLY_H

#include <stddef.h>
#include <stdint.h>

enum {
	APPLY_GRADS_MAX = 16,
	APPLY_THREADS_MAX = 16, /* CREW_MAX */
	APPLY_ROUNDS_MIN = 9,
	APPLY_ROUNDS_MAX = 301,
	APPLY_SUBJECTS_MAX = 40,
};

struct apply_config {
	uint64_t bytes; /* of the weights; a multiple of 1024 */
	unsigned grads, threads;
	unsigned rounds, duration_ms; /* rounds is the least number when there is a duration */
};

struct apply_figure {
	const char *name, *isa, *dtype; /* isa is "" for references */
	double us, us_p99, us_max;      /* of one call; the first is the median */
	double gb_per_s, gb_per_s_p10, gb_per_s_p90;
	double of_triad; /* the median over rounds of the ratio to that round's triad */
	unsigned rounds;
};

/* Fills figure[0 … *n - 1], APPLY_SUBJECTS_MAX at most. Errors: -ENOMEM, -EAGAIN; with err_text().
 */
int apply_measure(const struct apply_config *config, struct apply_figure *figure, unsigned *n);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What one trainer does in `gradslot bench step`, with a clock around each step.
 *
 * A step is: get the gradient buffer, push it, end the step, pull the weights. The gradient's
 * values are written before the clock starts, each buffer once: computing them is the trainer's
 * work, not the parameter server's.
 */
#ifndef GS_PERF_STEP_H
#define GS_PERF_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/* Every gradient buffer there may be is met, and written, before the clock starts. */
	STEP_WARMUP_MIN = 8,
	STEP_ITERS_MAX = 1000000,
};

struct step_config {
	const char *uri;
	unsigned rank;
	uint64_t bytes; /* of the one parameter; a multiple of 4 */
	const char *optimizer;
	bool copy; /* push from memory of this process's own instead of the gradient buffer */
	bool view; /* read the weights where they are instead of pulling them */
	bool pipeline; /* with gs_step_pull or gs_step_view instead of after gs_step_end */
	uint32_t warmup, iters; /* iters is the least number when there is a duration */
	uint32_t duration_ms;
	int32_t spin_us;
};

/* Connects, takes its part in the steps, leaves. *samples gets *n times in nanoseconds, in order
 * (free them). Afterwards every weight must have the same value, since all had the same gradients;
 * -EBADMSG if not. Errors: negative errno with err_text(). */
int step_run(const struct step_config *config, uint64_t **samples, size_t *n);

#endif

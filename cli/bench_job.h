/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gradslot bench step` and its trainers agree on, as options of both.
 */
#ifndef GS_CLI_BENCH_JOB_H
#define GS_CLI_BENCH_JOB_H

#include "cli/opt.h"
#include "perf/step.h"
#include "server/server.h"

struct bench_run {
	int64_t size, iters, duration_ms, warmup;
	int optimizer;
	bool copy, view, no_pipeline;
};

extern const char *const bench_optimizers[];

struct bench_run bench_run_default(void);
/* Without uri, rank and spin_us. */
struct step_config bench_step_config(const struct bench_run *run);

/* Lines of an option table that fill the struct bench_run `run`. */
/* clang-format off */
#define BENCH_RUN_LINES(run) \
	{"size", OPT_SIZE, &(run).size, "BYTES", "of the one parameter that is trained", \
	 .min = 4 << 10, .max = 1 << 30, .multiple = 4}, \
	{"optimizer", OPT_CHOICE, &(run).optimizer, "NAME", "sgd, momentum, nesterov or adam", \
	 .choices = bench_optimizers}, \
	{"copy", OPT_FLAG, &(run).copy, NULL, \
	 .help = "push from ordinary memory instead of the gradient buffer"}, \
	{"view", OPT_FLAG, &(run).view, NULL, \
	 .help = "read the weights in place instead of pulling them (shm only)"}, \
	{"no-pipeline", OPT_FLAG, &(run).no_pipeline, NULL, \
	 .help = "end the step and then pull, instead of both in one call"}, \
	{"iters", OPT_NUMBER, &(run).iters, "N", \
	 "measured steps; with --duration: at least so many", .min = 1, .max = STEP_ITERS_MAX}, \
	{"warmup", OPT_NUMBER, &(run).warmup, "N", "steps before the first measured one", \
	 .min = STEP_WARMUP_MIN, .max = STEP_ITERS_MAX}
/* clang-format on */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gradslot demo` and the processes that it starts agree on: the run's settings, as options of
 * the hidden commands, and the lines that they write.
 *
 *   progress (rank 0, a few a second)  {"step", "epoch", "loss", "accuracy", "seconds"}
 *   result (the last line of rank 0, and the only one of demo-single)
 *       {"result": true, "steps", "loss", "accuracy", "hits", "checksum"} and from rank 0
 *       "seconds", "transport"; `checksum` is 16 hexadecimal digits
 */
#ifndef GS_CLI_DEMO_JOB_H
#define GS_CLI_DEMO_JOB_H

#include "cli/opt.h"
#include "demo/digits.h"

struct demo_run {
	int64_t seed, epochs, trainers;
	int mode; /* 0 sync, 1 async */
};

extern const char *const demo_modes[];

struct demo_run demo_run_default(void);
struct digits_config demo_config(const struct demo_run *run);

/* Lines of an option table that fill the struct demo_run `run`. */
/* clang-format off */
#define DEMO_RUN_LINES(run) \
	{"trainers", OPT_NUMBER, &(run).trainers, "N", \
	 "processes that share each batch equally", .min = 1, .max = 48}, \
	{"mode", OPT_CHOICE, &(run).mode, "sync|async", \
	 "mean of all trainers each step, or each gradient at once", .choices = demo_modes}, \
	{"seed", OPT_NUMBER, &(run).seed, "N", "of the split, the batches and the weights", \
	 .min = 0, .max = INT64_MAX}, \
	{"epochs", OPT_NUMBER, &(run).epochs, "N", "passes over the training set", \
	 .min = 1, .max = 1000000}
/* clang-format on */

#endif

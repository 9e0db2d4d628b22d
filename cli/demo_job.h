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

#include "cli/mode.h"
#include "cli/opt.h"
#include "cli/training.h"
#include "demo/digits.h"

struct demo_schedule {
	const char *text; /* "": constant */
	struct schedule parsed;
};

struct demo_run {
	int64_t seed, epochs, trainers;
	struct mode mode;
	struct kern_opt opt; /* for sync mode: digits_async_opt has it for the others */
	struct demo_schedule schedule;
	int grad_dtype; /* enum kern_dtype */
};

/* For OPT_PARSED. */
int demo_parse_optimizer(const char *text, void *opt);
int demo_parse_schedule(const char *text, void *schedule);

struct demo_run demo_run_default(void);
struct digits_config demo_config(const struct demo_run *run);

/* -ERANGE if a loss is no number any more. */
int demo_check_loss(double loss);

/* Lines of an option table that fill the struct demo_run `run`. */
/* clang-format off */
#define DEMO_RUN_LINES(run) \
	{"trainers", OPT_NUMBER, &(run).trainers, "N", \
	 "processes that share each batch equally", .min = 1, .max = 48}, \
	MODE_LINE((run).mode), \
	{"optimizer", OPT_PARSED, &(run).opt, "NAME[:setting=value,...]", \
	 "what the server makes of gradients; lr has a default for each", \
	 .parse = demo_parse_optimizer, .shown = "sgd"}, \
	{"lr-schedule", OPT_PARSED, &(run).schedule, "NAME[:key=value,...]", \
	 "of the learning rate, by steps; without sync mode, by all trainers' gradients", \
	 .parse = demo_parse_schedule, .shown = "constant"}, \
	{"grad-dtype", OPT_CHOICE, &(run).grad_dtype, "f32|bf16|f16", \
	 "what gradients are sent in", .choices = training_dtypes}, \
	{"seed", OPT_NUMBER, &(run).seed, "N", "of the split, the batches and the weights", \
	 .min = 0, .max = INT64_MAX}, \
	{"epochs", OPT_NUMBER, &(run).epochs, "N", "passes over the training set", \
	 .min = 1, .max = 1000000}
/* clang-format on */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A training by a server and its trainers as processes, then the same in one process, to be
 * compared: what demo and words have in common. Each trainer is the command NAME-trainer, the one
 * process NAME-single; what they write are JSON objects, a line each.
 */
#ifndef GS_CLI_TRAINING_H
#define GS_CLI_TRAINING_H

#include "cli/job.h"
#include "cli/json.h"
#include "cli/progress.h"

/* --grad-dtype's choices, numbered as kern_dtype. */
extern const char *const training_dtypes[];

struct training {
	const char *name;
	struct job_server server; /* settled by training_run */
	/* `arg` goes to these. */
	void (*add_args)(const void *arg, struct child_args *args); /* the run's settings */
	int (*take)(void *arg, json_t *line, bool single);          /* a line; negative ends it */
	void *arg;
	unsigned results; /* lines with "result": one of each kind is expected */
	struct progress progress;
};

/* Runs both. Returns EXIT_OK, or EXIT_FAILED with the error printed. */
int training_run(struct training *t);

/* Compares the checksums: all that async training (`exact` is not set) may do is differ. Returns
 * the exit status, with an error printed if it is bad; `verdict` in words. */
int training_judge(const struct training *t, bool equal, bool exact);
const char *training_verdict(const struct training *t, bool equal, bool exact);

/* What a trainer process is told, as options. */
struct training_member {
	const char *uri;
	int64_t rank, spin_us;
};
struct training_member training_member_default(void);

/* clang-format off */
#define TRAINING_MEMBER_LINES(m) \
	{"uri", OPT_TEXT, &(m).uri, "URI", .help = "the server's"}, \
	{"rank", OPT_NUMBER, &(m).rank, "N", "of this trainer", .min = 0, \
	 .max = SRV_MAX_TRAINERS - 1}, \
	{"spin", OPT_NUMBER, &(m).spin_us, "US|forever", "polls before it sleeps", .min = 0, \
	 .max = 1000000000, .word = "forever", .word_value = SRV_SPIN_FOREVER}
/* clang-format on */

#endif

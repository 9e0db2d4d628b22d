/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gradslot words` and the processes that it starts agree on: the run's settings, as options
 * of the hidden commands, and the lines that they write.
 *
 *   progress (rank 0, a few a second)  {"step", "steps", "loss", "words", "seconds"}
 *   result (the last line of rank 0, and the only one of words-single)
 *       {"result": true, "steps", "vocabulary", "heldout_pairs", "loss", "auc", "untrained_loss",
 *       "untrained_auc", "checksum"} and from rank 0 "seconds", "words_per_s", "transport", "near":
 *       [[word, its nearest, next, ...], ...]
 */
#ifndef GS_CLI_WORDS_JOB_H
#define GS_CLI_WORDS_JOB_H

#include "cli/child.h"
#include "cli/json.h"
#include "cli/mode.h"
#include "cli/opt.h"
#include "cli/training.h"
#include "demo/words_task.h"

struct words_run {
	int64_t trainers, dim, epochs, batch, window, negatives, min_count, seed;
	struct mode mode;
	struct kern_opt opt;
	const char *text, *near;
	int grad_dtype; /* enum kern_dtype, which enum gs_dtype is like */
};

#define WORDS_OPTIMIZER "adagrad:lr=0.15"
/* For OPT_PARSED. */
int words_parse_optimizer(const char *text, void *opt);

struct words_run words_run_default(void);
/* Everything but what the text alone can tell. Errors: -EINVAL. */
int words_run_config(const struct words_run *run, struct words_config *config);
void words_run_args(const struct words_run *run, struct child_args *args);

/* The fields of a result that all have, as an object; NULL when there is no memory. */
json_t *words_result(const struct words_task *task, const struct words_score *before,
		     const struct words_score *after, uint64_t checksum);

/* Lines of an option table that fill the struct words_run `run`. */
/* clang-format off */
#define WORDS_RUN_LINES(run) \
	{"trainers", OPT_NUMBER, &(run).trainers, "N", \
	 "processes, each with its share of the sentences", .min = 1, .max = WORDS_TRAINERS_MAX}, \
	MODE_LINE((run).mode), \
	{"text", OPT_TEXT, &(run).text, "FILE", \
	 .help = "a sentence or paragraph a line; unset: the King James Bible"}, \
	{"optimizer", OPT_PARSED, &(run).opt, "NAME[:setting=value,...]", \
	 "that the server applies to the rows", .parse = words_parse_optimizer, \
	 .shown = WORDS_OPTIMIZER}, \
	{"grad-dtype", OPT_CHOICE, &(run).grad_dtype, "f32|bf16|f16", "of gradients on their way", \
	 .choices = training_dtypes}, \
	{"dim", OPT_NUMBER, &(run).dim, "N", "of a word's vector", .min = 1, .max = 1024}, \
	{"epochs", OPT_NUMBER, &(run).epochs, "N", "passes over the text", \
	 .min = 1, .max = 100000}, \
	{"batch", OPT_NUMBER, &(run).batch, "N", \
	 "words of a step, shared equally by the trainers", .min = 1, .max = 1 << 16}, \
	{"window", OPT_NUMBER, &(run).window, "N", "words on each side of a word at most", \
	 .min = 1, .max = 32}, \
	{"negatives", OPT_NUMBER, &(run).negatives, "N", "random words for each true one", \
	 .min = 1, .max = WORDS_NEGATIVES_MAX}, \
	{"min-count", OPT_NUMBER, &(run).min_count, "N", "leave out rarer words", \
	 .min = 1, .max = 1 << 30}, \
	{"seed", OPT_NUMBER, &(run).seed, "N", "of the split, the batches and the vectors", \
	 .min = 0, .max = INT64_MAX}, \
	{"near", OPT_TEXT, &(run).near, "WORD,...", .help = "show these words' nearest"}
/* clang-format on */

#endif

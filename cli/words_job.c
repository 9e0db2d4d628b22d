/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of the words example, the same in all its processes.
 */
#include "cli/words_job.h"

#include "demo/optimizer.h"

#include <inttypes.h>
#include <stdio.h>

int words_parse_optimizer(const char *text, void *opt)
{
	return optimizer_parse_rows(text, opt);
}

struct words_run words_run_default(void)
{
	struct words_config c = words_default();
	struct words_run run = {
	    .trainers = 2,
	    .dim = c.dim,
	    .epochs = c.epochs,
	    .batch = c.batch,
	    .window = c.window,
	    .negatives = c.negatives,
	    .min_count = c.min_count,
	    .seed = (int64_t)c.seed,
	    .mode = {.kind = SRV_SYNC},
	    .near = "god,king,water,son,bread,egypt,wife,sin",
	};

	optimizer_parse_rows(WORDS_OPTIMIZER, &run.opt);
	return run;
}

int words_run_config(const struct words_run *run, struct words_config *config)
{
	struct words_config c = words_default();

	c.trainers = (unsigned)run->trainers;
	c.dim = (unsigned)run->dim;
	c.epochs = (unsigned)run->epochs;
	c.batch = (unsigned)run->batch;
	c.window = (unsigned)run->window;
	c.negatives = (unsigned)run->negatives;
	c.min_count = (unsigned)run->min_count;
	c.seed = (uint64_t)run->seed;
	c.opt = run->opt;
	c.grad_dtype = (enum kern_dtype)run->grad_dtype;
	*config = c;
	return words_check(config);
}

void words_run_args(const struct words_run *run, struct child_args *args)
{
	char mode[MODE_TEXT], optimizer[OPTIMIZER_TEXT];

	child_arg(args, "--trainers=%" PRId64, run->trainers);
	child_arg(args, "--mode=%s", mode_text(&run->mode, mode));
	child_arg(args, "--optimizer=%s", optimizer_text(&run->opt, optimizer));
	child_arg(args, "--grad-dtype=%s", training_dtypes[run->grad_dtype]);
	child_arg(args, "--dim=%" PRId64, run->dim);
	child_arg(args, "--epochs=%" PRId64, run->epochs);
	child_arg(args, "--batch=%" PRId64, run->batch);
	child_arg(args, "--window=%" PRId64, run->window);
	child_arg(args, "--negatives=%" PRId64, run->negatives);
	child_arg(args, "--min-count=%" PRId64, run->min_count);
	child_arg(args, "--seed=%" PRId64, run->seed);
	child_arg(args, "--near=%s", run->near);
	if (run->text)
		child_arg(args, "--text=%s", run->text);
}

json_t *words_result(const struct words_task *task, const struct words_score *before,
		     const struct words_score *after, uint64_t checksum)
{
	char text[17];

	snprintf(text, sizeof(text), "%016" PRIx64, checksum);
	return json_pack("{s:b, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:s}", "result", 1, "steps",
			 (json_int_t)task->steps, "vocabulary", (json_int_t)task->corpus->words,
			 "heldout_pairs", (json_int_t)after->pairs, "loss", after->loss, "auc",
			 after->auc, "untrained_loss", before->loss, "untrained_auc", before->auc,
			 "checksum", text);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The demo's settings, the same in all its processes.
 */
#include "cli/demo_job.h"

#include "base/err.h"
#include "demo/optimizer.h"

#include <errno.h>
#include <math.h>

int demo_parse_optimizer(const char *text, void *opt)
{
	return optimizer_parse(text, opt);
}

int demo_parse_schedule(const char *text, void *out)
{
	struct demo_schedule *schedule = out;
	int rc = schedule_parse(text, &schedule->parsed);

	if (rc == 0)
		schedule->text = text;
	return rc;
}

struct demo_run demo_run_default(void)
{
	struct digits_config config = digits_default();

	return (struct demo_run){
	    .seed = (int64_t)config.seed,
	    .epochs = config.epochs,
	    .trainers = 2,
	    .mode = {.kind = SRV_SYNC},
	    .opt = config.opt,
	    .schedule = {.text = ""},
	};
}

int demo_check_loss(double loss)
{
	if (isfinite(loss))
		return 0;
	return err_set(ERANGE,
		       "the loss is %g: the training diverges; a lower learning rate, or "
		       "clip_norm, may help",
		       loss);
}

struct digits_config demo_config(const struct demo_run *run)
{
	struct digits_config config = digits_default();

	config.seed = (uint64_t)run->seed;
	config.epochs = (unsigned)run->epochs;
	config.trainers = (unsigned)run->trainers;
	config.opt = run->opt;
	config.schedule = run->schedule.parsed;
	config.grad_dtype = (enum kern_dtype)run->grad_dtype;
	return config;
}

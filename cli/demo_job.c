/* SPDX-License-Identifier: Apache-2.0
 *
 * The demo's settings, the same in all its processes.
 */
#include "cli/demo_job.h"

const char *const demo_modes[] = {"sync", "async", NULL};

struct demo_run demo_run_default(void)
{
	struct digits_config config = digits_default();

	return (struct demo_run){
	    .seed = (int64_t)config.seed, .epochs = config.epochs, .trainers = 2};
}

struct digits_config demo_config(const struct demo_run *run)
{
	struct digits_config config = digits_default();

	config.seed = (uint64_t)run->seed;
	config.epochs = (unsigned)run->epochs;
	config.trainers = (unsigned)run->trainers;
	return config;
}

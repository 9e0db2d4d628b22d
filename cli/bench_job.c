/* SPDX-License-Identifier: Apache-2.0
 *
 * The benchmark's settings, the same in all its processes.
 */
#include "cli/bench_job.h"

#include <stddef.h>

const char *const bench_optimizers[] = {"sgd", "momentum", "nesterov", "adam", NULL};

struct bench_run bench_run_default(void)
{
	return (struct bench_run){.size = 64 << 20, .iters = 20, .duration_ms = 3000, .warmup = 10};
}

struct step_config bench_step_config(const struct bench_run *run)
{
	return (struct step_config){
	    .bytes = (uint64_t)run->size,
	    .optimizer = bench_optimizers[run->optimizer],
	    .copy = run->copy,
	    .view = run->view,
	    .pipeline = !run->no_pipeline,
	    .warmup = (uint32_t)run->warmup,
	    .iters = (uint32_t)run->iters,
	    .duration_ms = (uint32_t)run->duration_ms,
	};
}

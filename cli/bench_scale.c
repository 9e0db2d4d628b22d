/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench scale`.
 */
#include "cli/bench.h"
#include "cli/bench_frame.h"
#include "perf/loops.h"

int bench_scale(int argc, char **argv)
{
	struct bench_frame f = bench_frame_default(&perf_scale);
	const struct opt opts[] = {
	    {"against-one", OPT_FLAG, &f.one, NULL,
	     .help = "in turn with one parameter as large as all, and the ratio of the two"},
	    BENCH_COPY_LINE(f),
	    BENCH_SWEEP_LINES(f),
	    BENCH_TIMES_LINES(f),
	    BENCH_WHERE_LINES(f),
	    BENCH_OUTPUT_LINES(f),
	    {NULL}};
	const struct opt_command cmd = {
	    "gradslot bench scale",
	    "Times synchronous steps of models of many parameters and of many trainers.",
	    "A step: gs_push_many of all parameters, then gs_step_pull of all of them.\n", opts};

	f.mode = 1;
	f.many = true;
	f.iters = 100;
	f.warmup = 10;
	int rc = bench_frame_parse(&f, &cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	if (f.one)
		f.loop = &perf_scale_one;
	return bench_frame_run(&f);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench latency`.
 */
#include "cli/bench.h"
#include "cli/bench_frame.h"
#include "perf/loops.h"

int bench_latency(int argc, char **argv)
{
	struct bench_frame f = bench_frame_default(&perf_latency);
	const struct opt opts[] = {BENCH_MODE_LINE(f),
				   BENCH_READ_LINE(f),
				   BENCH_COPY_LINE(f),
				   BENCH_FRAME_LINES(f),
				   {NULL}};
	const struct opt_command cmd = {
	    "gradslot bench latency",
	    "Times one gradient at a time: pushed, applied, and the weights pulled back.",
	    "Times: round: all of it; post: until gs_push returns; applied: until the trainer "
	    "knows that\n"
	    "the weights have it (in sync mode: that the step is over); pull: the weights alone.\n",
	    opts};

	return bench_frame_main(&f, &cmd, argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench push`.
 */
#include "cli/bench.h"
#include "cli/bench_frame.h"
#include "perf/loops.h"

int bench_push(int argc, char **argv)
{
	struct bench_frame f = bench_frame_default(&perf_push);
	const struct opt opts[] = {BENCH_COPY_LINE(f), BENCH_FRAME_LINES(f), {NULL}};
	const struct opt_command cmd = {
	    "gradslot bench push",
	    "Pushes gradients one behind the other in async mode: bandwidth and rate.",
	    "The rates are of the time until the last gradient is applied; push: what one takes "
	    "its sender,\n"
	    "the wait for a free slot included.\n",
	    opts};

	return bench_frame_main(&f, &cmd, argc, argv);
}

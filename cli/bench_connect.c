/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench connect`.
 */
#include "cli/bench.h"
#include "cli/bench_frame.h"
#include "perf/loops.h"

int bench_connect(int argc, char **argv)
{
	struct bench_frame f = bench_frame_default(&perf_connect);
	const struct opt opts[] = {BENCH_SWEEP_LINES(f),
				   BENCH_TIMES_LINES(f),
				   BENCH_WHERE_LINES(f),
				   BENCH_OUTPUT_LINES(f),
				   {NULL}};
	const struct opt_command cmd = {
	    "gradslot bench connect",
	    "Times connections: made, parameters declared and memory given, and left again.",
	    "Times: connect: gs_connect; start: gs_declare and gs_start; leave: gs_leave and "
	    "gs_close; all:\n"
	    "their sum. Between start and leave each pushes one gradient, which is not in the "
	    "times.\n",
	    opts};

	f.copy = true; /* each connection has buffers of its own, which nobody has filled */
	f.iters = 100;
	f.warmup = PEER_WARMUP_MIN;
	return bench_frame_main(&f, &cmd, argc, argv);
}

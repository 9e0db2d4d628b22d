/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench pull`.
 */
#include "cli/bench.h"
#include "cli/bench_frame.h"
#include "perf/loops.h"

int bench_pull(int argc, char **argv)
{
	struct bench_frame f = bench_frame_default(&perf_pull);
	const struct opt opts[] = {BENCH_READ_LINE(f), BENCH_FRAME_LINES(f), {NULL}};
	const struct opt_command cmd = {
	    "gradslot bench pull",
	    "Pulls weights again and again while nobody changes them: bandwidth and rate.", NULL,
	    opts};

	return bench_frame_main(&f, &cmd, argc, argv);
}

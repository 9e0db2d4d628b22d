/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench rows`.
 */
#include "cli/bench.h"
#include "cli/bench_frame.h"
#include "perf/loops.h"

#include <inttypes.h>

enum { AT_ONCE_MAX = 65536 }; /* push_rows, of the table */

int bench_rows(int argc, char **argv)
{
	struct bench_frame f = bench_frame_default(&perf_rows);
	const struct opt opts[] = {
	    BENCH_MODE_LINE(f),
	    {"rows", OPT_PARSED, &f.params, "LIST",
	     "at once: 1, or 1,16,256, or 1:4096 for powers of two", .parse = numlist_parse,
	     .shown = "1,16,256,4096"},
	    {"size", OPT_PARSED, &f.sizes, "LIST", "bytes of a row", .parse = numlist_parse,
	     .shown = "64"},
	    {"table", OPT_NUMBER, &f.table, "ROWS", "that the table has", .min = 1,
	     .max = INT32_MAX},
	    {"optimizer", OPT_TEXT, &f.optimizer, "NAME", .help = "of the table"},
	    {"near", OPT_FLAG, &f.near, NULL, .help = "rows that follow one another"},
	    {"zipf", OPT_FLAG, &f.zipf, NULL, .help = "rows by Zipf's law: some are frequent"},
	    {"trainers", OPT_PARSED, &f.trainers, "LIST", "processes that do it at the same time",
	     .parse = numlist_parse, .shown = "1"},
	    BENCH_TIMES_LINES(f),
	    BENCH_WHERE_LINES(f),
	    BENCH_OUTPUT_LINES(f),
	    {NULL}};
	const struct opt_command cmd = {"gradslot bench rows",
					"Times rows of a table: read by the trainer, gathered by "
					"the server, and pushed, in turn.",
					"Times of all rows of one call. read: GS_ROWS_READ; "
					"gather: GS_ROWS_GATHER; push: until it is\n"
					"applied (in sync mode: the step).\n",
					opts};

	f.sizes.value[0] = 64;
	f.params =
	    (struct numlist){.value = {1, 16, 256, 4096}, .n = 4, .min = 1, .max = AT_ONCE_MAX};
	f.table = 100000;
	f.iters = 100;
	f.warmup = PEER_WARMUP_MIN;
	int rc = bench_frame_parse(&f, &cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	if (f.near && f.zipf)
		return opt_usage(&cmd, "--near and --zipf exclude one another");
	return bench_frame_run(&f);
}

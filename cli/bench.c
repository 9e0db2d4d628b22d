/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench`: finds the benchmark. perf/METHOD.md says what each one's figures are.
 */
#include "cli/bench.h"
#include "cli/cmd.h"
#include "cli/opt.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} benchmarks[] = {
    {"latency", bench_latency, "one gradient at a time: there, applied, and the weights back"},
    {"push", bench_push, "gradients one behind the other: bandwidth and rate"},
    {"pull", bench_pull, "weights, read again and again: bandwidth and rate"},
    {"rows", bench_rows, "rows of a table: read, gathered and pushed"},
    {"scale", bench_scale, "steps of many trainers and many parameters"},
    {"connect", bench_connect, "connections, made and left"},
    {"apply", bench_apply, "the update loops alone, against memcpy and triad"},
    {"step", bench_step, "whole training steps against the floor of this machine's memory"},
};

static void print_usage(FILE *to)
{
	fprintf(to, "Usage: gradslot bench BENCHMARK [OPTION]...\n\nBenchmarks:\n");
	for (size_t i = 0; i < sizeof(benchmarks) / sizeof(benchmarks[0]); i++)
		fprintf(to, "  %-10s%s\n", benchmarks[i].name, benchmarks[i].summary);
	fprintf(to, "\n`gradslot bench BENCHMARK --help` shows a benchmark's options.\n");
}

int cmd_bench(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	for (size_t i = 0; i < sizeof(benchmarks) / sizeof(benchmarks[0]); i++) {
		if (!strcmp(what, benchmarks[i].name))
			return benchmarks[i].run(argc - 1, argv + 1);
	}
	if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
		print_usage(stdout);
		return EXIT_OK;
	}
	if (*what)
		fprintf(stderr, "gradslot bench: there is no benchmark '%s'\n\n", what);
	print_usage(stderr);
	return EXIT_USAGE;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the benchmarks of single operations share: their options, the sweep, the processes, and the
 * figures of each point. A benchmark is a struct peer_loop (perf/loops.h), a table of the options
 * that it takes, and a line in cli/bench.c and cli/bench_peer.c.
 *
 * For each point of the sweep, and each of its rounds, a server and trainers are started anew;
 * before and behind each round the hand-over of a cache line between two cores is measured.
 */
#ifndef GS_CLI_BENCH_FRAME_H
#define GS_CLI_BENCH_FRAME_H

#include "cli/job.h"
#include "cli/numlist.h"
#include "cli/opt.h"
#include "perf/peer.h"

enum { BENCH_ROUNDS_MAX = 100, BENCH_POINTS_MAX = 256 };

struct bench_frame {
	const char *name;
	const struct peer_loop *loop;
	struct job_server server;
	struct numlist sizes, params, trainers;
	int mode; /* 0: async, 1: sync */
	int read; /* enum peer_read */
	int64_t iters, duration_s, warmup, rounds;
	int64_t table; /* rows, and what goes with it */
	const char *optimizer;
	bool near, zipf;
	bool copy, many, one, json, serve;
	const char *connect, *plot;
};

struct bench_point {
	int64_t bytes, params, trainers;
	uint64_t *ns[PEER_SERIES]; /* of all trainers and rounds; sorted once all are there */
	size_t n;
	double per_s, gb_per_s;             /* gradients (or pulls) a second, 10^9 bytes a second */
	double cpu_us, server_cpu_us;       /* of each; the second NAN: on another machine */
	double instr, server_instr;         /* of each; NAN: not counted here */
	double probe[2 * BENCH_ROUNDS_MAX]; /* ns; NAN: there was no turn on two cores */
	unsigned n_probes;
	uint32_t blocks, slots;
	char transport[192];
};

/* Defaults: async, 4 KiB, one parameter, one trainer. */
struct bench_frame bench_frame_default(const struct peer_loop *loop);

extern const char *const bench_modes[], *const bench_reads[];

/* Lines of an option table that fill the struct bench_frame `f`: those of all, and those that some
 * take. */
/* clang-format off */
#define BENCH_FRAME_LINES(f) \
	BENCH_SWEEP_LINES(f), \
	{"many", OPT_FLAG, &(f).many, NULL, \
	 .help = "hand all parameters over in one call (gs_push_many, gs_pull_many)"}, \
	BENCH_TIMES_LINES(f), \
	BENCH_WHERE_LINES(f), \
	BENCH_OUTPUT_LINES(f)
#define BENCH_SWEEP_LINES(f) \
	{"size", OPT_PARSED, &(f).sizes, "LIST", \
	 "bytes of each gradient: 4K, or 4K,64K,1M, or 4K:4M for powers of two", \
	 .parse = numlist_parse, .shown = "4K"}, \
	{"params", OPT_PARSED, &(f).params, "LIST", "parameters of that size, one after the other", \
	 .parse = numlist_parse, .shown = "1"}, \
	{"trainers", OPT_PARSED, &(f).trainers, "LIST", "processes that do it at the same time", \
	 .parse = numlist_parse, .shown = "1"}
#define BENCH_TIMES_LINES(f) \
	{"iters", OPT_NUMBER, &(f).iters, "N", "operations that are measured; with --duration: at least", \
	 .min = 1, .max = PEER_ITERS_MAX}, \
	{"duration", OPT_NUMBER, &(f).duration_s, "SECONDS", \
	 "measure each point for so long; 0: --iters alone says", .min = 0, .max = 3600}, \
	{"warmup", OPT_NUMBER, &(f).warmup, "N", "operations before the first measured one", \
	 .min = PEER_WARMUP_MIN, .max = PEER_ITERS_MAX}, \
	{"rounds", OPT_NUMBER, &(f).rounds, "N", "new processes so often, for each point", \
	 .min = 1, .max = BENCH_ROUNDS_MAX}
#define BENCH_WHERE_LINES(f) \
	JOB_SERVER_LINES((f).server), \
	{"uri", OPT_TEXT, &(f).server.uri, "URI", \
	 .help = "where the server listens, as `serve --listen` takes it"}, \
	{"depth", OPT_NUMBER, &(f).server.slots, "N", \
	 "slots: gradients of one block under way at once", .min = 1, .max = 8}, \
	{"block-size", OPT_SIZE, &(f).server.block, "BYTES", "longest block", .min = 1 << 10, \
	 .max = 1 << 30, .multiple = 1 << 10}, \
	{"server", OPT_FLAG, &(f).serve, NULL, \
	 .help = "be the server of clients on other hosts: print its URI, serve until Ctrl-C"}, \
	{"connect", OPT_TEXT, &(f).connect, "URI", .help = "be a client of such a server"}
#define BENCH_OUTPUT_LINES(f) \
	{"json", OPT_FLAG, &(f).json, NULL, .help = "print the result as one JSON object"}, \
	{"plot", OPT_TEXT, &(f).plot, "FILE.svg", .help = "draw the figures, with gnuplot"}
#define BENCH_MODE_LINE(f) \
	{"mode", OPT_CHOICE, &(f).mode, "MODE", \
	 "async: each gradient is applied as it comes; sync: in a step", .choices = bench_modes}
#define BENCH_COPY_LINE(f) \
	{"copy", OPT_FLAG, &(f).copy, NULL, \
	 .help = "push from ordinary memory instead of the gradient buffer"}
#define BENCH_READ_LINE(f) \
	{"read", OPT_CHOICE, &(f).read, "HOW", \
	 "relaxed, consistent or ordered pulls; view: in place (shm only); none (latency)", \
	 .choices = bench_reads}
/* clang-format on */

/* Returns OPT_RUN, or the status to exit with. */
int bench_frame_parse(struct bench_frame *f, const struct opt_command *cmd, int argc, char **argv);
/* Measures and prints, or serves. Returns the command's exit status. */
int bench_frame_run(struct bench_frame *f);
/* Both. */
int bench_frame_main(struct bench_frame *f, const struct opt_command *cmd, int argc, char **argv);

/* ---- the parts ------------------------------------------------------------------------------ */

/* Microseconds of series k of a sorted point. */
double bench_us(const struct bench_point *p, unsigned k, unsigned per_10000);
/* The probes' median, NAN without any; and whether they differ by so much that the host has moved a
 * core meanwhile (or one is missing). */
double bench_probe_ns(const struct bench_point *p, bool *moved);

/* cli/bench_output.c */
void bench_print_head(const struct bench_frame *f, const struct bench_point *first);
void bench_print_point(const struct bench_frame *f, const struct bench_point *p);
void bench_print_notes(const struct bench_frame *f, const struct bench_point *p, unsigned n);
int bench_print_json(const struct bench_frame *f, const struct bench_point *p, unsigned n);
/* cli/bench_plot.c: into the file f->plot. */
int bench_plot(const struct bench_frame *f, const struct bench_point *p, unsigned n);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench step`: times whole training steps of trainers and a server that are processes of
 * their own, and in the same run the floor: what the memory of this machine would need for the same
 * bytes. perf/METHOD.md says what each figure is.
 */
#include "cli/bench.h"
#include "cli/bench_job.h"
#include "cli/job.h"
#include "cli/json.h"

#include "base/err.h"
#include "base/log.h"
#include "kernels/kern.h"
#include "perf/floor.h"
#include "perf/percentile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 100 };

struct bench {
	struct bench_run run;
	struct job_server server;
	int64_t duration_s, rounds;
	bool json;
	uint64_t *samples; /* of all trainers and rounds, then sorted */
	size_t n;
	unsigned reported;             /* trainers of this round */
	double floors[ROUNDS_MAX + 1]; /* before the first round, and after each */
};

/* ---- measuring ------------------------------------------------------------------------------- */

static int on_line(void *arg, unsigned number, char *text)
{
	struct bench *b = arg;
	json_t *line, *list;

	(void)number;
	int rc = json_from_line(text, &line);
	if (rc < 0)
		return rc;
	list = json_object_get(line, "ns");
	size_t more = json_array_size(list);
	uint64_t *all = realloc(b->samples, (b->n + more + 1) * sizeof(*all));
	if (all) {
		b->samples = all;
		for (size_t i = 0; i < more; i++)
			all[b->n++] = (uint64_t)json_integer_value(json_array_get(list, i));
		b->reported++;
	}
	json_decref(line);
	return all ? 0 : err_set(ENOMEM, "no memory for the times");
}

static int start_trainers(struct bench *b, struct job *job, int64_t iters)
{
	const struct bench_run *run = &b->run;
	int rc = 0;

	for (int64_t rank = 0; rank < b->server.trainers && rc == 0; rank++) {
		struct child_args args = {0};
		char name[32];

		snprintf(name, sizeof(name), "trainer %" PRId64, rank);
		child_arg(&args, "bench-trainer");
		child_arg(&args, "--uri=%s", job_uri(job));
		child_arg(&args, "--rank=%" PRId64, rank);
		job_spin_arg(&args, &b->server.opt);
		child_arg(&args, "--size=%" PRId64, run->size);
		child_arg(&args, "--optimizer=%s", bench_optimizers[run->optimizer]);
		child_arg(&args, "--iters=%" PRId64, iters);
		child_arg(&args, "--milliseconds=%" PRId64, b->duration_s * 1000 / b->rounds);
		child_arg(&args, "--warmup=%" PRId64, run->warmup);
		if (run->copy)
			child_arg(&args, "--copy");
		if (run->view)
			child_arg(&args, "--view");
		if (run->no_pipeline)
			child_arg(&args, "--no-pipeline");
		rc = job_start(job, name, &args);
	}
	return rc;
}

/* A server and trainers that are new for each round, so that one lucky or unlucky placement in
 * memory does not stand for all. */
static int run_round(struct bench *b, struct job **job, int64_t iters)
{
	b->reported = 0;
	int rc = job_create("bench", job);

	if (rc == 0)
		rc = job_start_server(*job, &b->server);
	if (rc == 0)
		rc = start_trainers(b, *job, iters);
	if (rc == 0)
		rc = job_run(*job, on_line, b);
	if (rc == 0 && b->reported != b->server.trainers)
		rc = err_set(EPROTO, "%u of %" PRId64 " trainers gave no times",
			     (unsigned)b->server.trainers - b->reported, b->server.trainers);
	return rc;
}

static int measure_floor(const struct bench *b, double *us)
{
	const struct kern_setting lr = {"lr", 0};
	struct kern_opt opt;
	int rc = kern_opt_parse(bench_optimizers[b->run.optimizer], &lr, 1, &opt);

	if (rc)
		return rc;
	return floor_step_us((size_t)b->run.size, kern_opt_arrays(&opt), b->run.copy, us);
}

/* Rounds of steps, with a look at the floor between them. *job is what to abandon after a failure.
 */
static int measure(struct bench *b, struct job **job)
{
	int64_t iters = b->run.iters;
	int rc = measure_floor(b, &b->floors[0]);

	for (int64_t r = 0; r < b->rounds && rc == 0; r++) {
		fprintf(stderr, "round %" PRId64 " of %" PRId64 "\n", r + 1, b->rounds);
		rc = run_round(b, job, iters * (r + 1) / b->rounds - iters * r / b->rounds);
		if (rc < 0)
			break;
		job_destroy(*job);
		*job = NULL;
		rc = measure_floor(b, &b->floors[r + 1]);
	}
	return rc;
}

/* ---- the result ------------------------------------------------------------------------------ */

struct figures {
	double p50, p90, p99, p999, min, max, mean; /* µs */
	double bytes, gb_per_s, floor, ratio;
};

static double us(const struct bench *b, unsigned per_10000)
{
	return (double)perf_percentile(b->samples, b->n, per_10000) / 1e3;
}

static double median(const double *values, size_t n)
{
	double sorted[ROUNDS_MAX + 1];

	memcpy(sorted, values, n * sizeof(sorted[0]));
	perf_sort_real(sorted, n);
	return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static struct figures figures(struct bench *b)
{
	struct figures f = {0};

	perf_sort(b->samples, b->n);
	for (size_t i = 0; i < b->n; i++)
		f.mean += (double)b->samples[i] / 1e3 / (double)b->n;
	f.p50 = us(b, 5000);
	f.p90 = us(b, 9000);
	f.p99 = us(b, 9900);
	f.p999 = us(b, 9990);
	f.min = us(b, 0);
	f.max = us(b, 10000);
	/* The gradient to the server and the weights back, for each trainer. */
	f.bytes = 2.0 * (double)b->run.size * (double)b->server.trainers;
	f.gb_per_s = f.bytes / f.p50 / 1e3;
	f.floor = median(b->floors, (size_t)b->rounds + 1);
	f.ratio = f.floor / f.p50;
	return f;
}

static json_t *config_json(const struct bench *b)
{
	const struct bench_run *run = &b->run;
	const struct srvopt *s = &b->server.opt;

	return json_pack(
	    "{s:s, s:I, s:I, s:s, s:b, s:b, s:b, s:I, s:I, s:o, s:I, s:I, s:I, s:I}", "transport",
	    job_transports[b->server.transport], "size", (json_int_t)run->size, "trainers",
	    (json_int_t)b->server.trainers, "optimizer", bench_optimizers[run->optimizer], "copy",
	    (int)run->copy, "view", (int)run->view, "pipeline", !run->no_pipeline, "workers",
	    (json_int_t)s->workers, "pollers", (json_int_t)s->pollers, "spin",
	    s->spin_us == SRV_SPIN_FOREVER ? json_string("forever") : json_integer(s->spin_us),
	    "warmup", (json_int_t)run->warmup, "iters", (json_int_t)run->iters, "duration_s",
	    (json_int_t)b->duration_s, "rounds", (json_int_t)b->rounds);
}

static int print_json(const struct bench *b, const struct figures *f)
{
	json_t *floors = json_array();

	for (int64_t i = 0; i <= b->rounds; i++)
		json_array_append_new(floors, json_real(b->floors[i]));
	return json_result(json_pack(
	    "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:o, s:I, s:o}", "step_us_p50",
	    f->p50, "step_us_p90", f->p90, "step_us_p99", f->p99, "step_us_p99_9", f->p999,
	    "step_us_min", f->min, "step_us_max", f->max, "step_us_mean", f->mean, "bytes_moved",
	    (json_int_t)f->bytes, "gb_per_s", f->gb_per_s, "floor_us", f->floor, "ratio_to_floor",
	    f->ratio, "floors_us", floors, "samples", (json_int_t)b->n, "config", config_json(b)));
}

static int print_table(const struct bench *b, const struct figures *f)
{
	char size[32];

	printf("%s over %s, %s, %s, %s; trainers %" PRId64 ", pollers %" PRId64 ", workers %" PRId64
	       "\n\n",
	       opt_size_text(b->run.size, size), job_transports[b->server.transport],
	       bench_optimizers[b->run.optimizer], b->run.copy ? "copied" : "zero copy",
	       b->run.view ? "read in place" : "pulled", b->server.trainers, b->server.opt.pollers,
	       b->server.opt.workers);
	printf("  step, us     p50 %.1f   p90 %.1f   p99 %.1f   p99.9 %.1f\n", f->p50, f->p90,
	       f->p99, f->p999);
	printf("               min %.1f   mean %.1f   max %.1f   (%zu samples)\n", f->min, f->mean,
	       f->max, b->n);
	printf("  moved        %.0f bytes a step, %.3f GB/s\n", f->bytes, f->gb_per_s);
	printf("  floor, us    %.1f   (median of", f->floor);
	for (int64_t i = 0; i <= b->rounds; i++)
		printf(" %.1f", b->floors[i]);
	printf(")\n");
	printf("  floor/step   %.3f\n", f->ratio);
	return 0;
}

static int bench_step_main(struct bench *b)
{
	struct job *job = NULL;

	int rc = measure(b, &job);
	if (rc < 0)
		return job_abandon(job);
	struct figures f = figures(b);
	rc = b->json ? print_json(b, &f) : print_table(b, &f);
	if (rc < 0)
		log_error("%s", err_text());
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}

int bench_step(int argc, char **argv)
{
	struct bench b = {.run = bench_run_default(),
			  .server = {.opt = srvopt_default(), .mode = "sync", .trainers = 1},
			  .duration_s = 3,
			  .rounds = 3};
	const struct opt opts[] = {
	    JOB_SERVER_LINES(b.server),
	    {"trainers", OPT_NUMBER, &b.server.trainers, "N", "processes that push and pull",
	     .min = 1, .max = SRV_MAX_TRAINERS},
	    {"block-size", OPT_SIZE, &b.server.block, "BYTES",
	     "longest block; 0: the server's own choice", .max = 1 << 30, .multiple = 1 << 10},
	    BENCH_RUN_LINES(b.run),
	    {"duration", OPT_NUMBER, &b.duration_s, "SECONDS",
	     "measure for so long; 0: --iters alone says", .min = 0, .max = 3600},
	    {"rounds", OPT_NUMBER, &b.rounds, "N",
	     "new processes so often, and a look at the floor in between", .min = 1,
	     .max = ROUNDS_MAX},
	    {"json", OPT_FLAG, &b.json, NULL, .help = "print the result as one JSON object"},
	    {NULL},
	};
	const struct opt_command cmd = {
	    "gradslot bench step",
	    "Times synchronous steps (gradient to the server, update, weights back) of trainers "
	    "and\n"
	    "a server on this machine, and the floor of the same bytes in the same run.",
	    NULL, opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc == OPT_RUN)
		rc = job_server_check(&cmd, &b.server);
	if (rc != OPT_RUN)
		return rc;
	if (b.server.transport == JOB_RDMA && b.run.view)
		return opt_usage(&cmd, "--view goes with --transport shm only: over rdma there is "
				       "nothing to read in place");
	if (b.rounds > b.run.iters)
		return opt_usage(&cmd, "--rounds %" PRId64 " is more than --iters %" PRId64,
				 b.rounds, b.run.iters);
	rc = bench_step_main(&b);
	free(b.samples);
	return rc;
}

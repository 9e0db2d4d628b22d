/* SPDX-License-Identifier: Apache-2.0
 *
 * The sweep.
 */
#include "cli/bench_frame.h"

#include "base/err.h"
#include "base/log.h"
#include "cli/json.h"
#include "cli/plot.h"
#include "cli/progress.h"
#include "perf/loops.h"
#include "perf/percentile.h"
#include "perf/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Probes that differ by more are of other pairs of cores. */
static const double moved_ratio = 1.25;

const char *const bench_modes[] = {"async", "sync", NULL};
const char *const bench_reads[] = {"relaxed", "consistent", "ordered", "view", "none", NULL};

struct bench_frame bench_frame_default(const struct peer_loop *loop)
{
	return (struct bench_frame){
	    .name = loop->name,
	    .loop = loop,
	    .server = {.opt = srvopt_default(),
		       .mode = "async",
		       .trainers = 1,
		       .slots = 2,
		       .block = 256 << 10},
	    .sizes =
		{.value = {4096}, .n = 1, .min = 4, .max = 1 << 30, .multiple = 4, .sizes = true},
	    .params = {.value = {1}, .n = 1, .min = 1, .max = PEER_PARAMS_MAX},
	    .trainers = {.value = {1}, .n = 1, .min = 1, .max = 64},
	    .iters = 1000,
	    .duration_s = 0,
	    .warmup = 100,
	    .rounds = 1,
	    .table = 1,
	    .optimizer = "sgd",
	};
}

/* ---- one round ------------------------------------------------------------------------------ */

/* What the trainers of a round report, on their way into a point. */
struct round {
	struct bench_frame *f;
	struct bench_point *p;
	unsigned reported;
	uint64_t before, after, pushed; /* gradients: least, most, sum */
	bool others;                    /* somebody else's trainers are at the server, too */
	double per_s, cpu_ns, server_cpu_ns, instr, server_instr, ops;
};

static int take_samples(struct round *r, json_t *line)
{
	struct bench_point *p = r->p;
	json_t *list = json_object_get(line, "ns");
	size_t more = json_array_size(json_array_get(list, 0));

	for (unsigned k = 0; r->f->loop->series[k]; k++) {
		json_t *from = json_array_get(list, k);
		uint64_t *all = realloc(p->ns[k], (p->n + more + 1) * sizeof(*all));

		if (json_array_size(from) != more)
			return err_set(EPROTO, "a trainer's series are not of one length");
		if (!all)
			return err_set(ENOMEM, "no memory for the times");
		p->ns[k] = all;
		for (size_t i = 0; i < more; i++)
			all[p->n + i] = (uint64_t)json_integer_value(json_array_get(from, i));
	}
	p->n += more;
	return more ? 0 : err_set(EPROTO, "a trainer gave no times");
}

static double number(json_t *line, const char *name)
{
	json_t *value = json_object_get(line, name);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

static double larger(double a, double b)
{
	return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static int take_line(struct round *r, json_t *line)
{
	double before = number(line, "before"), after = number(line, "after"),
	       pushed = number(line, "pushed"), ops = number(line, "ops");
	const char *transport = json_string_value(json_object_get(line, "transport"));
	int rc = take_samples(r, line);

	if (rc < 0)
		return rc;
	if (!(before >= 0 && after >= 0 && pushed >= 0 && ops > 0) || !transport)
		return err_set(EPROTO, "a trainer's line is not complete");
	if (!r->reported || (uint64_t)before < r->before)
		r->before = (uint64_t)before;
	if ((uint64_t)after > r->after)
		r->after = (uint64_t)after;
	r->pushed += (uint64_t)pushed;
	r->others |= number(line, "trainers") != (double)r->p->trainers;
	r->ops += ops;
	r->per_s += ops / number(line, "wall_ns") * 1e9;
	r->cpu_ns += number(line, "cpu_ns");
	r->instr += number(line, "instructions");
	/* One server: the longest look at it is that of all. */
	r->server_cpu_ns = larger(r->server_cpu_ns, number(line, "server_cpu_ns"));
	r->server_instr = larger(r->server_instr, number(line, "server_instructions"));
	snprintf(r->p->transport, sizeof(r->p->transport), "%s", transport);
	r->p->blocks = (uint32_t)number(line, "blocks");
	r->p->slots = (uint32_t)number(line, "slots");
	r->reported++;
	return 0;
}

static int on_line(void *arg, unsigned n, char *text)
{
	json_t *line;
	int rc = json_from_line(text, &line);

	(void)n;
	if (rc < 0)
		return rc;
	rc = take_line(arg, line);
	json_decref(line);
	return rc;
}

static int start_trainer(const struct bench_frame *f, const struct bench_point *p, struct job *job,
			 int64_t number, int64_t iters)
{
	struct child_args args = {0};
	char name[32];

	snprintf(name, sizeof(name), "trainer %" PRId64, number);
	child_arg(&args, "bench-peer");
	child_arg(&args, "--benchmark=%s", f->loop->name);
	child_arg(&args, "--uri=%s", job_uri(job));
	child_arg(&args, "--server-pid=%d", (int)job_server_pid(job));
	job_spin_arg(&args, &f->server.opt);
	child_arg(&args, "--mode=%s", bench_modes[f->mode]);
	child_arg(&args, "--read=%s", bench_reads[f->read]);
	child_arg(&args, "--size=%" PRId64, p->bytes);
	child_arg(&args, "--params=%" PRId64, p->params);
	child_arg(&args, "--iters=%" PRId64, iters);
	child_arg(&args, "--milliseconds=%" PRId64, f->duration_s * 1000 / f->rounds);
	child_arg(&args, "--warmup=%" PRId64, f->warmup);
	if (f->copy)
		child_arg(&args, "--copy");
	if (f->many)
		child_arg(&args, "--many");
	if (f->one)
		child_arg(&args, "--one");
	if (f->near)
		child_arg(&args, "--near");
	if (f->zipf)
		child_arg(&args, "--zipf");
	child_arg(&args, "--table=%" PRId64, f->table);
	child_arg(&args, "--optimizer=%s", f->optimizer);
	return job_start(job, name, &args);
}

static int run_job(struct round *r, struct job *job, int64_t iters)
{
	struct bench_frame *f = r->f;
	int rc = 0;

	f->server.trainers = r->p->trainers;
	f->server.mode = bench_modes[f->mode];
	f->server.stays = f->loop->connects;
	if (f->connect)
		job_use_server(job, f->connect);
	else
		rc = job_start_server(job, &f->server);
	for (int64_t i = 0; i < r->p->trainers && rc == 0; i++)
		rc = start_trainer(f, r->p, job, i, iters);
	return rc < 0 ? rc : job_run(job, on_line, r);
}

/* What all trainers pushed is in the weights, once. */
static int check_round(const struct round *r)
{
	if (r->reported != r->p->trainers)
		return err_set(EPROTO, "%u of %" PRId64 " trainers gave no times",
			       (unsigned)r->p->trainers - r->reported, r->p->trainers);
	if (!r->others && r->after != r->before + r->pushed)
		return err_set(EBADMSG,
			       "the weights have %" PRIu64 " gradients in them; they had %" PRIu64
			       ", and %" PRIu64 " were pushed",
			       r->after, r->before, r->pushed);
	return 0;
}

static void add_probe(struct bench_point *p)
{
	p->probe[p->n_probes++] = probe_core_to_core_ns();
}

/* *job is what to abandon after a failure. */
static int run_round(struct bench_frame *f, struct bench_point *p, struct job **job, int64_t iters)
{
	struct round r = {.f = f, .p = p};

	add_probe(p);
	int rc = job_create("bench", job);
	if (rc == 0)
		rc = run_job(&r, *job, iters);
	if (rc == 0)
		rc = check_round(&r);
	if (rc < 0)
		return rc;
	job_destroy(*job);
	*job = NULL;
	add_probe(p);
	double share = 1.0 / (double)f->rounds;
	p->per_s += r.per_s * share;
	p->cpu_us += r.cpu_ns / r.ops / 1e3 * share;
	p->server_cpu_us += r.server_cpu_ns / r.ops / 1e3 * share;
	p->instr += r.instr / r.ops * share;
	p->server_instr += r.server_instr / r.ops * share;
	return 0;
}

static int run_point(struct bench_frame *f, struct bench_point *p, struct job **job)
{
	struct peer_config c = {
	    .bytes = (uint64_t)p->bytes, .params = (uint32_t)p->params, .one = f->one};
	int rc = 0;

	for (int64_t r = 0; r < f->rounds && rc == 0; r++)
		rc =
		    run_round(f, p, job, f->iters * (r + 1) / f->rounds - f->iters * r / f->rounds);
	if (rc < 0)
		return rc;
	for (unsigned k = 0; f->loop->series[k]; k++)
		perf_sort(p->ns[k], p->n);
	p->gb_per_s = p->per_s / f->loop->messages(&c) * (double)f->loop->moved(&c) / 1e9;
	return 0;
}

/* ---- figures -------------------------------------------------------------------------------- */

double bench_us(const struct bench_point *p, unsigned k, unsigned per_10000)
{
	return (double)perf_percentile(p->ns[k], p->n, per_10000) / 1e3;
}

double bench_probe_ns(const struct bench_point *p, bool *moved)
{
	double known[2 * BENCH_ROUNDS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < p->n_probes; i++) {
		if (!isnan(p->probe[i]))
			known[n++] = p->probe[i];
	}
	perf_sort_real(known, n);
	*moved = n != p->n_probes || (n && known[n - 1] > known[0] * moved_ratio);
	return n ? known[(n - 1) / 2] : NAN;
}

/* ---- the sweep ------------------------------------------------------------------------------ */

static unsigned make_points(const struct bench_frame *f, struct bench_point *p)
{
	unsigned n = 0;

	for (unsigned t = 0; t < f->trainers.n; t++)
		for (unsigned k = 0; k < f->params.n; k++)
			for (unsigned s = 0; s < f->sizes.n; s++)
				p[n++] = (struct bench_point){.bytes = f->sizes.value[s],
							      .params = f->params.value[k],
							      .trainers = f->trainers.value[t]};
	return n;
}

static int sweep(struct bench_frame *f, struct bench_point *p, unsigned n, struct job **job)
{
	struct progress progress = progress_begin();
	char size[32];
	int rc = 0;

	for (unsigned i = 0; i < n && rc == 0; i++) {
		if (progress.tty)
			progress_show(&progress, false, "%s %s: %u of %u", f->name,
				      opt_size_text(p[i].bytes, size), i + 1, n);
		f->server.quiet = i > 0; /* what it warns of, it has said */
		rc = run_point(f, &p[i], job);
		if (progress.line_open) {
			fputs("\r\033[K", stderr);
			progress.line_open = false;
		}
		if (rc < 0 || f->json)
			continue;
		if (i == 0)
			bench_print_head(f, &p[0]);
		bench_print_point(f, &p[i]);
		fflush(stdout);
	}
	return rc;
}

static int measure(struct bench_frame *f)
{
	struct bench_point *p = calloc(BENCH_POINTS_MAX, sizeof(*p));
	struct job *job = NULL;
	int status = EXIT_FAILED;

	if (!p) {
		log_error("no memory for %d points", BENCH_POINTS_MAX);
		return status;
	}
	unsigned n = make_points(f, p);
	int rc = sweep(f, p, n, &job);
	if (rc < 0) {
		status = job_abandon(job);
	} else {
		if (f->json)
			rc = bench_print_json(f, p, n);
		else
			bench_print_notes(f, p, n);
		if (rc == 0 && f->plot)
			rc = bench_plot(f, p, n);
		if (rc < 0)
			log_error("%s", err_text());
		status = rc < 0 ? EXIT_FAILED : EXIT_OK;
	}
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < PEER_SERIES; k++)
			free(p[i].ns[k]);
	free(p);
	return status;
}

/* ---- on two hosts --------------------------------------------------------------------------- */

/* A server for the clients of one point; the next gets a fresh one, whose weights begin anew. The
 * first settles the address: *uri is where all listen. */
static int serve_once(struct bench_frame *f, struct job **job, char *uri, size_t size)
{
	int rc = job_create("bench", job);

	if (rc == 0)
		rc = job_start_server(*job, &f->server);
	if (rc < 0)
		return rc;
	if (f->server.uri != uri) {
		snprintf(uri, size, "%s", job_uri(*job));
		f->server.uri = uri;
		printf("%s\n", uri);
		fflush(stdout);
	}
	rc = job_wait_server(*job);
	if (rc < 0)
		return rc;
	job_destroy(*job);
	*job = NULL;
	return 0;
}

static int serve(struct bench_frame *f)
{
	struct job *job = NULL;
	char uri[384];
	int rc;

	f->server.trainers = f->trainers.value[0];
	f->server.mode = bench_modes[f->mode];
	f->server.stays = f->loop->connects;
	do
		rc = serve_once(f, &job, uri, sizeof(uri));
	while (rc == 0);
	return job_abandon(job);
}

static int check(struct bench_frame *f, const struct opt_command *cmd)
{
	uint64_t points = (uint64_t)f->sizes.n * f->params.n * f->trainers.n;
	bool rdma = f->server.transport == JOB_RDMA ||
		    (f->server.uri && strncmp(f->server.uri, "shm:", 4)) ||
		    (f->connect && strncmp(f->connect, "shm:", 4));

	if (points > BENCH_POINTS_MAX)
		return opt_usage(cmd,
				 "the lists of --size, --params and --trainers make %" PRIu64
				 " points: there may be %d",
				 points, BENCH_POINTS_MAX);
	if (f->server.uri && f->server.address)
		return opt_usage(cmd, "--uri says it all: --address '%s' is one too many",
				 f->server.address);
	if (f->serve && f->connect)
		return opt_usage(cmd, "--server and --connect '%s' exclude one another",
				 f->connect);
	if (f->serve && f->trainers.n > 1)
		return opt_usage(cmd, "--server is for one number of --trainers: here are %u",
				 f->trainers.n);
	if (f->connect && f->trainers.n > 1)
		return opt_usage(
		    cmd, "--connect is to a server of one number of --trainers: here are %u",
		    f->trainers.n);
	if (f->connect && f->server.uri)
		return opt_usage(
		    cmd,
		    "--connect '%s' is to a server that listens already: --uri '%s' is one "
		    "too many",
		    f->connect, f->server.uri);
	if (rdma && f->read == PEER_VIEW)
		return opt_usage(cmd,
				 "--read view goes with shm only: over rdma there is nothing to "
				 "read in place");
	if (f->read == PEER_NOTHING && f->loop != &perf_latency)
		return opt_usage(cmd, "--read none goes with latency only: elsewhere it is what is timed");
	if (f->rounds > f->iters)
		return opt_usage(cmd, "--rounds %" PRId64 " is more than --iters %" PRId64,
				 f->rounds, f->iters);
	if (f->plot && plot_check(f->plot) < 0)
		return opt_usage(cmd, "--plot %s: %s", f->plot, err_text());
	return job_server_check(cmd, &f->server);
}

int bench_frame_parse(struct bench_frame *f, const struct opt_command *cmd, int argc, char **argv)
{
	int rc = opt_parse(cmd, argc, argv);

	return rc == OPT_RUN ? check(f, cmd) : rc;
}

int bench_frame_run(struct bench_frame *f)
{
	return f->serve ? serve(f) : measure(f);
}

int bench_frame_main(struct bench_frame *f, const struct opt_command *cmd, int argc, char **argv)
{
	int rc = bench_frame_parse(f, cmd, argc, argv);

	return rc == OPT_RUN ? bench_frame_run(f) : rc;
}

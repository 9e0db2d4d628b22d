/* SPDX-License-Identifier: Apache-2.0
 *
 * A step whose sides sleep, beside a round trip of two processes that wake one another: taken in turns,
 * so that what the machine does beside it falls on both.
 *
 *   perf_wake [ROUNDS]       prints one line of JSON
 *
 * The server is a process of its own with its default threads, none of which polls (spin 0), and so is the
 * trainer; each has a CPU. The ratio is the median of the rounds' ratios.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "gradslot/gradslot.h"
#include "perf/percentile.h"
#include "perf/wake.h"
#include "server/server.h"

enum { ELEMS = 1024, STEPS = 400, ROUNDS = 21, ROUNDS_MAX = 1000 };

static _Noreturn void serve(const char *uri)
{
	struct srv_options opt = srv_options_default();
	struct srv *srv;

	opt.listen[0] = uri;
	opt.n_listen = 1;
	opt.spin_us = 0;
	opt.exit_when_done = true;
	_exit(srv_create(&opt, &srv) < 0 || srv_run(srv) < 0);
}

struct job {
	gs_trainer *t;
	gs_param *w;
	float grad[ELEMS], weights[ELEMS];
};

static int join(struct job *job, const char *uri)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	opt.uri = uri;
	opt.spin_us = 0;
	d.name = "w";
	d.ndim = 1;
	d.shape[0] = ELEMS;
	d.optimizer = "sgd";
	gs_setting(&d, "lr", 0x1p-10);
	int rc = gs_connect(&opt, &job->t);
	if (rc == 0)
		rc = gs_declare(job->t, &d, &job->w);
	return rc < 0 ? rc : gs_start(job->t);
}

static int step(struct job *job)
{
	int rc = gs_push(job->t, job->w, job->grad);

	if (rc == 0)
		rc = gs_step_end(job->t);
	return rc < 0 ? rc : gs_pull(job->t, job->w, GS_RELAXED, job->weights);
}

/* The median of one round's steps, ns; 0: a step failed. */
static uint64_t steps(struct job *job)
{
	static uint64_t ns[STEPS];

	for (int i = 0; i < STEPS; i++) {
		uint64_t began = clock_ns();

		if (step(job) < 0)
			return 0;
		ns[i] = clock_ns() - began;
	}
	perf_sort(ns, STEPS);
	return perf_percentile(ns, STEPS, 5000);
}

static int measure(struct job *job, unsigned rounds)
{
	static uint64_t step_ns[ROUNDS_MAX], wake_ns[ROUNDS_MAX], ratio[ROUNDS_MAX];

	if (!steps(job)) /* warm */
		return -1;
	for (unsigned i = 0; i < rounds; i++) {
		wake_ns[i] = (uint64_t)(wake_round_trip_us(STEPS) * 1e3);
		step_ns[i] = steps(job);
		if (!wake_ns[i] || !step_ns[i])
			return -1;
		ratio[i] = step_ns[i] * 1000 / wake_ns[i];
	}
	perf_sort(step_ns, rounds);
	perf_sort(wake_ns, rounds);
	perf_sort(ratio, rounds);
	printf("{\"step_us\": %.2f, \"wake_us\": %.2f, \"ratio\": %.3f, \"ratio_p10\": %.3f, "
	       "\"ratio_p90\": %.3f}\n",
	       (double)perf_percentile(step_ns, rounds, 5000) / 1e3,
	       (double)perf_percentile(wake_ns, rounds, 5000) / 1e3,
	       (double)perf_percentile(ratio, rounds, 5000) / 1e3,
	       (double)perf_percentile(ratio, rounds, 1000) / 1e3,
	       (double)perf_percentile(ratio, rounds, 9000) / 1e3);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : ROUNDS;
	static struct job job;
	char uri[64];
	int status;

	if (rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "perf_wake: %u rounds; 1 to %d\n", rounds, ROUNDS_MAX);
		return 2;
	}
	snprintf(uri, sizeof(uri), "shm:wake-%d", (int)getpid());
	pid_t server = fork();

	if (server < 0)
		return 1;
	wake_pin(server == 0);
	if (server == 0)
		serve(uri);
	int rc = join(&job, uri);

	if (rc == 0)
		rc = measure(&job, rounds);
	if (rc == 0)
		rc = gs_leave(job.t);
	if (rc < 0)
		fprintf(stderr, "perf_wake: %s\n", gs_last_error());
	gs_close(job.t);
	if (rc < 0)
		kill(server, SIGTERM);
	waitpid(server, &status, 0);
	return rc < 0 || status != 0;
}

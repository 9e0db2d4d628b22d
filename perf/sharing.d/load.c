/* SPDX-License-Identifier: Apache-2.0
 *
 * What perf/sharing looks at: a server and trainers, all threads of this process, that make steps of
 * some parameters. The steps behind the first are watched; what came of it goes to stdout.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "gradslot/gradslot.h"
#include "perf/sharing.d/observe.h"
#include "server/server.h"

enum { SERVER, FIRST_TRAINER, MAX_TRAINERS = 8, WARMUP = 20 };

static struct job {
	uint32_t trainers, params, bytes, workers, steps;
	bool async;
	const char *uri;
	pthread_barrier_t barrier; /* all trainers, and who watches */
} job = {.trainers = 1, .params = 1, .bytes = 4096, .workers = 1, .steps = 200};

struct trainer {
	uint32_t rank;
	char name[16];
	gs_trainer *t;
	gs_param **p;
	void **grad, **dst;
};

static void check(int rc, const char *text)
{
	if (rc >= 0)
		return;
	log_error("%s", text);
	exit(2);
}

static void check_call(int rc)
{
	if (rc < 0)
		check(rc, gs_last_error());
}

static void *have(size_t n, size_t size)
{
	void *memory = aligned_alloc(64, (n * size + 63) / 64 * 64);

	if (!memory)
		check(-1, "no memory");
	return memset(memory, 0, (n * size + 63) / 64 * 64);
}

static void declare(struct trainer *w)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	char name[32];

	w->p = have(job.params, sizeof(gs_param *));
	w->grad = have(job.params, sizeof(void *));
	w->dst = have(job.params, sizeof(void *));
	d.name = name;
	d.ndim = 1;
	d.shape[0] = job.bytes / sizeof(float);
	gs_setting(&d, "lr", 0x1p-10);
	for (uint32_t i = 0; i < job.params; i++) {
		snprintf(name, sizeof(name), "layer%u", i);
		check_call(gs_declare(w->t, &d, &w->p[i]));
		w->dst[i] = have(1, job.bytes);
	}
}

static void step(struct trainer *w)
{
	for (uint32_t i = 0; i < job.params; i++)
		check_call(gs_grad_buffer(w->t, w->p[i], &w->grad[i]));
	check_call(gs_push_many(w->t, w->p, (const void *const *)w->grad, job.params));
	if (!job.async) {
		check_call(gs_step_pull(w->t, w->p, w->dst, job.params));
		return;
	}
	for (uint32_t i = 0; i < job.params; i++)
		check_call(gs_wait_applied(w->t, w->p[i]));
	check_call(gs_pull_many(w->t, w->p, w->dst, job.params, GS_RELAXED));
}

static void *train(void *arg)
{
	struct trainer *w = arg;
	struct gs_options opt = GS_OPTIONS_INIT;

	observe_process(FIRST_TRAINER + w->rank);
	observe_name(w->name);
	opt.uri = job.uri;
	opt.rank = (int32_t)w->rank;
	opt.spin_us = GS_SPIN_FOREVER;
	check_call(gs_connect(&opt, &w->t));
	declare(w);
	check_call(gs_start(w->t));
	for (uint32_t i = 0; i < WARMUP; i++)
		step(w);
	pthread_barrier_wait(&job.barrier); /* it is warm */
	pthread_barrier_wait(&job.barrier); /* it is watched */
	for (uint32_t i = 0; i < job.steps; i++)
		step(w);
	pthread_barrier_wait(&job.barrier);
	pthread_barrier_wait(&job.barrier); /* not any more */
	check_call(gs_leave(w->t));
	gs_close(w->t);
	return NULL;
}

static void *serve(void *srv)
{
	observe_name("control");
	check(srv_run(srv), err_text());
	return NULL;
}

static struct srv *create(void)
{
	struct srv_options opt = srv_options_default();
	struct srv *srv;
	char uri[64];

	snprintf(uri, sizeof(uri), "shm:sharing-%d", (int)getpid());
	opt.listen[0] = uri;
	opt.n_listen = 1;
	opt.trainers = job.trainers;
	opt.mode = job.async ? SRV_ASYNC : SRV_SYNC;
	opt.workers = job.workers;
	opt.spin_us = SRV_SPIN_FOREVER;
	opt.exit_when_done = true;
	observe_process(SERVER);
	check(srv_create(&opt, &srv), err_text());
	job.uri = srv_uri(srv, 0);
	return srv;
}

static void run(void)
{
	struct srv *srv = create();
	pthread_t server, thread[MAX_TRAINERS];
	static struct trainer w[MAX_TRAINERS];

	pthread_barrier_init(&job.barrier, NULL, job.trainers + 1);
	check(-pthread_create(&server, NULL, serve, srv), "no thread for the server");
	for (uint32_t i = 0; i < job.trainers; i++) {
		w[i].rank = i;
		snprintf(w[i].name, sizeof(w[i].name), "trainer %u", i);
		check(-pthread_create(&thread[i], NULL, train, &w[i]), "no thread for a trainer");
	}
	pthread_barrier_wait(&job.barrier);
	observe_begin();
	pthread_barrier_wait(&job.barrier);
	pthread_barrier_wait(&job.barrier);
	observe_end();
	pthread_barrier_wait(&job.barrier);
	for (uint32_t i = 0; i < job.trainers; i++)
		pthread_join(thread[i], NULL);
	pthread_join(server, NULL);
	srv_destroy(srv);
	observe_print(stdout, job.steps);
}

static uint32_t number(const char *text, uint32_t max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end || n > max) {
		log_error("%s: 0 to %u", text, max);
		exit(2);
	}
	return (uint32_t)n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"async", no_argument, NULL, 'a'},	{"trainers", required_argument, NULL, 't'},
		{"params", required_argument, NULL, 'p'}, {"bytes", required_argument, NULL, 'b'},
		{"workers", required_argument, NULL, 'w'}, {"steps", required_argument, NULL, 's'},
		{NULL, 0, NULL, 0}};
	int o;

	log_set_level(LOG_WARN);
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'a')
			job.async = true;
		else if (o == 't')
			job.trainers = number(optarg, MAX_TRAINERS);
		else if (o == 'p')
			job.params = number(optarg, 1000);
		else if (o == 'b')
			job.bytes = number(optarg, 1 << 20);
		else if (o == 'w')
			job.workers = number(optarg, 4);
		else if (o == 's')
			job.steps = number(optarg, 1000000);
		else
			return 2;
	}
	/* A poller, the workers, the trainers: all of them poll. */
	if (1 + job.workers + job.trainers > (uint32_t)sysconf(_SC_NPROCESSORS_ONLN))
		observe_take_turns();
	run();
	return 0;
}

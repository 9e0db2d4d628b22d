/* SPDX-License-Identifier: Apache-2.0
 *
 * Many small parameters against one of the same size: sync steps of one trainer, in turns, against a
 * server in this process. METHOD.md says what it is for.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "gradslot/gradslot.h"
#include "perf/percentile.h"
#include "server/server.h"

enum { SLOTS_MAX = 8, WARMUP = 16 };

/* A power of two, so that its sums are exact. */
static const float gradient_value = 0x1p-10f;

struct config {
	const char *uri;
	uint32_t params, elems; /* small ones; each of so many floats */
	uint32_t rounds, steps;
	bool copy; /* pushed from ordinary memory */
	bool ask;  /* for every buffer in every step */
};

/* What a step is made of: getting the buffers, pushing, and its end with the pull. */
enum { BUFFERS, PUSH, PULL, PHASES };

/* One kind of model: many parameters, or one. */
struct side {
	const char *name;
	uint32_t params;
	uint64_t elems;
	gs_trainer *t;
	gs_param **p;
	void **grad, **dst;
	void **kept[SLOTS_MAX]; /* buffers: they come again after as many steps as there are slots */
	float *weights, *own;
	uint64_t *ns;     /* of all its steps */
	uint64_t n, start_ns;
	uint64_t phase[PHASES]; /* sums */
};

static void check(int rc, const char *text)
{
	if (rc >= 0)
		return;
	log_error("%s", text);
	exit(1);
}

/* Of the library's: the text is asked for only if there is one. */
static void check_call(int rc)
{
	if (rc < 0)
		check(rc, gs_last_error());
}

static void *serve(void *srv)
{
	check(srv_run(srv), err_text());
	return NULL;
}

static void *must_have(void *memory)
{
	if (!memory)
		check(-ENOMEM, "no memory");
	return memory;
}

static void declare(struct side *s)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	char name[32];

	d.ndim = 1;
	d.shape[0] = s->elems;
	d.name = name;
	gs_setting(&d, "lr", 0x1p-10);
	for (uint32_t i = 0; i < s->params; i++) {
		snprintf(name, sizeof(name), "layer%u.bias", i);
		check(gs_declare(s->t, &d, &s->p[i]), gs_last_error());
	}
}

/* The buffers of this step's gradients. True: they are new. */
static bool get_buffers(struct side *s, const struct config *c)
{
	struct gs_info info;
	bool first;

	gs_get_info(s->t, &info);
	s->grad = s->kept[info.step % info.slots];
	first = !s->grad[0];
	for (uint32_t i = 0; i < s->params && (first || c->ask); i++)
		check_call(gs_grad_buffer(s->t, s->p[i], &s->grad[i]));
	return first;
}

static void forget_buffers(struct side *s)
{
	for (uint32_t i = 0; i < SLOTS_MAX; i++)
		s->kept[i][0] = NULL;
}

/* Each buffer holds its values from its first use on. */
static void fill(struct side *s)
{
	for (uint32_t i = 0; i < s->params; i++)
		for (uint64_t k = 0; k < s->elems; k++)
			((float *)s->grad[i])[k] = gradient_value;
}

static void phase(struct side *s, int which, uint64_t *at)
{
	uint64_t now = clock_ns();

	s->phase[which] += now - *at;
	*at = now;
}

static void one_step(struct side *s, const struct config *c)
{
	uint64_t at = clock_ns();

	if (!c->copy && get_buffers(s, c))
		fill(s);
	phase(s, BUFFERS, &at);
	check(gs_push_many(s->t, s->p, (const void *const *)s->grad, s->params), gs_last_error());
	phase(s, PUSH, &at);
	check(gs_step_pull(s->t, s->p, s->dst, s->params), gs_last_error());
	phase(s, PULL, &at);
}

static void measure(struct side *s, const struct config *c)
{
	uint64_t last;

	forget_buffers(s);
	for (uint32_t i = 0; i < WARMUP; i++)
		one_step(s, c);
	memset(s->phase, 0, sizeof(s->phase)); /* of the last round, that is */
	last = clock_ns();
	for (uint32_t i = 0; i < c->steps; i++) {
		one_step(s, c);
		uint64_t now = clock_ns();

		s->ns[s->n++] = now - last;
		last = now;
	}
	for (uint64_t i = 0; i < s->params * s->elems; i++)
		if (s->weights[i] != s->weights[0] || !(s->weights[i] < 0))
			check(-EBADMSG, "the weights are not what they should be");
}

static void one_round(struct side *s, const struct config *c)
{
	struct srv_options opt = srv_options_default();
	struct gs_options to = GS_OPTIONS_INIT;
	pthread_t thread;
	struct srv *srv;

	opt.listen[0] = c->uri;
	opt.n_listen = 1;
	opt.workers = 0;
	opt.insecure = true;
	opt.spin_us = SRV_SPIN_FOREVER;
	opt.on_loss = SRV_LOSS_CONTINUE;
	check(srv_create(&opt, &srv), err_text());
	to.uri = srv_uri(srv, 0);
	to.spin_us = GS_SPIN_FOREVER;
	if (pthread_create(&thread, NULL, serve, srv))
		check(-EAGAIN, "no thread for the server");
	check(gs_connect(&to, &s->t), gs_last_error());
	uint64_t began = clock_ns();
	declare(s);
	check(gs_start(s->t), gs_last_error());
	s->start_ns = clock_ns() - began;
	measure(s, c);
	check(gs_leave(s->t), gs_last_error());
	gs_close(s->t);
	srv_stop(srv);
	pthread_join(thread, NULL);
	srv_destroy(srv);
}

static void make(struct side *s, const struct config *c)
{
	uint64_t all = s->params * s->elems;

	s->p = must_have(calloc(s->params, sizeof(gs_param *)));
	for (uint32_t i = 0; i < SLOTS_MAX; i++)
		s->kept[i] = must_have(calloc(s->params, sizeof(void *)));
	s->grad = must_have(calloc(s->params, sizeof(void *)));
	s->dst = must_have(calloc(s->params, sizeof(void *)));
	s->weights = must_have(aligned_alloc(64, (all + 15) / 16 * 64));
	s->own = must_have(aligned_alloc(64, (all + 15) / 16 * 64));
	s->ns = must_have(calloc((size_t)c->rounds * c->steps, sizeof(uint64_t)));
	memset(s->weights, 0, all * sizeof(float)); /* no page fault under the clock */
	memset(s->own, 0, all * sizeof(float));
	for (uint32_t i = 0; i < s->params; i++) {
		s->dst[i] = s->weights + i * s->elems;
		s->grad[i] = s->own + i * s->elems;
	}
	if (c->copy)
		fill(s);
}

static double tell(struct side *s, const struct config *c)
{
	perf_sort(s->ns, s->n);
	double p50 = (double)perf_percentile(s->ns, s->n, 5000) / 1e3;

	printf("%-5s %7u x %8llu floats: step p50 %9.1f us, p90 %9.1f us; declared and started in "
	       "%.1f ms\n",
	       s->name, s->params, (unsigned long long)s->elems, p50,
	       (double)perf_percentile(s->ns, s->n, 9000) / 1e3, (double)s->start_ns / 1e6);
	printf("      buffers %.1f, push %.1f, step and pull %.1f us on average\n",
	       (double)s->phase[BUFFERS] / c->steps / 1e3, (double)s->phase[PUSH] / c->steps / 1e3,
	       (double)s->phase[PULL] / c->steps / 1e3);
	return p50;
}

static void usage(const char *self)
{
	fprintf(stderr,
		"Usage: %s [--params N] [--elems N] [--rounds N] [--steps N] [--copy] [--ask] [--listen URI]\n",
		self);
	exit(2);
}

static uint32_t number(const char *self, const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || n < 1 || n > 10000000)
		usage(self);
	return (uint32_t)n;
}

static void parse(int argc, char **argv, struct config *c)
{
	static const struct option options[] = {
		{"params", required_argument, NULL, 'p'}, {"elems", required_argument, NULL, 'e'},
		{"rounds", required_argument, NULL, 'r'}, {"steps", required_argument, NULL, 's'},
		{"copy", no_argument, NULL, 'c'},	  {"listen", required_argument, NULL, 'l'},
		{"ask", no_argument, NULL, 'a'},
		{NULL, 0, NULL, 0}};
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'p')
			c->params = number(argv[0], optarg);
		else if (o == 'e')
			c->elems = number(argv[0], optarg);
		else if (o == 'r')
			c->rounds = number(argv[0], optarg);
		else if (o == 's')
			c->steps = number(argv[0], optarg);
		else if (o == 'c')
			c->copy = true;
		else if (o == 'a')
			c->ask = true;
		else if (o == 'l')
			c->uri = optarg;
		else
			usage(argv[0]);
	}
}

int main(int argc, char **argv)
{
	struct config c = {"shm:perf-many", 10000, 256, 5, 200, false, false};

	log_set_level(LOG_WARN);
	parse(argc, argv, &c);
	struct side many = {.name = "many", .params = c.params, .elems = c.elems};
	struct side one = {.name = "one", .params = 1, .elems = (uint64_t)c.params * c.elems};

	make(&many, &c);
	make(&one, &c);
	for (uint32_t i = 0; i < c.rounds; i++) {
		one_round(&many, &c);
		one_round(&one, &c);
	}
	double ratio = tell(&many, &c) / tell(&one, &c);
	printf("ratio %.2f\n", ratio);
	return 0;
}

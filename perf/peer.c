/* SPDX-License-Identifier: Apache-2.0
 *
 * What all loops of a benchmark's trainer share.
 */
#include "perf/peer.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

enum {
	/* Samples that a millisecond may give room for, with a duration. */
	RATE_MAX = 4000,
	LINE = 64,
	/* How long a server on another host may take from one run's end to the next one's begin. */
	BETWEEN_MS = 5000,
	PAUSE_MS = 20,
};

int peer_lib(int rc)
{
	return rc < 0 ? err_set(-rc, "%s", gs_last_error()) : 0;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* What one parameter takes where several lie behind one another: each begins on a line. */
static size_t stride(const struct peer *p)
{
	return (p->elems * sizeof(float) + LINE - 1) / LINE * LINE / sizeof(float);
}

static uint32_t all_params(const struct peer *p)
{
	return p->config->params + p->config->one;
}

static size_t elems_of(const struct peer *p, uint32_t i)
{
	return i < p->config->params ? p->elems : p->elems * p->config->params;
}

/* Elements of memory for all of them. */
static size_t room_for_all(const struct peer *p)
{
	return p->config->params * stride(p) * (1 + p->config->one);
}

static void fill(float *to, size_t elems, float value)
{
	for (size_t i = 0; i < elems; i++)
		to[i] = value;
}

static int make_memory(struct peer *p)
{
	size_t n = all_params(p), bytes = room_for_all(p) * sizeof(float);

	p->param = calloc(n, sizeof(*p->param));
	p->grad = calloc(n, sizeof(*p->grad));
	p->dst = calloc(n, sizeof(*p->dst));
	p->view = calloc(n, sizeof(*p->view));
	p->filled = calloc(n, sizeof(*p->filled));
	p->weights = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	p->own = p->config->copy ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : NULL;
	if (!p->param || !p->grad || !p->dst || !p->view || !p->filled || !p->weights ||
	    (p->config->copy && !p->own))
		return err_set(ENOMEM, "no memory for weights and gradients of %zu bytes", bytes);
	memset(p->weights, 0, bytes); /* no page fault under the clock */
	if (p->own)
		fill(p->own, room_for_all(p), PEER_GRADIENT);
	for (size_t i = 0; i < n; i++) {
		p->dst[i] = p->weights + i * stride(p);
		p->grad[i] = p->own ? p->own + i * stride(p) : NULL;
	}
	return 0;
}

static void free_memory(struct peer *p)
{
	free(p->param);
	free(p->grad);
	free(p->dst);
	free(p->view);
	free(p->filled);
	free(p->weights);
	free(p->own);
}

/* As many samples as there is time for, with their pages. */
static int make_room(const struct peer *p, struct peer_result *out, size_t *room)
{
	const struct peer_config *c = p->config;
	uint64_t wanted = (uint64_t)c->duration_ms * RATE_MAX;

	*room = wanted < PEER_ITERS_MAX ? (size_t)wanted : PEER_ITERS_MAX;
	*room = *room < c->iters ? c->iters : *room;
	for (unsigned k = 0; p->loop->series[k]; k++) {
		out->ns[k] = malloc(*room * sizeof(uint64_t));
		if (!out->ns[k])
			return err_set(ENOMEM, "no memory for %zu times", *room);
		memset(out->ns[k], 0, *room * sizeof(uint64_t));
	}
	return 0;
}

/* ---- connecting ----------------------------------------------------------------------------- */

int peer_connect(struct peer *p)
{
	struct gs_options opt = GS_OPTIONS_INIT;

	opt.uri = p->config->uri;
	opt.name = "bench";
	opt.spin_us = p->config->spin_us;
	return peer_lib(gs_connect(&opt, &p->trainer));
}

int peer_declare(struct peer *p)
{
	char name[64];
	int rc = 0;

	if (p->loop->declare)
		return p->loop->declare(p);
	for (uint32_t i = 0; i < all_params(p) && rc == 0; i++) {
		struct gs_param_desc d = GS_PARAM_DESC_INIT;

		snprintf(name, sizeof(name), "bench %" PRIu64 " %" PRIu32, p->config->bytes, i);
		d.name = name;
		d.ndim = 1;
		d.shape[0] = elems_of(p, i);
		d.optimizer = "sgd";
		d.reduce = GS_SUM; /* of powers of two: exact for any number of trainers */
		gs_setting(&d, "lr", PEER_RATE);
		rc = peer_lib(gs_declare(p->trainer, &d, &p->param[i]));
	}
	return rc;
}

int peer_start(struct peer *p)
{
	int rc = peer_lib(gs_start(p->trainer));

	if (rc < 0)
		return rc;
	gs_get_info(p->trainer, &p->info);
	if ((p->info.mode == GS_SYNC) != p->config->sync || p->info.mode == GS_SSP)
		return err_set(
		    EINVAL,
		    "the server is in %s mode, this benchmark was asked for in %s: give both "
		    "the same --mode",
		    p->info.mode == GS_SYNC  ? "sync"
		    : p->info.mode == GS_SSP ? "ssp"
					     : "async",
		    p->config->sync ? "sync" : "async");
	for (uint32_t i = 0; p->config->read == PEER_VIEW && i < p->config->params && rc == 0; i++)
		rc = peer_lib(gs_weights_view(p->trainer, p->param[i], &p->view[i]));
	return rc;
}

/* ---- operations ----------------------------------------------------------------------------- */

int peer_gradient(struct peer *p, uint32_t i)
{
	float *to, **known = p->filled[i];
	unsigned k = 0;

	if (p->own)
		return 0;
	int rc = peer_lib(gs_grad_buffer(p->trainer, p->param[i], (void **)&to));

	if (rc < 0)
		return rc;
	p->grad[i] = to;
	while (k < PEER_BUFFERS && known[k] && known[k] != to)
		k++;
	if (k < PEER_BUFFERS && known[k])
		return 0;
	fill(to, elems_of(p, i), PEER_GRADIENT);
	if (k < PEER_BUFFERS)
		known[k] = to;
	return 0;
}

int peer_push(struct peer *p)
{
	uint32_t n = p->config->params;
	int rc = 0;

	if (p->config->many) {
		for (uint32_t i = 0; i < n && rc == 0; i++)
			rc = peer_gradient(p, i);
		if (rc == 0)
			rc = peer_lib(gs_push_many(p->trainer, p->param, p->grad, n));
	}
	for (uint32_t i = 0; i < n && !p->config->many && rc == 0; i++) {
		rc = peer_gradient(p, i);
		if (rc == 0)
			rc = peer_lib(gs_push(p->trainer, p->param[i], p->grad[i]));
	}
	p->pushed += rc == 0;
	return rc;
}

/* Loads every byte of the weights where they are. */
static void read_in_place(struct peer *p)
{
	uint64_t sum = 0;

	for (uint32_t k = 0; k < p->config->params; k++) {
		const uint32_t *word = p->view[k];

		for (size_t i = 0; i < p->elems; i++)
			sum += word[i];
	}
	p->sum += sum;
	/* Other threads write them: the next call has to load them anew. */
	__asm__ volatile("" : : "r"(sum) : "memory");
}

int peer_pull(struct peer *p)
{
	static const enum gs_consistency hows[] = {GS_RELAXED, GS_CONSISTENT, GS_ORDERED};
	int rc = 0;

	if (p->config->read == PEER_NOTHING)
		return 0;
	if (p->config->read == PEER_VIEW) {
		read_in_place(p);
		return 0;
	}
	if (p->config->many)
		return peer_lib(gs_pull_many(p->trainer, p->param, p->dst, p->config->params,
					     hows[p->config->read]));
	for (uint32_t i = 0; i < p->config->params && rc == 0; i++)
		rc = peer_lib(gs_pull(p->trainer, p->param[i], hows[p->config->read], p->dst[i]));
	return rc;
}

int peer_wait_applied(struct peer *p)
{
	int rc = 0;

	for (uint32_t i = 0; i < p->config->params && rc == 0; i++)
		rc = peer_lib(gs_wait_applied(p->trainer, p->param[i]));
	return rc;
}

int peer_push_applied(struct peer *p)
{
	int rc = peer_push(p);

	if (rc < 0)
		return rc;
	return p->config->sync ? peer_lib(gs_step_end(p->trainer)) : peer_wait_applied(p);
}

/* ---- checking ------------------------------------------------------------------------------- */

static int check_equal(const float *w, size_t elems, float want, uint32_t param)
{
	for (size_t i = 0; i < elems; i++) {
		if (w[i] != want)
			return err_set(EBADMSG,
				       "weight %zu of parameter %" PRIu32
				       " is %.9g, but the first of all "
				       "is %.9g, and all had the same gradients",
				       i, param, w[i], want);
	}
	return 0;
}

/* Reads them anew, over what can't be a weight. */
static int read_again(struct peer *p)
{
	enum gs_consistency how = p->config->sync ? GS_RELAXED : GS_CONSISTENT;
	int rc = 0;

	memset(p->weights, 0xff, room_for_all(p) * sizeof(float));
	for (uint32_t i = 0; i < all_params(p) && rc == 0; i++)
		rc = peer_lib(gs_pull(p->trainer, p->param[i], how, p->dst[i]));
	return rc;
}

int peer_count(struct peer *p, bool settled, uint64_t *out)
{
	int rc = read_again(p);

	if (rc < 0)
		return rc;
	float first = p->weights[0], count = -first / PEER_UNIT;
	if (!(count >= 0 && count <= PEER_GRADIENTS_MAX))
		return err_set(EBADMSG,
			       "the first weight is %.9g, which no number of gradients makes it",
			       first);
	for (uint32_t i = 0; i < all_params(p) && settled && rc == 0; i++)
		rc = check_equal(p->dst[i], elems_of(p, i), first, i);
	*out = (uint64_t)count;
	return rc;
}

static int verify(struct peer *p, struct peer_result *out)
{
	if (p->loop->verify)
		return p->loop->verify(p, out);
	/* In async mode others may push while this one reads. */
	bool settled = p->config->sync || p->info.trainers == 1;
	int rc = p->config->sync ? 0 : peer_wait_applied(p);

	if (rc == 0)
		rc = peer_count(p, settled, &out->after);
	if (rc < 0)
		return rc;
	out->before = p->before;
	out->pushed = p->pushed;
	uint64_t least = p->before + p->pushed;
	if (out->after < least || (p->info.trainers == 1 && out->after != least))
		return err_set(EBADMSG,
			       "the weights have %" PRIu64 " gradients in them; they had %" PRIu64
			       ", and %" PRIu64 " were pushed",
			       out->after, p->before, p->pushed);
	return 0;
}

/* ---- running -------------------------------------------------------------------------------- */

/* The weights count so many, of all trainers. */
static size_t most(const struct peer *p, size_t room)
{
	uint64_t left = (PEER_GRADIENTS_MAX - p->before) / p->info.trainers;
	uint64_t used = (uint64_t)p->config->warmup + 2;

	left = left > used ? left - used : 0;
	return left < room ? (size_t)left : room;
}

static int warm_up(struct peer *p)
{
	uint64_t ns[PEER_SERIES];
	int rc = p->loop->prepare ? p->loop->prepare(p) : 0;

	for (uint32_t i = 0; i < p->config->warmup && rc == 0; i++)
		rc = p->loop->once(p, ns);
	return rc;
}

static int measure(struct peer *p, struct peer_result *out, size_t room)
{
	const struct peer_config *c = p->config;
	uint64_t ns[PEER_SERIES] = {0};
	struct meter meter;
	int rc = warm_up(p);

	if (rc < 0)
		return rc;
	if (most(p, room) < c->iters)
		return err_set(EOVERFLOW,
			       "--iters %" PRIu32 " is more than the weights can count: %zu",
			       c->iters, most(p, room));
	room = most(p, room);
	meter_begin(&meter, c->server);
	uint64_t until = clock_ns() + c->duration_ms * NS_PER_MS;
	for (size_t i = 0; i < room && (i < c->iters || clock_ns() < until) && rc == 0; i++) {
		rc = p->loop->once(p, ns);
		for (unsigned k = 0; p->loop->series[k]; k++)
			out->ns[k][i] = ns[k];
		out->n = i + 1;
	}
	if (rc == 0 && !c->sync && !p->loop->connects && !p->loop->declare)
		rc = peer_wait_applied(p);
	meter_end(&meter, &out->meter);
	return rc;
}

int peer_join(struct peer *p)
{
	int rc = peer_connect(p);

	if (rc == 0)
		rc = peer_declare(p);
	return rc < 0 ? rc : peer_start(p);
}

int peer_leave(struct peer *p)
{
	int rc = peer_lib(gs_leave(p->trainer));

	gs_close(p->trainer);
	p->trainer = NULL;
	return rc;
}

/* A server for several runs, `gradslot bench --server`, begins anew between them. */
static int join(struct peer *p)
{
	uint64_t until = clock_ns() + BETWEEN_MS * NS_PER_MS;
	int rc = peer_join(p);

	while (p->config->server == 0 && clock_ns() < until &&
	       (rc == -ESHUTDOWN || rc == -ECONNRESET || rc == -EUSERS)) {
		const struct timespec pause = {.tv_nsec = PAUSE_MS * NS_PER_MS};

		gs_close(p->trainer);
		p->trainer = NULL;
		nanosleep(&pause, NULL);
		rc = peer_join(p);
	}
	return rc;
}

/* A gradient so small that it rounds to nothing, ahead of all others. Theirs are exact, as no real job's
 * are, and an emulator leaves the computing to its host only from the first result on that was rounded. */
static int round_once(struct peer *p)
{
	int rc = 0;

	for (uint32_t i = 0; i < all_params(p) && rc == 0; i++) {
		fill(p->dst[i], elems_of(p, i), FLT_TRUE_MIN);
		rc = peer_lib(gs_push(p->trainer, p->param[i], p->dst[i]));
	}
	if (rc < 0)
		return rc;
	return p->config->sync ? peer_lib(gs_step_end(p->trainer)) : peer_wait_applied(p);
}

static int run(struct peer *p, struct peer_result *out)
{
	size_t room = 0;
	int rc = make_memory(p);

	if (rc == 0)
		rc = make_room(p, out, &room);
	if (rc == 0 && !p->loop->connects)
		rc = join(p);
	if (rc == 0 && !p->loop->connects && !p->loop->declare)
		rc = round_once(p);
	if (rc == 0 && !p->loop->connects && !p->loop->declare)
		rc = peer_count(p, false, &p->before);
	return rc < 0 ? rc : measure(p, out, room);
}

static int finish(struct peer *p, struct peer_result *out)
{
	int rc = p->loop->connects ? peer_join(p) : 0;

	if (rc == 0)
		rc = verify(p, out);
	if (rc == 0) {
		snprintf(out->transport, sizeof(out->transport), "%s", p->info.transport);
		out->blocks = p->info.blocks;
		out->slots = p->info.slots;
		out->trainers = p->info.trainers;
		rc = peer_leave(p);
	}
	return rc;
}

int peer_run(const struct peer_loop *loop, const struct peer_config *config,
	     struct peer_result *out)
{
	struct peer p = {.config = config, .loop = loop, .elems = config->bytes / sizeof(float)};

	*out = (struct peer_result){0};
	int rc = run(&p, out);
	if (rc == 0)
		rc = finish(&p, out);
	gs_close(p.trainer);
	if (loop->release)
		loop->release(&p);
	free_memory(&p);
	if (rc < 0)
		peer_free(out);
	return rc;
}

void peer_free(struct peer_result *result)
{
	for (unsigned k = 0; k < PEER_SERIES; k++) {
		free(result->ns[k]);
		result->ns[k] = NULL;
	}
}

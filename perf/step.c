/* SPDX-License-Identifier: Apache-2.0
 *
 * The measured loop of one trainer.
 */
#include "perf/step.h"

#include "base/clock.h"
#include "base/err.h"
#include "gradslot/gradslot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BUFFERS_MAX = STEP_WARMUP_MIN };

/* A power of two, so that its sums are exact for as long as a run lasts. */
static const float gradient_value = 0x1p-10f;

struct loop {
	const struct step_config *config;
	gs_trainer *trainer;
	gs_param *param;
	size_t elems;
	float *filled[BUFFERS_MAX]; /* gradient buffers that hold their values already */
	unsigned n_filled;
	float *own;        /* copy: what is pushed from */
	float *weights;    /* pulled into */
	const float *view; /* or read here */
	uint64_t sum;      /* of what was read, so that no compiler leaves the reading out */
};

static int lib(int rc)
{
	return rc < 0 ? err_set(-rc, "%s", gs_last_error()) : 0;
}

static void fill(float *to, size_t elems)
{
	for (size_t i = 0; i < elems; i++)
		to[i] = gradient_value;
}

/* In huge pages if there are any, as its rivals' in perf/compare. */
static float *array(uint64_t bytes)
{
	const size_t page = 2 << 20, whole = (bytes + page - 1) / page * page;
	float *p = aligned_alloc(page, whole);

	if (p)
		madvise(p, whole, MADV_HUGEPAGE);
	return p;
}

static int make_memory(struct loop *l)
{
	const uint64_t bytes = l->config->bytes;

	l->weights = array(bytes);
	if (l->weights)
		memset(l->weights, 0, bytes); /* no page fault under the clock */
	if (l->config->copy)
		l->own = array(bytes);
	if (!l->weights || (l->config->copy && !l->own))
		return err_set(ENOMEM, "no memory for %llu bytes of weights and gradients",
			       (unsigned long long)l->config->bytes);
	if (l->own)
		fill(l->own, l->elems);
	return 0;
}

static int join(struct loop *l)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	opt.uri = l->config->uri;
	opt.name = "bench";
	opt.rank = (int32_t)l->config->rank;
	opt.spin_us = l->config->spin_us;
	d.name = "bench";
	d.ndim = 1;
	d.shape[0] = l->elems;
	d.optimizer = l->config->optimizer;
	gs_setting(&d, "lr", 0x1p-10);
	int rc = lib(gs_connect(&opt, &l->trainer));
	if (rc == 0)
		rc = lib(gs_declare(l->trainer, &d, &l->param));
	if (rc == 0)
		rc = lib(gs_start(l->trainer));
	if (rc == 0 && l->config->view)
		rc = lib(gs_weights_view(l->trainer, l->param, (const void **)&l->view));
	return rc;
}

/* Where the next push leaves from. */
static int gradient(struct loop *l, float **out)
{
	if (l->own) {
		*out = l->own;
		return 0;
	}
	int rc = lib(gs_grad_buffer(l->trainer, l->param, (void **)out));
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < l->n_filled; i++) {
		if (l->filled[i] == *out)
			return 0;
	}
	fill(*out, l->elems);
	if (l->n_filled < BUFFERS_MAX)
		l->filled[l->n_filled++] = *out;
	return 0;
}

/* Loads every byte of weights where they are. */
static void read_in_place(void *ctx, uint32_t param, uint64_t first, uint64_t count,
			  const void *weights)
{
	const uint32_t *word = weights;
	struct loop *l = ctx;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < count; i++)
		sum += word[i];
	l->sum += sum;
}

/* The step's end, and all weights behind it. */
static int end_step(struct loop *l)
{
	void *const dst = l->weights;

	if (l->config->pipeline)
		return l->view ? gs_step_view(l->trainer, &l->param, 1, read_in_place, l)
			       : gs_step_pull(l->trainer, &l->param, &dst, 1);
	int rc = gs_step_end(l->trainer);
	if (rc < 0)
		return rc;
	if (!l->view)
		return gs_pull(l->trainer, l->param, GS_RELAXED, l->weights);
	read_in_place(l, 0, 0, l->elems, l->view);
	return 0;
}

static int one_step(struct loop *l)
{
	float *grad;
	int rc = gradient(l, &grad);

	if (rc == 0)
		rc = lib(gs_push(l->trainer, l->param, grad));
	return rc < 0 ? rc : lib(end_step(l));
}

static int measure(struct loop *l, uint64_t *samples, size_t *n)
{
	const struct step_config *c = l->config;
	int rc = 0;

	for (uint32_t i = 0; i < c->warmup && rc == 0; i++)
		rc = one_step(l);
	uint64_t began = clock_ns(), until = began + c->duration_ms * NS_PER_MS, last = began;
	for (*n = 0; rc == 0 && *n < STEP_ITERS_MAX && (*n < c->iters || last < until); (*n)++) {
		rc = one_step(l);
		uint64_t now = clock_ns();
		samples[*n] = now - last;
		last = now;
	}
	return rc;
}

/* All weights began equal and had equal gradients. */
static int verify(const struct loop *l)
{
	const float *w = l->view ? l->view : l->weights;

	if (!(w[0] < 0))
		return err_set(EBADMSG, "the weights did not move: the first is %g", w[0]);
	for (size_t i = 1; i < l->elems; i++) {
		if (w[i] != w[0])
			return err_set(EBADMSG, "weight %zu is %.9g, but the first is %.9g", i,
				       w[i], w[0]);
	}
	return 0;
}

int step_run(const struct step_config *config, uint64_t **samples, size_t *n)
{
	struct loop l = {.config = config, .elems = config->bytes / sizeof(float)};
	uint64_t *times = malloc(STEP_ITERS_MAX * sizeof(*times));
	size_t count = 0;

	int rc = times ? make_memory(&l) : err_set(ENOMEM, "no memory for the times");
	if (rc == 0)
		rc = join(&l);
	if (rc == 0)
		rc = measure(&l, times, &count);
	if (rc == 0)
		rc = verify(&l);
	if (rc == 0)
		rc = lib(gs_leave(l.trainer));
	gs_close(l.trainer);
	free(l.own);
	free(l.weights);
	if (rc < 0) {
		free(times);
		return rc;
	}
	*samples = times;
	*n = count;
	return 0;
}

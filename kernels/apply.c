/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of whole tensors, tile by tile, and what else is done with gradients.
 */
#include <math.h>

#include "kernels/step.h"

void kern_widen(enum kern_dtype dtype, const void *in, float *out, size_t len)
{
	kern_loops()->widen(dtype, in, out, len);
}

void kern_narrow(enum kern_dtype dtype, const float *in, void *out, size_t len)
{
	kern_loops()->narrow(dtype, in, out, len);
}

bool kern_nonfinite(enum kern_dtype dtype, const void *data, size_t len)
{
	return kern_loops()->nonfinite(dtype, data, len);
}

static size_t tile_len(size_t at, size_t len)
{
	return len - at < KERN_TILE ? len - at : KERN_TILE;
}

/* The merged gradient where it lies already: a single one of floats, as it is. */
static const float *merged_already(const struct kern_grads *g)
{
	bool as_it_is =
	    g->n == 1 && g->dtype == KERN_F32 && g->scale == 1 && (!g->factor || g->factor[0] == 1);

	return as_it_is ? g->data[0] : NULL;
}

bool kern_merge(const struct kern_grads *g, float *out, size_t len)
{
	kern_merge_fn *merge = kern_loops()->merge;
	bool odd = false;

	for (size_t at = 0, m; at < len; at += m) {
		m = tile_len(at, len);
		odd |= merge(g, at, out + at, m);
	}
	return odd;
}

double kern_norm2(const struct kern_grads *g, size_t len)
{
	const struct kern_loops *loops = kern_loops();
	const float *merged = merged_already(g);
	double lane[KERN_LANES] = {0};

	if (merged) {
		loops->squares(merged, len, lane);
		return lanes_sum(lane);
	}
	for (size_t at = 0, m; at < len; at += m) {
		float tile[KERN_TILE] __attribute__((aligned(64)));

		m = tile_len(at, len);
		loops->merge(g, at, tile, m);
		loops->squares(tile, m, lane);
	}
	return lanes_sum(lane);
}

float kern_clip(double norm2, float limit)
{
	double by = limit / (sqrt(norm2) + 1e-6);

	/* A NaN stays one. */
	return limit == 0 || by > 1 ? 1 : (float)by;
}

/* The arrays from element `at` on. */
static void state_at(const struct work *k, float *const *state, size_t at, float **out)
{
	for (unsigned i = 0; i < k->arrays; i++)
		out[i] = state[i] + at;
}

void kern_prepare(const struct kern_opt *opt, struct kern_step *step, const struct kern_grads *g,
		  const float *w, float *const *state, size_t len)
{
	double of_w[KERN_LANES] = {0}, of_g[KERN_LANES] = {0};
	struct work k;

	step->ratio = 1;
	work_start(&k, opt, step);
	if (!k.rule->first)
		return;
	for (size_t at = 0, m; at < len; at += m) {
		float tile[KERN_TILE] __attribute__((aligned(64))), *part[KERN_STATE_MAX];

		m = tile_len(at, len);
		state_at(&k, state, at, part);
		k.loops->merge(g, at, tile, m);
		work_adjust(&k, at, w + at, tile, m);
		k.rule->first(k.c, w + at, part, tile, m);
		k.loops->squares(w + at, m, of_w);
		k.loops->squares(tile, m, of_g);
	}
	step->ratio =
	    (float)k.rule->ratio(opt->value, sqrt(lanes_sum(of_w)), sqrt(lanes_sum(of_g)));
}

/* One tile, merged beside its place. */
static bool apply_tile(const struct work *k, const struct kern_grads *g, size_t at, float *w,
		       float *const *state, size_t len)
{
	float tile[KERN_TILE] __attribute__((aligned(64)));
	bool odd = k->loops->merge(g, at, tile, len);

	work_adjust(k, at, w, tile, len);
	work_update(k, at, w, state, tile, len);
	return odd;
}

bool kern_apply(const struct kern_opt *opt, const struct kern_step *step,
		const struct kern_grads *g, float *w, float *const *state, size_t len)
{
	const float *merged = merged_already(g);
	bool odd = false;
	struct work k;

	work_start(&k, opt, step);
	if (k.adjusts)
		merged = NULL;
	if (merged && !step->copy)
		return k.loop(k.c, k.shrink, w, state, merged, len);
	for (size_t at = 0, m; at < len; at += m) {
		float *part[KERN_STATE_MAX];

		m = tile_len(at, len);
		state_at(&k, state, at, part);
		odd |= merged ? work_update(&k, at, w + at, part, merged + at, m)
			      : apply_tile(&k, g, at, w + at, part, m);
	}
	return odd;
}

/* The plain mean of floats. */
static struct kern_grads mean_of(const float *const *grads, unsigned n)
{
	return (struct kern_grads){
	    .data = (const void *const *)grads,
	    .scale = 1.0f / (float)n,
	    .n = n,
	    .dtype = KERN_F32,
	};
}

void kern_apply_mean(const struct kern_opt *opt, uint64_t t, float *w, float *const *state,
		     const float *const *grads, unsigned n, size_t len)
{
	const struct kern_step step = {.t = t, .lr = kern_opt_lr(opt), .clip = 1, .ratio = 1};
	const struct kern_grads g = mean_of(grads, n);

	kern_apply(opt, &step, &g, w, state, len);
}

void kern_mean(float *out, const float *const *grads, unsigned n, size_t len)
{
	const struct kern_grads g = mean_of(grads, n);

	kern_merge(&g, out, len);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The single-process training loop.
 */
#include "demo/single.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "demo/mlp.h"

struct run {
	struct digits_config config;
	struct digits *digits;
	struct digits_feed **feeds; /* by rank */
	struct mlp *mlp;
	float *memory; /* weights, state, a gradient, each rank's: MLP_WEIGHTS floats of each */
};

/* Where parameter p is in the k-th of the arrays in `memory`. */
enum { WEIGHTS, STATE, SCRATCH = STATE + KERN_STATE_MAX, GRADS };
static float *at(const struct run *run, unsigned k, unsigned p)
{
	return run->memory + (size_t)k * MLP_WEIGHTS + mlp_params[p].offset;
}

static void run_end(struct run *run)
{
	for (unsigned r = 0; run->feeds && r < run->config.trainers; r++)
		digits_feed_destroy(run->feeds[r]);
	free(run->feeds);
	free(run->memory);
	mlp_destroy(run->mlp);
	digits_free(run->digits);
}

/* On failure the caller ends the run. */
static int run_start(struct run *run)
{
	const struct digits_config *config = &run->config;
	int rc = digits_check(config);

	if (!rc)
		rc = digits_load(config->seed, &run->digits);
	if (!rc)
		rc = mlp_create(digits_shard_rows(config), &run->mlp);
	if (rc)
		return rc;
	run->feeds = calloc(config->trainers, sizeof(*run->feeds));
	run->memory = calloc(GRADS + config->trainers, MLP_WEIGHTS * sizeof(float));
	if (!run->feeds || !run->memory)
		return err_set(ENOMEM, "no memory for the gradients of %u trainers",
			       config->trainers);
	for (unsigned r = 0; r < config->trainers && !rc; r++)
		rc = digits_feed_create(run->digits, config, r, &run->feeds[r]);
	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		struct mlp_init init = mlp_init_of(p, config->seed);

		kern_init_fill(init.kind, init.seed, init.a, init.b, 0, at(run, WEIGHTS, p),
			       mlp_params[p].len);
	}
	return rc;
}

/* The gradients of one rank's shard, rounded as they would be on their way. Returns their loss. */
static double make_gradients(struct run *run, const float *const *weights, unsigned rank,
			     unsigned step)
{
	enum kern_dtype dtype = run->config.grad_dtype;
	float *grads[MLP_PARAMS];
	const uint8_t *y;
	const float *x;
	double loss;

	for (unsigned p = 0; p < MLP_PARAMS; p++)
		grads[p] = at(run, dtype == KERN_F32 ? GRADS + rank : SCRATCH, p);
	digits_feed_step(run->feeds[rank], step, &x, &y);
	mlp_gradient(run->mlp, weights, x, y, digits_shard_rows(&run->config), grads, &loss, NULL);
	for (unsigned p = 0; p < MLP_PARAMS && dtype != KERN_F32; p++)
		kern_narrow(dtype, grads[p], at(run, GRADS + rank, p), mlp_params[p].len);
	return loss;
}

/* The mean of all ranks' gradients of p. */
static struct kern_grads merged(const struct run *run, const void **shards, unsigned p)
{
	for (unsigned r = 0; r < run->config.trainers; r++)
		shards[r] = at(run, GRADS + r, p);
	return (struct kern_grads){
	    .data = shards,
	    .scale = 1.0f / (float)run->config.trainers,
	    .n = run->config.trainers,
	    .dtype = run->config.grad_dtype,
	};
}

/* What clipping multiplies each parameter's gradient by: the global norm is of what the own ones
 * left. */
static void find_clips(const struct run *run, const void **shards, float clip[MLP_PARAMS])
{
	const struct kern_common *common = &run->config.opt.common;
	double norm2 = 0;
	float all;

	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		struct kern_grads g = merged(run, shards, p);
		double own = kern_norm2(&g, mlp_params[p].len);

		clip[p] = kern_clip(own, common->clip_norm);
		norm2 += own * (double)clip[p] * (double)clip[p];
	}
	all = kern_clip(norm2, common->clip_global_norm);
	for (unsigned p = 0; p < MLP_PARAMS; p++)
		clip[p] *= all;
}

static void update(struct run *run, const void **shards, unsigned p, unsigned step, float clip)
{
	const struct kern_opt *opt = &run->config.opt;
	float *state[KERN_STATE_MAX];
	double lr = schedule_rate(&run->config.schedule, (double)kern_opt_lr(opt), step - 1);
	struct kern_step next = {.t = step, .lr = (float)lr, .clip = clip, .ratio = 1};
	struct kern_grads g = merged(run, shards, p);
	size_t len = mlp_params[p].len;

	for (unsigned i = 0; i < KERN_STATE_MAX; i++)
		state[i] = at(run, STATE + i, p);
	if (kern_opt_prepares(opt))
		kern_prepare(opt, &next, &g, at(run, WEIGHTS, p), state, len);
	kern_apply(opt, &next, &g, at(run, WEIGHTS, p), state, len);
}

/* Returns the batch's mean loss. */
static double run_step(struct run *run, const float *const *weights, const void **shards,
		       unsigned step)
{
	unsigned trainers = run->config.trainers;
	float clip[MLP_PARAMS];
	double sum = 0;

	for (unsigned r = 0; r < trainers; r++)
		sum += make_gradients(run, weights, r, step);
	find_clips(run, shards, clip);
	for (unsigned p = 0; p < MLP_PARAMS; p++)
		update(run, shards, p, step, clip[p]);
	return sum / trainers;
}

int single_train(const struct digits_config *config, struct single_result *out)
{
	struct run run = {.config = *config};
	const float *weights[MLP_PARAMS];
	const void **shards = NULL;
	struct single_result result = {0};
	unsigned in_epoch;
	int rc = run_start(&run);

	if (rc)
		goto end;
	shards = calloc(config->trainers, sizeof(*shards));
	if (!shards) {
		rc = err_set(ENOMEM, "no memory for %u trainers", config->trainers);
		goto end;
	}
	for (unsigned p = 0; p < MLP_PARAMS; p++)
		weights[p] = at(&run, WEIGHTS, p);
	result.steps = digits_steps(config);
	in_epoch = result.steps / config->epochs;
	for (unsigned step = 1; step <= result.steps; step++) {
		double loss = run_step(&run, weights, shards, step);

		if (step > result.steps - in_epoch)
			result.loss += loss / in_epoch;
	}
	mlp_evaluate(run.mlp, weights, run.digits->test_x[0], run.digits->test_y, DIGITS_TEST, NULL,
		     &result.hits);
	result.accuracy = (double)result.hits / DIGITS_TEST;
	result.checksum = mlp_checksum(weights);
	*out = result;
end:
	free(shards);
	run_end(&run);
	return rc;
}

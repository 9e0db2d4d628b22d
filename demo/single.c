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
	float *memory; /* weights, state, each rank's gradients: MLP_WEIGHTS of each */
};

/* Where parameter p is in the k-th of the arrays in `memory`. */
enum { WEIGHTS, STATE, GRADS };
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

/* Returns the batch's mean loss. */
static double run_step(struct run *run, const float *const *weights, const float **shards,
		       unsigned step)
{
	unsigned trainers = run->config.trainers;
	float *grads[MLP_PARAMS];
	const uint8_t *y;
	const float *x;
	double loss, sum = 0;

	for (unsigned r = 0; r < trainers; r++) {
		for (unsigned p = 0; p < MLP_PARAMS; p++)
			grads[p] = at(run, GRADS + r, p);
		digits_feed_step(run->feeds[r], step, &x, &y);
		mlp_gradient(run->mlp, weights, x, y, digits_shard_rows(&run->config), grads, &loss,
			     NULL);
		sum += loss;
	}
	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		float *state = at(run, STATE, p);

		for (unsigned r = 0; r < trainers; r++)
			shards[r] = at(run, GRADS + r, p);
		kern_apply_mean(&run->config.opt, step, at(run, WEIGHTS, p), &state, shards,
				trainers, mlp_params[p].len);
	}
	return sum / trainers;
}

int single_train(const struct digits_config *config, struct single_result *out)
{
	struct run run = {.config = *config};
	const float *weights[MLP_PARAMS], **shards = NULL;
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Adagrad with one accumulator for each row of a table, as FBGEMM's and TorchRec's
 * EXACT_ROWWISE_ADAGRAD
 * (https://docs.pytorch.org/FBGEMM/fbgemm_gpu/fbgemm_gpu-overview/optimizers.html):
 *
 *     sum = sum + mean of the row's g^2;  w = w - lr * g / (sqrt(sum) + eps)
 *
 * where sum starts at initial_accumulator: it is kept apart, since state starts at zero.
 */
#include "kernels/loop.h"

enum { SET_LR, SET_INITIAL, SET_EPS };
enum { RATE };

KERN_INLINE float rowwise_adagrad(const float *c, float w, float g, float *s)
{
	return c[RATE] * g;
}

/* The row's number is not an array beside the weights. */
KERN_LOOP(rowwise_adagrad, 0)

static unsigned rowwise_adagrad_arrays(const float *value)
{
	return 1;
}

static kern_loop_fn *rowwise_adagrad_pick(const float *value)
{
	return rowwise_adagrad_loop;
}

/* By rows: see rowwise_adagrad_row. */
static void rowwise_adagrad_constants(const float *value, const struct kern_step *step, float *c)
{
}

static void rowwise_adagrad_row(const float *value, const struct kern_step *step, double squares,
				size_t dim, float *state, float *c)
{
	*state = (float)(*state + squares / (double)dim);
	c[RATE] = (float)(step->lr / (sqrt((double)*state + value[SET_INITIAL]) + value[SET_EPS]));
}

const struct kern_rule KERN_SYMBOL(kern_rule_rowwise_adagrad) = {
    .name = "rowwise_adagrad",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_INITIAL] = {"initial_accumulator", KERN_NOT_NEGATIVE, 0},
	      [SET_EPS] = {"eps", KERN_POSITIVE, 1e-10f}},
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = rowwise_adagrad_arrays,
    .constants = rowwise_adagrad_constants,
    .loop = rowwise_adagrad_pick,
    .row = rowwise_adagrad_row,
};

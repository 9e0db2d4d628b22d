/* SPDX-License-Identifier: Apache-2.0
 *
 * Adagrad (J. Duchi, E. Hazan, Y. Singer, JMLR 12, 2011,
 * https://jmlr.org/papers/v12/duchi11a.html), as torch.optim.Adagrad
 * (https://pytorch.org/docs/stable/generated/torch.optim.Adagrad.html):
 *
 *     sum = sum + g^2;  w = w - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(sum) + eps)
 *
 * where sum starts at initial_accumulator: it is kept apart, since state starts at zero.
 */
#include "kernels/loop.h"

enum { SET_LR, SET_LR_DECAY, SET_INITIAL, SET_EPS };
enum { RATE, INITIAL, EPS };
enum { SUM };

KERN_INLINE float adagrad(const float *c, float w, float g, float *s)
{
	s[SUM] = s[SUM] + g * g;
	return c[RATE] * (g / (sqrtf(s[SUM] + c[INITIAL]) + c[EPS]));
}

KERN_ONLY_LOOP(adagrad, 1)

static void adagrad_constants(const float *value, const struct kern_step *step, float *c)
{
	c[RATE] = (float)(step->lr / (1.0 + (double)(step->t - 1) * value[SET_LR_DECAY]));
	c[INITIAL] = value[SET_INITIAL];
	c[EPS] = value[SET_EPS];
}

const struct kern_rule KERN_SYMBOL(kern_rule_adagrad) = {
    .name = "adagrad",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_LR_DECAY] = {"lr_decay", KERN_NOT_NEGATIVE, 0},
	      [SET_INITIAL] = {"initial_accumulator", KERN_NOT_NEGATIVE, 0},
	      [SET_EPS] = {"eps", KERN_NOT_NEGATIVE, 1e-10f}},
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = adagrad_arrays,
    .constants = adagrad_constants,
    .loop = adagrad_pick,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Adagrad with a sum that forgets, as PaddlePaddle's DecayedAdagradOptimizer
 * (https://www.paddlepaddle.org.cn/documentation/docs/en/1.8/api/optimizer/DecayedAdagradOptimizer.html):
 *
 *     moment = decay * moment + (1 - decay) * g^2;  w = w - lr * g / (sqrt(moment) + eps)
 */
#include "kernels/loop.h"

enum { SET_LR, SET_DECAY, SET_EPS };
enum { LR, DECAY, REST, EPS };
enum { MOMENT };

KERN_INLINE float decayed_adagrad(const float *c, float w, float g, float *s)
{
	s[MOMENT] = c[DECAY] * s[MOMENT] + c[REST] * (g * g);
	return c[LR] * (g / (sqrtf(s[MOMENT]) + c[EPS]));
}

KERN_ONLY_LOOP(decayed_adagrad, 1)

static void decayed_adagrad_constants(const float *value, const struct kern_step *step, float *c)
{
	c[LR] = step->lr;
	c[DECAY] = value[SET_DECAY];
	c[REST] = kern_rest(value[SET_DECAY]);
	c[EPS] = value[SET_EPS];
}

const struct kern_rule KERN_SYMBOL(kern_rule_decayed_adagrad) = {
    .name = "decayed_adagrad",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_DECAY] = {"decay", KERN_BELOW_1, 0.95f},
	      [SET_EPS] = {"eps", KERN_NOT_NEGATIVE, 1e-6f}},
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = decayed_adagrad_arrays,
    .constants = decayed_adagrad_constants,
    .loop = decayed_adagrad_pick,
};

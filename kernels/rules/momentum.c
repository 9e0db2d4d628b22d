/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient descent with momentum, as torch.optim.SGD with momentum and dampening
 * (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html):
 *
 *     buf = momentum * buf + (1 - dampening) * g;  w = w - lr * buf
 *
 * where the first step is not dampened.
 */
#include "kernels/loop.h"

enum { SET_LR, SET_MOMENTUM, SET_DAMPENING };
enum { LR, MOMENTUM, REST };
enum { BUF };

KERN_INLINE float momentum(const float *c, float w, float g, float *s)
{
	s[BUF] = c[MOMENTUM] * s[BUF] + c[REST] * g;
	return c[LR] * s[BUF];
}

KERN_ONLY_LOOP(momentum, 1)

static void momentum_constants(const float *value, const struct kern_step *step, float *c)
{
	c[LR] = step->lr;
	c[MOMENTUM] = value[SET_MOMENTUM];
	c[REST] = step->t == 1 ? 1 : kern_rest(value[SET_DAMPENING]);
}

const struct kern_rule KERN_SYMBOL(kern_rule_momentum) = {
    .name = "momentum",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_MOMENTUM] = {"momentum", KERN_BELOW_1, 0.9f},
	      [SET_DAMPENING] = {"dampening", KERN_TO_1, 0}},
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = momentum_arrays,
    .constants = momentum_constants,
    .loop = momentum_pick,
};

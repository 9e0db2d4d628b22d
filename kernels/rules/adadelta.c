/* SPDX-License-Identifier: Apache-2.0
 *
 * Adadelta (M. D. Zeiler, 2012, https://arxiv.org/abs/1212.5701), as torch.optim.Adadelta
 * (https://pytorch.org/docs/stable/generated/torch.optim.Adadelta.html):
 *
 *     square = rho * square + (1 - rho) * g^2
 *     delta = sqrt(acc + eps) / sqrt(square + eps) * g
 *     acc = rho * acc + (1 - rho) * delta^2;  w = w - lr * delta
 */
#include "kernels/loop.h"

enum { SET_LR, SET_RHO, SET_EPS };
enum { LR, RHO, REST, EPS };
enum { SQUARE, ACC };

KERN_INLINE float adadelta(const float *c, float w, float g, float *s)
{
	float delta;

	s[SQUARE] = c[RHO] * s[SQUARE] + c[REST] * (g * g);
	delta = sqrtf(s[ACC] + c[EPS]) / sqrtf(s[SQUARE] + c[EPS]) * g;
	s[ACC] = c[RHO] * s[ACC] + c[REST] * (delta * delta);
	return c[LR] * delta;
}

KERN_ONLY_LOOP(adadelta, 2)

static void adadelta_constants(const float *value, const struct kern_step *step, float *c)
{
	c[LR] = step->lr;
	c[RHO] = value[SET_RHO];
	c[REST] = kern_rest(value[SET_RHO]);
	c[EPS] = value[SET_EPS];
}

const struct kern_rule KERN_SYMBOL(kern_rule_adadelta) = {
    .name = "adadelta",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, 1},
	      [SET_RHO] = {"rho", KERN_BELOW_1, 0.9f},
	      [SET_EPS] = {"eps", KERN_POSITIVE, 1e-6f}},
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = adadelta_arrays,
    .constants = adadelta_constants,
    .loop = adadelta_pick,
};

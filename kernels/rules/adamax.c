/* SPDX-License-Identifier: Apache-2.0
 *
 * AdaMax (D. P. Kingma, J. Ba, ICLR 2015, https://arxiv.org/abs/1412.6980, section 7.1), as
 * torch.optim.Adamax (https://pytorch.org/docs/stable/generated/torch.optim.Adamax.html):
 *
 *     m = beta1 * m + (1 - beta1) * g;  u = max(beta2 * u, |g| + eps)
 *     w = w - lr / (1 - beta1^t) * m / u
 *
 * eps_decayed=1, as PaddlePaddle's: u = max(beta2 * u + eps, |g|).
 */
#include "kernels/loop.h"

enum { SET_LR, SET_BETA1, SET_BETA2, SET_EPS, SET_EPS_DECAYED };
enum { RATE, BETA1, REST1, BETA2, EPS, EPS_DECAYED };
enum { M, U };

KERN_INLINE float adamax(const float *c, float w, float g, float *s)
{
	float old = c[BETA2] * s[U] + c[EPS_DECAYED], new = fabsf(g) + c[EPS];

	s[M] = c[BETA1] * s[M] + c[REST1] * g;
	s[U] = old > new ? old : new;
	return c[RATE] * (s[M] / s[U]);
}

KERN_ONLY_LOOP(adamax, 2)

static void adamax_constants(const float *value, const struct kern_step *step, float *c)
{
	bool decayed = value[SET_EPS_DECAYED] != 0;

	c[RATE] = (float)(step->lr / (1 - kern_power(value[SET_BETA1], step->t)));
	c[BETA1] = value[SET_BETA1];
	c[REST1] = kern_rest(value[SET_BETA1]);
	c[BETA2] = value[SET_BETA2];
	c[EPS] = decayed ? 0 : value[SET_EPS];
	c[EPS_DECAYED] = decayed ? value[SET_EPS] : 0;
}

const struct kern_rule KERN_SYMBOL(kern_rule_adamax) = {
    .name = "adamax",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_BETA1] = {"beta1", KERN_BELOW_1, 0.9f},
	      [SET_BETA2] = {"beta2", KERN_BELOW_1, 0.999f},
	      [SET_EPS] = {"eps", KERN_POSITIVE, 1e-8f},
	      [SET_EPS_DECAYED] = {"eps_decayed", KERN_SWITCH, 0}},
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = adamax_arrays,
    .constants = adamax_constants,
    .loop = adamax_pick,
};

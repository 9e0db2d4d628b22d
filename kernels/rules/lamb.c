/* SPDX-License-Identifier: Apache-2.0
 *
 * LAMB (Y. You et al., ICLR 2020, https://arxiv.org/abs/1904.00962), as PaddlePaddle's Lamb; norms
 * are of the whole tensor:
 *
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w
 *     w = w - lr * |w| / |r| * r, without the norms when one of them is 0
 *
 * The moments are made in the first half of the step, with the norms.
 */
#include "kernels/loop.h"

enum { SET_LR, SET_BETA1, SET_BETA2, SET_EPS, SET_DECAY };
enum { RATE, BETA1, REST1, BETA2, REST2, FIX, ROOT, EPS, DECAY };
enum { M, V };

KERN_INLINE float direction(const float *c, float w, float m, float v)
{
	return m * c[FIX] / (sqrtf(v) * c[ROOT] + c[EPS]) + c[DECAY] * w;
}

KERN_INLINE float lamb(const float *c, float w, float g, float *s)
{
	return c[RATE] * direction(c, w, s[M], s[V]);
}

KERN_ONLY_LOOP(lamb, 2)

static void lamb_constants(const float *value, const struct kern_step *step, float *c)
{
	c[RATE] = (float)((double)step->lr * step->ratio);
	c[BETA1] = value[SET_BETA1];
	c[REST1] = kern_rest(value[SET_BETA1]);
	c[BETA2] = value[SET_BETA2];
	c[REST2] = kern_rest(value[SET_BETA2]);
	c[FIX] = (float)(1 / (1 - kern_power(value[SET_BETA1], step->t)));
	c[ROOT] = (float)(1 / sqrt(1 - kern_power(value[SET_BETA2], step->t)));
	c[EPS] = value[SET_EPS];
	c[DECAY] = value[SET_DECAY];
}

static void lamb_first(const float *consts, const float *w, float *const *state, float *g,
		       size_t len)
{
	float *m = state[M], *v = state[V], c[KERN_CONSTS_MAX];

	memcpy(c, consts, sizeof(c));
#pragma GCC ivdep
	for (size_t i = 0; i < len; i++) {
		m[i] = c[BETA1] * m[i] + c[REST1] * g[i];
		v[i] = c[BETA2] * v[i] + c[REST2] * (g[i] * g[i]);
		g[i] = direction(c, w[i], m[i], v[i]);
	}
}

static double lamb_ratio(const float *value, double w, double r)
{
	return w == 0 || r == 0 ? 1 : w / r;
}

const struct kern_rule KERN_SYMBOL(kern_rule_lamb) = {
    .name = "lamb",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_BETA1] = {"beta1", KERN_BELOW_1, 0.9f},
	      [SET_BETA2] = {"beta2", KERN_BELOW_1, 0.999f},
	      [SET_EPS] = {"eps", KERN_NOT_NEGATIVE, 1e-6f},
	      [SET_DECAY] = {"weight_decay", KERN_NOT_NEGATIVE, 0.01f}},
    .common = KERN_ALL_COMMON & ~KERN_DECAY,
    .arrays = lamb_arrays,
    .constants = lamb_constants,
    .loop = lamb_pick,
    .first = lamb_first,
    .ratio = lamb_ratio,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer-wise adaptive rates (Y. You, I. Gitman, B. Ginsburg, 2017,
 * https://arxiv.org/abs/1708.03888), as PaddlePaddle's LarsMomentum; norms are of the whole tensor:
 *
 *     ratio = trust * |w| / (|g| + weight_decay * |w| + eps), or 1 when |w| or |g| is 0
 *     buf = momentum * buf + lr * ratio * (g + weight_decay * w);  w = w - buf
 */
#include "kernels/loop.h"

enum { SET_LR, SET_MOMENTUM, SET_TRUST, SET_DECAY, SET_EPS };
enum { RATE, MOMENTUM, DECAY };
enum { BUF };

KERN_INLINE float lars(const float *c, float w, float g, float *s)
{
	s[BUF] = c[MOMENTUM] * s[BUF] + c[RATE] * (g + c[DECAY] * w);
	return s[BUF];
}

KERN_ONLY_LOOP(lars, 1)

static void lars_constants(const float *value, const struct kern_step *step, float *c)
{
	c[RATE] = (float)((double)step->lr * step->ratio);
	c[MOMENTUM] = value[SET_MOMENTUM];
	c[DECAY] = value[SET_DECAY];
}

/* The norm is the gradient's own. */
static void lars_first(const float *c, const float *w, float *const *state, float *g, size_t len)
{
}

static double lars_ratio(const float *value, double w, double g)
{
	if (w == 0 || g == 0)
		return 1;
	return value[SET_TRUST] * w / (g + value[SET_DECAY] * w + value[SET_EPS]);
}

const struct kern_rule KERN_SYMBOL(kern_rule_lars) = {
    .name = "lars",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_MOMENTUM] = {"momentum", KERN_BELOW_1, 0.9f},
	      [SET_TRUST] = {"trust", KERN_NOT_NEGATIVE, 0.001f},
	      [SET_DECAY] = {"weight_decay", KERN_NOT_NEGATIVE, 0.0005f},
	      [SET_EPS] = {"eps", KERN_NOT_NEGATIVE, 0}},
    .common = KERN_ALL_COMMON & ~KERN_DECAY,
    .arrays = lars_arrays,
    .constants = lars_constants,
    .loop = lars_pick,
    .first = lars_first,
    .ratio = lars_ratio,
};

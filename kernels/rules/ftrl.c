/* SPDX-License-Identifier: Apache-2.0
 *
 * FTRL-Proximal (H. B. McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013,
 * https://doi.org/10.1145/2487575.2488200), as PaddlePaddle's Ftrl and TensorFlow's:
 *
 *     new = sum + g^2;  s(x) = x^(-lr_power)
 *     linear = linear + g - (s(new) - s(sum)) / lr * w;  sum = new
 *     w = (l1 * sign(linear) - linear) / ((beta + s(sum)) / lr + 2 * l2)   if |linear| > l1, or 0
 *
 * The paper's lambda2 is 2 * l2. Its weights are a function of the state, so what they were before
 * the first step counts for that step alone. With a rate of 0 nothing changes.
 */
#include "kernels/loop.h"
#include "kernels/rmath.h"

enum { SET_LR, SET_L1, SET_L2, SET_LR_POWER, SET_BETA };
enum { PER_LR, L1, L2, POWER, BETA };
enum { SUM, LINEAR };

/* `grown` is s(new) - s(sum). */
KERN_INLINE float weight(const float *c, float w, float g, float grown, float root, float sum,
			 float *s)
{
	float linear = s[LINEAR] + (g - grown * c[PER_LR] * w);
	float below = (c[BETA] + root) * c[PER_LR] + c[L2];
	float x = (linear > 0 ? c[L1] : -c[L1]) - linear, size = fabsf(linear);
	float next = x / below;
	bool still = c[PER_LR] == 0;

	next = size > c[L1] ? next : 0;
	/* A NaN is not larger than anything. */
	next = linear != linear ? linear : next;
	s[SUM] = still ? s[SUM] : sum;
	s[LINEAR] = still ? s[LINEAR] : linear;
	return still ? w : next;
}

/* g^2 over the sum of the roots is their difference, and keeps what that would cancel. */
KERN_INLINE float by_root(const float *c, float w, float g, float *s)
{
	float sum = s[SUM] + g * g, root = sqrtf(sum), both = root + sqrtf(s[SUM]);
	float grown = g * g / both;

	return weight(c, w, g, both > 0 ? grown : 0, root, sum, s);
}

static double power(double x, double p)
{
	if (x == 0)
		return p == 0;
	return x <= 3.5e38 ? rm_exp(p * rm_log(x)) : x; /* infinities and NaNs stay */
}

KERN_INLINE float by_power(const float *c, float w, float g, float *s)
{
	double p = c[POWER], sum = (double)s[SUM] + (double)g * g, root = power(sum, p);

	return weight(c, w, g, (float)(root - power(s[SUM], p)), (float)root, (float)sum, s);
}

KERN_WEIGHT_LOOP(by_root, 2)
KERN_WEIGHT_LOOP(by_power, 2)

static unsigned ftrl_arrays(const float *value)
{
	return 2;
}

static kern_loop_fn *ftrl_pick(const float *value)
{
	return value[SET_LR_POWER] == -0.5f ? by_root_loop : by_power_loop;
}

static void ftrl_constants(const float *value, const struct kern_step *step, float *c)
{
	c[PER_LR] = step->lr > 0 ? (float)(1.0 / step->lr) : 0;
	c[L1] = value[SET_L1];
	c[L2] = 2 * value[SET_L2];
	c[POWER] = -value[SET_LR_POWER];
	c[BETA] = value[SET_BETA];
}

const struct kern_rule KERN_SYMBOL(kern_rule_ftrl) = {
    .name = "ftrl",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_L1] = {"l1", KERN_NOT_NEGATIVE, 0},
	      [SET_L2] = {"l2", KERN_NOT_NEGATIVE, 0},
	      [SET_LR_POWER] = {"lr_power", KERN_MINUS_1_TO_0, -0.5f},
	      [SET_BETA] = {"beta", KERN_NOT_NEGATIVE, 0}},
    .common = KERN_CLIPS | KERN_DELAY,
    .by_rows = true,
    .arrays = ftrl_arrays,
    .constants = ftrl_constants,
    .loop = ftrl_pick,
};

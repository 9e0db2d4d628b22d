/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSprop (G. Hinton, lecture 6e,
 * https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf; centered: A. Graves,
 * https://arxiv.org/abs/1308.0850), as torch.optim.RMSprop
 * (https://pytorch.org/docs/stable/generated/torch.optim.RMSprop.html):
 *
 *     square = alpha * square + (1 - alpha) * g^2
 *     mean = alpha * mean + (1 - alpha) * g                 centered=1; otherwise mean is 0
 *     d = g / (sqrt(square - mean^2) + eps)
 *     buf = momentum * buf + d;  w = w - lr * buf           without momentum: w = w - lr * d
 *
 * eps_inside=1: d = g / sqrt(square - mean^2 + eps), and lr_inside=1: buf = momentum * buf + lr *
 * d, w = w - buf: both as PaddlePaddle's and TensorFlow's. What stands under the root may become
 * less than 0 by rounding, and then counts as 0.
 */
#include "kernels/loop.h"

enum { SET_LR, SET_ALPHA, SET_EPS, SET_MOMENTUM, SET_CENTERED, SET_EPS_INSIDE, SET_LR_INSIDE };
enum { RATE, INNER_RATE, ALPHA, REST, EPS, INNER_EPS, MOMENTUM };

KERN_INLINE float direction(const float *c, float g, float *square, float mean)
{
	float room;

	*square = c[ALPHA] * *square + c[REST] * (g * g);
	room = *square - mean * mean;
	room = room < 0 ? 0 : room;
	return g / (sqrtf(room + c[INNER_EPS]) + c[EPS]);
}

KERN_INLINE float centre(const float *c, float g, float *mean)
{
	*mean = c[ALPHA] * *mean + c[REST] * g;
	return *mean;
}

KERN_INLINE float accelerate(const float *c, float d, float *buf)
{
	*buf = c[MOMENTUM] * *buf + c[INNER_RATE] * d;
	return c[RATE] * *buf;
}

KERN_INLINE float plain(const float *c, float w, float g, float *s)
{
	return c[RATE] * (c[INNER_RATE] * direction(c, g, &s[0], 0));
}

KERN_INLINE float centered(const float *c, float w, float g, float *s)
{
	return c[RATE] * (c[INNER_RATE] * direction(c, g, &s[0], centre(c, g, &s[1])));
}

KERN_INLINE float with_momentum(const float *c, float w, float g, float *s)
{
	return accelerate(c, direction(c, g, &s[0], 0), &s[1]);
}

KERN_INLINE float centered_with_momentum(const float *c, float w, float g, float *s)
{
	return accelerate(c, direction(c, g, &s[0], centre(c, g, &s[1])), &s[2]);
}

KERN_LOOP(plain, 1)
KERN_LOOP(centered, 2)
KERN_LOOP(with_momentum, 2)
KERN_LOOP(centered_with_momentum, 3)

static unsigned rmsprop_arrays(const float *value)
{
	return 1 + (value[SET_CENTERED] != 0) + (value[SET_MOMENTUM] > 0);
}

static kern_loop_fn *rmsprop_pick(const float *value)
{
	if (value[SET_CENTERED] != 0)
		return value[SET_MOMENTUM] > 0 ? centered_with_momentum_loop : centered_loop;
	return value[SET_MOMENTUM] > 0 ? with_momentum_loop : plain_loop;
}

static void rmsprop_constants(const float *value, const struct kern_step *step, float *c)
{
	c[RATE] = value[SET_LR_INSIDE] != 0 ? 1 : step->lr;
	c[INNER_RATE] = value[SET_LR_INSIDE] != 0 ? step->lr : 1;
	c[ALPHA] = value[SET_ALPHA];
	c[REST] = kern_rest(value[SET_ALPHA]);
	c[EPS] = value[SET_EPS_INSIDE] != 0 ? 0 : value[SET_EPS];
	c[INNER_EPS] = value[SET_EPS_INSIDE] != 0 ? value[SET_EPS] : 0;
	c[MOMENTUM] = value[SET_MOMENTUM];
}

const struct kern_rule KERN_SYMBOL(kern_rule_rmsprop) = {
    .name = "rmsprop",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_ALPHA] = {"alpha", KERN_BELOW_1, 0.99f},
	      [SET_EPS] = {"eps", KERN_NOT_NEGATIVE, 1e-8f},
	      [SET_MOMENTUM] = {"momentum", KERN_BELOW_1, 0},
	      [SET_CENTERED] = {"centered", KERN_SWITCH, 0},
	      [SET_EPS_INSIDE] = {"eps_inside", KERN_SWITCH, 0},
	      [SET_LR_INSIDE] = {"lr_inside", KERN_SWITCH, 0}},
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = rmsprop_arrays,
    .constants = rmsprop_constants,
    .loop = rmsprop_pick,
};

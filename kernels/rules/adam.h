/* SPDX-License-Identifier: Apache-2.0
 *
 * What adam and adamw have in common: all but their names and the default of their weight decay.
 */
#ifndef GS_KERNELS_RULES_ADAM_H
#define GS_KERNELS_RULES_ADAM_H

#include "kernels/loop.h"

enum { SET_LR, SET_BETA1, SET_BETA2, SET_EPS, SET_AMSGRAD, SET_EPS_HAT };
enum { RATE, BETA1, REST1, BETA2, REST2, ROOT, EPS };
enum { M, V, V_MAX };

/* The moments without their corrections: those are in ROOT and RATE. */
KERN_INLINE void moments(const float *c, float g, float *s)
{
	s[M] = c[BETA1] * s[M] + c[REST1] * g;
	s[V] = c[BETA2] * s[V] + c[REST2] * (g * g);
}

KERN_INLINE float adam(const float *c, float w, float g, float *s)
{
	moments(c, g, s);
	return c[RATE] * (s[M] / (sqrtf(s[V]) * c[ROOT] + c[EPS]));
}

KERN_INLINE float amsgrad(const float *c, float w, float g, float *s)
{
	moments(c, g, s);
	s[V_MAX] = s[V] > s[V_MAX] ? s[V] : s[V_MAX];
	return c[RATE] * (s[M] / (sqrtf(s[V_MAX]) * c[ROOT] + c[EPS]));
}

KERN_LOOP(adam, 2)
KERN_LOOP(amsgrad, 3)

static unsigned adam_arrays(const float *value)
{
	return value[SET_AMSGRAD] != 0 ? 3 : 2;
}

static kern_loop_fn *adam_pick(const float *value)
{
	return value[SET_AMSGRAD] != 0 ? amsgrad_loop : adam_loop;
}

static void adam_constants(const float *value, const struct kern_step *step, float *c)
{
	double fix1 = 1 - kern_power(value[SET_BETA1], step->t);
	double root2 = sqrt(1 - kern_power(value[SET_BETA2], step->t));
	bool hat = value[SET_EPS_HAT] != 0;

	c[BETA1] = value[SET_BETA1];
	c[REST1] = kern_rest(value[SET_BETA1]);
	c[BETA2] = value[SET_BETA2];
	c[REST2] = kern_rest(value[SET_BETA2]);
	c[EPS] = value[SET_EPS];
	c[ROOT] = hat ? 1 : (float)(1 / root2);
	c[RATE] = (float)(hat ? step->lr * root2 / fix1 : step->lr / fix1);
}

#define ADAM_SETTINGS                                          \
	{                                                      \
		[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},     \
		[SET_BETA1] = {"beta1", KERN_BELOW_1, 0.9f},   \
		[SET_BETA2] = {"beta2", KERN_BELOW_1, 0.999f}, \
		[SET_EPS] = {"eps", KERN_NOT_NEGATIVE, 1e-8f}, \
		[SET_AMSGRAD] = {"amsgrad", KERN_SWITCH, 0},   \
		[SET_EPS_HAT] = {"eps_hat", KERN_SWITCH, 0},   \
	}

#endif

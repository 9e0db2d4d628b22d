/* SPDX-License-Identifier: Apache-2.0
 *
 * Lion (X. Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023,
 * https://arxiv.org/abs/2302.06675, algorithm 2; its weight decay is decoupled):
 *
 *     w = w - lr * sign(beta1 * m + (1 - beta1) * g);  m = beta2 * m + (1 - beta2) * g
 */
#include "kernels/loop.h"

enum { SET_LR, SET_BETA1, SET_BETA2 };
enum { LR, BETA1, REST1, BETA2, REST2 };
enum { M };

KERN_INLINE float lion(const float *c, float w, float g, float *s)
{
	float x = c[BETA1] * s[M] + c[REST1] * g;
	float up = x > 0 ? c[LR] : 0.0f, down = x < 0 ? c[LR] : 0.0f;

	s[M] = c[BETA2] * s[M] + c[REST2] * g;
	return up - down;
}

KERN_ONLY_LOOP(lion, 1)

static void lion_constants(const float *value, const struct kern_step *step, float *c)
{
	c[LR] = step->lr;
	c[BETA1] = value[SET_BETA1];
	c[REST1] = kern_rest(value[SET_BETA1]);
	c[BETA2] = value[SET_BETA2];
	c[REST2] = kern_rest(value[SET_BETA2]);
}

const struct kern_rule KERN_SYMBOL(kern_rule_lion) = {
    .name = "lion",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_BETA1] = {"beta1", KERN_BELOW_1, 0.9f},
	      [SET_BETA2] = {"beta2", KERN_BELOW_1, 0.99f}},
    .common = KERN_ALL_COMMON,
    .fallback = {.decoupled = true},
    .by_rows = true,
    .arrays = lion_arrays,
    .constants = lion_constants,
    .loop = lion_pick,
};

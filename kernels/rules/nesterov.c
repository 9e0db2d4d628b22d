/* SPDX-License-Identifier: Apache-2.0
 *
 * Nesterov's momentum in the form of Sutskever et al. (ICML 2013), as torch.optim.SGD with
 * nesterov=True (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html):
 *
 *     buf = momentum * buf + g;  w = w - lr * (g + momentum * buf)
 */
#include "kernels/loop.h"

enum { SET_LR, SET_MOMENTUM };
enum { LR, MOMENTUM };
enum { BUF };

KERN_INLINE float nesterov(const float *c, float w, float g, float *s)
{
	s[BUF] = c[MOMENTUM] * s[BUF] + g;
	return c[LR] * (g + c[MOMENTUM] * s[BUF]);
}

KERN_ONLY_LOOP(nesterov, 1)

static void nesterov_constants(const float *value, const struct kern_step *step, float *c)
{
	c[LR] = step->lr;
	c[MOMENTUM] = value[SET_MOMENTUM];
}

const struct kern_rule KERN_SYMBOL(kern_rule_nesterov) = {
    .name = "nesterov",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN},
	      [SET_MOMENTUM] = {"momentum", KERN_BELOW_1, 0.9f}},
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = nesterov_arrays,
    .constants = nesterov_constants,
    .loop = nesterov_pick,
};

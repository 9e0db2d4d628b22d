/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain gradient descent, as torch.optim.SGD without momentum
 * (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html):
 *
 *     w = w - lr * g
 *
 * BLAS has this as saxpy. It isn't used: OpenBLAS's multiplies and adds in one rounding on some
 * CPUs and in two on others, and a mean of several gradients would take another path than one
 * gradient. Nor would it be faster: perf/METHOD.md.
 */
#include "kernels/loop.h"

enum { SET_LR };
enum { LR };

KERN_INLINE float sgd(const float *c, float w, float g, float *s)
{
	return c[LR] * g;
}

KERN_ONLY_LOOP(sgd, 0)

static void sgd_constants(const float *value, const struct kern_step *step, float *c)
{
	c[LR] = step->lr;
}

const struct kern_rule KERN_SYMBOL(kern_rule_sgd) = {
    .name = "sgd",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, NAN}},
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = sgd_arrays,
    .constants = sgd_constants,
    .loop = sgd_pick,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * What is pushed is not a gradient but a change, added as it is (local updates, as in GeoSGD and
 * model averaging): neither clipped nor decayed.
 *
 *     w = w + lr * g
 */
#include "kernels/loop.h"

enum { SET_LR };
enum { LR };

KERN_INLINE float add(const float *c, float w, float g, float *s)
{
	return -(c[LR] * g);
}

KERN_ONLY_LOOP(add, 0)

static void add_constants(const float *value, const struct kern_step *step, float *c)
{
	c[LR] = step->lr;
}

const struct kern_rule KERN_SYMBOL(kern_rule_add) = {
    .name = "add",
    .param = {[SET_LR] = {"lr", KERN_NOT_NEGATIVE, 1}},
    .by_rows = true,
    .arrays = add_arrays,
    .constants = add_constants,
    .loop = add_pick,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam with decoupled weight decay (I. Loshchilov, F. Hutter, ICLR 2019,
 * https://arxiv.org/abs/1711.05101), as torch.optim.AdamW
 * (https://pytorch.org/docs/stable/generated/torch.optim.AdamW.html):
 *
 *     w = w - (lr * weight_decay * w + what adam subtracts)
 */
#include "kernels/rules/adam.h"

const struct kern_rule KERN_SYMBOL(kern_rule_adamw) = {
    .name = "adamw",
    .param = ADAM_SETTINGS,
    .common = KERN_ALL_COMMON,
    .fallback = {.weight_decay = 0.01f, .decoupled = true},
    .by_rows = true,
    .arrays = adam_arrays,
    .constants = adam_constants,
    .loop = adam_pick,
};

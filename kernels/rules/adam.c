/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam (D. P. Kingma, J. Ba, ICLR 2015, https://arxiv.org/abs/1412.6980), as torch.optim.Adam
 * (https://pytorch.org/docs/stable/generated/torch.optim.Adam.html), and PaddlePaddle's:
 *
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     w = w - lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
 *
 * amsgrad=1: with the largest v so far in v's place below the line (S. J. Reddi, S. Kale, S. Kumar,
 * ICLR 2018, https://openreview.net/forum?id=ryQu7f-RZ). eps_hat=1: the paper's other form, before
 * its section 2.1, and TensorFlow's:
 *
 *     w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps)
 *
 * which by rows is torch.optim.SparseAdam.
 */
#include "kernels/rules/adam.h"

const struct kern_rule KERN_SYMBOL(kern_rule_adam) = {
    .name = "adam",
    .param = ADAM_SETTINGS,
    .common = KERN_ALL_COMMON,
    .by_rows = true,
    .arrays = adam_arrays,
    .constants = adam_constants,
    .loop = adam_pick,
};

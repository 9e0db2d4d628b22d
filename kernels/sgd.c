/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain gradient descent, as torch.optim.SGD without momentum
 * (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html).
 */
#include "kernels/loop.h"

/* w = w - lr * g */
KERN_INLINE void sgd_step(const struct kern_opt *opt, float *w, float *buf, size_t i, float g)
{
	w[i] -= opt->lr * g;
}

KERN_RULE(sgd)

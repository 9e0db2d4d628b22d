/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient descent with momentum, as torch.optim.SGD with momentum and dampening
 * (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html). PyTorch starts buf as the first
 * gradient, undampened; here it starts at zero and the first step is like any other, which is the
 * same when dampening is 0 and scales the first gradient by 1 - dampening when it isn't.
 */
#include "kernels/loop.h"

/* buf = momentum * buf + (1 - dampening) * g;  w = w - lr * buf */
KERN_INLINE void momentum_step(const struct kern_opt *opt, float *w, float *buf, size_t i, float g)
{
	buf[i] = opt->momentum * buf[i] + (1.0f - opt->dampening) * g;
	w[i] -= opt->lr * buf[i];
}

KERN_RULE(momentum)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Nesterov's momentum in the form of Sutskever et al. (ICML 2013), as torch.optim.SGD with
 * nesterov=True (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html).
 */
#include "kernels/loop.h"

/* buf = momentum * buf + g;  w = w - lr * (g + momentum * buf) */
KERN_INLINE void nesterov_step(const struct kern_opt *opt, float *w, float *buf, size_t i, float g)
{
	buf[i] = opt->momentum * buf[i] + g;
	w[i] -= opt->lr * (g + opt->momentum * buf[i]);
}

KERN_RULE(nesterov)

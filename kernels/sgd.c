/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain gradient descent, as torch.optim.SGD without momentum
 * (https://pytorch.org/docs/stable/generated/torch.optim.SGD.html).
 */
#include "kernels/loop.h"

/* w = w - lr * g
 *
 * BLAS has this as saxpy. It isn't used: OpenBLAS's multiplies and adds in one rounding on some
 * CPUs and in two on others, and a mean of several gradients would take another path than one
 * gradient. Nor would it be faster. From perf_kernels on an AMD EPYC (family 26), one thread: the
 * median of 10^9 bytes a second, and the range of 80 % of the rounds, of memcpy, of OpenBLAS's
 * saxpy, and of this with AVX-512:
 * - 16 KiB: 328 (321-334), 337 (326-341), 502 (455-528)
 * - 256 KiB: 260 (244-263), 312 (289-318), 371 (319-383)
 * - 4 MiB: 107 (101-109), 140 (113-144), 154 (127-157)
 * - 256 MiB: 38.7 (38.0-40.2), 57.4 (50.8-60.5), 58.5 (54.3-59.1)
 */
KERN_INLINE void sgd_step(const struct kern_opt *opt, float *w, float *buf, size_t i, float g)
{
	w[i] -= opt->lr * g;
}

KERN_RULE(sgd)

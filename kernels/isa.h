/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of instruction sets, and the names of the loops that are compiled for each.
 */
#ifndef GS_KERNELS_ISA_H
#define GS_KERNELS_ISA_H

#include "kernels/kern.h"

typedef void kern_apply_fn(const struct kern_opt *opt, float *w, float *buf,
			   const float *const *grads, unsigned n, size_t len);
typedef void kern_mean_fn(float *out, const float *const *grads, unsigned n, size_t len);

struct kern_loops {
	const char *name;
	kern_apply_fn *apply[3]; /* by kern_rule */
	kern_mean_fn *mean;
};

/* The loops in use; picks them at the first call. */
const struct kern_loops *kern_loops(void);

/* KERN_SYMBOL(kern_sgd) is kern_sgd_avx2 in a file compiled for AVX2. */
#define KERN_PASTE_(a, b) a##_##b
#define KERN_PASTE(a, b)  KERN_PASTE_(a, b)
#define KERN_SYMBOL(name) KERN_PASTE(name, KERN_ISA)

#define KERN_DECLARE(isa)                                                        \
	kern_apply_fn KERN_PASTE(kern_sgd, isa), KERN_PASTE(kern_momentum, isa), \
	    KERN_PASTE(kern_nesterov, isa);                                      \
	kern_mean_fn KERN_PASTE(kern_average, isa)

KERN_DECLARE(baseline);
KERN_DECLARE(avx2);
KERN_DECLARE(avx512);

#endif

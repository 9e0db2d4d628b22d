/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops that are compiled once for each instruction set, and the table to find them by.
 */
#ifndef GS_KERNELS_ISA_H
#define GS_KERNELS_ISA_H

#include "kernels/kern.h"
#include "kernels/rule.h"

/* Sums are made in so many lanes: element i of a tensor goes to lane i % KERN_LANES. */
enum { KERN_LANES = 16 };

/* Elements that are worked on at once. 4 KiB: a tile, a second one for what is being widened, and
 * the weights and state beside them stay in the L1 cache (32 KiB or more) while gradients stream
 * past. Measured: perf/METHOD.md. A multiple of the lanes. */
enum { KERN_TILE = 1024 };

/* Elements at .. at + len - 1 of the merged gradient; len <= KERN_TILE. True: as kern_merge. */
typedef bool kern_merge_fn(const struct kern_grads *g, size_t at, float *out, size_t len);
typedef bool kern_nonfinite_fn(enum kern_dtype dtype, const void *data, size_t len);
typedef void kern_widen_fn(enum kern_dtype dtype, const void *in, float *out, size_t len);
typedef void kern_narrow_fn(enum kern_dtype dtype, const float *in, void *out, size_t len);
/* What kern_common says, in its order, of the gradient: all but decoupled weight decay. */
typedef void kern_adjust_fn(const struct kern_common *common, float clip, const float *backup,
			    const float *w, float *g, size_t len);
/* Adds the squares of x to the lanes; element 0 goes to lane 0. */
typedef void kern_squares_fn(const float *x, size_t len, double lane[KERN_LANES]);

struct kern_loops {
	const char *name;
	const struct kern_rule *const *rule; /* by number */
	kern_merge_fn *merge;
	kern_nonfinite_fn *nonfinite;
	kern_widen_fn *widen;
	kern_narrow_fn *narrow;
	kern_adjust_fn *adjust;
	kern_squares_fn *squares;
};

/* The loops in use; picks them at the first call. */
const struct kern_loops *kern_loops(void);
/* Those of any instruction set: for what is the same in all, names and settings. NULL: there is no
 * such number. */
const struct kern_rule *kern_rule_at(unsigned i);

/* KERN_SYMBOL(kern_widen) is kern_widen_avx2 in a file compiled for AVX2. */
#define KERN_PASTE_(a, b) a##_##b
#define KERN_PASTE(a, b)  KERN_PASTE_(a, b)
#define KERN_SYMBOL(name) KERN_PASTE(name, KERN_ISA)

#define KERN_DECLARE_RULE(name, isa) extern const struct kern_rule kern_rule_##name##_##isa;
#define KERN_DECLARE(isa)                       \
	KERN_RULES(KERN_DECLARE_RULE, isa)      \
	kern_merge_fn kern_merge_##isa;         \
	kern_nonfinite_fn kern_nonfinite_##isa; \
	kern_widen_fn kern_widen_##isa;         \
	kern_narrow_fn kern_narrow_##isa;       \
	kern_adjust_fn kern_adjust_##isa;       \
	kern_squares_fn kern_squares_##isa

KERN_DECLARE(baseline);
KERN_DECLARE(avx2);
KERN_DECLARE(avx512);

#endif

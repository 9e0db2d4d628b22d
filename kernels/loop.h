/* SPDX-License-Identifier: Apache-2.0
 *
 * What an optimizer's file is made of. It says what one element does (a kern_step_fn) and
 * KERN_RULE makes the loops around it: one gradient, two gradients, or more, summed tile by tile in
 * cache. Included by the files that are compiled once for each instruction set, and by no others.
 *
 * Rules of the loops:
 *  1. Elements are independent, and additions happen in the order of the gradients, so that the
 *     vector width never shows in the result.
 *  2. What several gradients come to is multiplied by 1/n, rather than divided by n, in every loop
 *     alike.
 */
#ifndef GS_KERNELS_LOOP_H
#define GS_KERNELS_LOOP_H

#include "kernels/isa.h"
#include "kernels/kern.h"

/* 16 KiB: the tile stays in the L1 cache (32 KiB or more) while gradients stream past it, and is
 * four pages long, so that the hardware prefetcher gets into its stride in each. */
enum { KERN_TILE = 4096 };

/* One element's step: updates w[i] and the state buf[i] with the gradient g. `buf` is NULL for a
 * rule without state. */
typedef void kern_step_fn(const struct kern_opt *opt, float *w, float *buf, size_t i, float g);

#define KERN_INLINE static inline __attribute__((always_inline))

/* acc = (g0 + g1) + ..., of `len` elements from element `at`; n >= 2. Two gradients a pass, to
 * halve the traffic between the tile and the registers. */
KERN_INLINE void kern_sum(float *restrict acc, const float *const *grads, unsigned n, size_t at,
			  size_t len)
{
	const float *restrict a = grads[0] + at, *restrict b = grads[1] + at;

	for (size_t i = 0; i < len; i++)
		acc[i] = a[i] + b[i];
	for (unsigned k = 2; k < n; k += 2) {
		a = grads[k] + at;
		if (k + 1 == n) {
			for (size_t i = 0; i < len; i++)
				acc[i] = acc[i] + a[i];
			break;
		}
		b = grads[k + 1] + at;
		for (size_t i = 0; i < len; i++)
			acc[i] = (acc[i] + a[i]) + b[i];
	}
}

KERN_INLINE void kern_step_1(kern_step_fn *step, const struct kern_opt *opt, float *restrict w,
			     float *restrict buf, const float *restrict g, float scale, size_t at,
			     size_t len)
{
	for (size_t i = 0; i < len; i++)
		step(opt, w, buf, at + i, g[i] * scale);
}

KERN_INLINE void kern_step_2(kern_step_fn *step, const struct kern_opt *opt, float *restrict w,
			     float *restrict buf, const float *restrict a, const float *restrict b,
			     size_t len)
{
	for (size_t i = 0; i < len; i++)
		step(opt, w, buf, i, (a[i] + b[i]) * 0.5f);
}

KERN_INLINE void kern_loop(kern_step_fn *step, const struct kern_opt *opt, float *restrict w,
			   float *restrict buf, const float *const *grads, unsigned n, size_t len)
{
	/* A copy, because a store to w might otherwise change the settings. */
	const struct kern_opt o = *opt;
	const float scale = 1.0f / (float)n;

	if (n == 1) {
		kern_step_1(step, &o, w, buf, grads[0], 1.0f, 0, len);
	} else if (n == 2) {
		kern_step_2(step, &o, w, buf, grads[0], grads[1], len);
	} else {
		float tile[KERN_TILE] __attribute__((aligned(64)));

		for (size_t at = 0, m; at < len; at += m) {
			m = len - at < KERN_TILE ? len - at : KERN_TILE;
			kern_sum(tile, grads, n, at, m);
			kern_step_1(step, &o, w, buf, tile, scale, at, m);
		}
	}
}

/* Defines this instruction set's loops of a rule whose element step is NAME_step. */
#define KERN_RULE(NAME)                                                                  \
	void KERN_SYMBOL(kern_##NAME)(const struct kern_opt *opt, float *w, float *buf,  \
				      const float *const *grads, unsigned n, size_t len) \
	{                                                                                \
		kern_loop(NAME##_step, opt, w, buf, grads, n, len);                      \
	}

#endif

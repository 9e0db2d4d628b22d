/* SPDX-License-Identifier: Apache-2.0
 *
 * What an optimizer's file is made of. It says what one element does (a kern_elem_fn) and KERN_LOOP
 * makes the loop around it. Included by the files that are compiled once for each instruction set,
 * and by no others.
 *
 * Elements are independent, so the vector width never shows in the result.
 */
#ifndef GS_KERNELS_LOOP_H
#define GS_KERNELS_LOOP_H

#include <math.h>
#include <string.h>

#include "kernels/isa.h"

#define KERN_INLINE static inline __attribute__((always_inline))

/* One element's step with the gradient g, by the constants c: changes its state s and gives what is
 * to be subtracted from its weight w, or (KERN_WEIGHT_LOOP) the new weight. */
typedef float kern_elem_fn(const float *c, float w, float g, float *s);

/* The highest bit is set for an infinity and for a NaN, whose exponents are all ones. Made of what
 * each instruction set has. */
KERN_INLINE uint32_t kern_odd(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return (bits & 0x7f800000u) + 0x00800000u;
}

/* Decoupled weight decay is part of the change, and not a step of its own: so the weight is rounded
 * once, and not twice, where the decay alone would be rounded the same way each time. */
KERN_INLINE bool kern_loop(kern_elem_fn *elem, bool gives_weight, unsigned arrays,
			   const float *consts, float shrink, float *restrict w,
			   float *const *state, const float *restrict g, size_t len)
{
	float *a = arrays > 0 ? state[0] : NULL, *b = arrays > 1 ? state[1] : NULL,
	      *d = arrays > 2 ? state[2] : NULL;
	/* A copy, because a store to w might otherwise change them. */
	float c[KERN_CONSTS_MAX];
	uint32_t odd = 0;

	memcpy(c, consts, sizeof(c));
#pragma GCC ivdep
	for (size_t i = 0; i < len; i++) {
		float s[3], x;

		if (arrays > 0)
			s[0] = a[i];
		if (arrays > 1)
			s[1] = b[i];
		if (arrays > 2)
			s[2] = d[i];
		odd |= kern_odd(g[i]);
		x = elem(c, w[i], g[i], s);
		if (!gives_weight) {
			float with_decay = x + shrink * w[i];

			x = w[i] - (shrink > 0 ? with_decay : x);
		}
		w[i] = x;
		if (arrays > 0)
			a[i] = s[0];
		if (arrays > 1)
			b[i] = s[1];
		if (arrays > 2)
			d[i] = s[2];
	}
	return odd >> 31;
}

/* Defines NAME_loop, whose element is NAME, with so many state arrays. */
#define KERN_LOOP(NAME, ARRAYS)                                                              \
	static bool NAME##_loop(const float *c, float shrink, float *w, float *const *state, \
				const float *g, size_t len)                                  \
	{                                                                                    \
		return kern_loop(NAME, false, ARRAYS, c, shrink, w, state, g, len);          \
	}

/* The same for an element that gives its weight; the rule takes no decay. */
#define KERN_WEIGHT_LOOP(NAME, ARRAYS)                                                       \
	static bool NAME##_loop(const float *c, float shrink, float *w, float *const *state, \
				const float *g, size_t len)                                  \
	{                                                                                    \
		return kern_loop(NAME, true, ARRAYS, c, 0, w, state, g, len);                \
	}

/* For rules whose settings do not matter: defines NAME_arrays and NAME_pick as well. */
#define KERN_ONLY_LOOP(NAME, ARRAYS)                         \
	KERN_LOOP(NAME, ARRAYS)                              \
	static unsigned NAME##_arrays(const float *value)    \
	{                                                    \
		return ARRAYS;                               \
	}                                                    \
	static kern_loop_fn *NAME##_pick(const float *value) \
	{                                                    \
		return NAME##_loop;                          \
	}

/* 1 - x, of a setting: rounded once. */
KERN_INLINE float kern_rest(float x)
{
	return (float)(1.0 - (double)x);
}

/* x^t, by squaring: the same multiplications on every machine. */
KERN_INLINE double kern_power(double x, uint64_t t)
{
	double p = 1;

	for (; t; t >>= 1, x *= x)
		if (t & 1)
			p *= x;
	return p;
}

#endif

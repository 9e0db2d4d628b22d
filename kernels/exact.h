/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums that do not depend on the order of what is summed: exact, in fixed point, over the range
 * of a double (U. Kulisch, "Computer Arithmetic and Validity", 2013, chapter 8).
 */
#ifndef GS_KERNELS_EXACT_H
#define GS_KERNELS_EXACT_H

#include <stdint.h>

enum { EXACT_DIGITS = 67 };

/* All zero: the sum of nothing. */
struct exact {
	uint64_t digit[EXACT_DIGITS]; /* of 32 bits, lowest first, and the carries that they hold */
	double odd;                   /* infinities and NaNs among what was added */
};

/* x is not negative. Up to 2^31 may be added. */
void exact_add(struct exact *sum, double x);
/* Rounded; the same for the same numbers in any order. */
double exact_value(const struct exact *sum);

#endif

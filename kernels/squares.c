/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of squares, in double, in lanes: which numbers are added in which order depends on their
 * places in the tensor alone. A float's square is exact in double.
 */
#include "kernels/loop.h"

typedef float floats __attribute__((vector_size(KERN_LANES / 2 * sizeof(float))));
typedef double doubles __attribute__((vector_size(KERN_LANES / 2 * sizeof(double))));

KERN_INLINE void add(doubles *sum, const float *x)
{
	floats f;
	doubles d;

	memcpy(&f, x, sizeof(f));
	d = __builtin_convertvector(f, doubles);
	*sum += d * d;
}

void KERN_SYMBOL(kern_squares)(const float *x, size_t len, double lane[KERN_LANES])
{
	enum { HALF = KERN_LANES / 2 };
	doubles low, high;
	size_t i = 0;

	memcpy(&low, lane, sizeof(low));
	memcpy(&high, lane + HALF, sizeof(high));
	for (; i + KERN_LANES <= len; i += KERN_LANES) {
		add(&low, x + i);
		add(&high, x + i + HALF);
	}
	memcpy(lane, &low, sizeof(low));
	memcpy(lane + HALF, &high, sizeof(high));
	for (unsigned k = 0; i < len; i++, k++)
		lane[k] += (double)x[i] * (double)x[i];
}

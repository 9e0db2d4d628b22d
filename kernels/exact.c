/* SPDX-License-Identifier: Apache-2.0
 *
 * A long accumulator.
 */
#include "kernels/exact.h"

#include <math.h>
#include <string.h>

enum { MANTISSA_BITS = 52, LEAST_EXPONENT = -1074, DIGIT_BITS = 32 };

void exact_add(struct exact *sum, double x)
{
	uint64_t bits, mantissa, exponent;
	unsigned __int128 shifted;

	if (!isfinite(x)) {
		sum->odd += x;
		return;
	}
	memcpy(&bits, &x, sizeof(bits));
	exponent = bits >> MANTISSA_BITS;
	mantissa = bits & ((UINT64_C(1) << MANTISSA_BITS) - 1);
	if (exponent > 0) {
		mantissa |= UINT64_C(1) << MANTISSA_BITS;
		exponent--;
	}
	shifted = (unsigned __int128)mantissa << exponent % DIGIT_BITS;
	for (uint64_t i = exponent / DIGIT_BITS; shifted; i++, shifted >>= DIGIT_BITS)
		sum->digit[i] += (uint32_t)shifted;
}

double exact_value(const struct exact *sum)
{
	uint32_t digit[EXACT_DIGITS];
	uint64_t carry = 0;
	double value = sum->odd;

	for (unsigned i = 0; i < EXACT_DIGITS; i++) {
		carry += sum->digit[i];
		digit[i] = (uint32_t)carry;
		carry >>= DIGIT_BITS;
	}
	for (unsigned i = EXACT_DIGITS; i-- > 0;)
		value += ldexp(digit[i], (int)i * DIGIT_BITS + LEAST_EXPONENT);
	return value;
}

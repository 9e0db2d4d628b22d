/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial values. One call of the generator, with the seed as its key, serves two elements: element
 * i takes half i % 2 of the bits of counter i / 2.
 */
#include "kernels/kern.h"

#include "kernels/philox.h"
#include "kernels/rmath.h"

static float uniform(uint64_t bits, double a, double b)
{
	return (float)(a + (b - a) * ((double)(bits >> 11) * 0x1p-53));
}

/* By inversion, so that one element needs one number (Box-Muller makes two of two, and needs sine
 * and cosine as well). 52 bits and a half: the probability is exact, and neither 0 nor 1. */
static float normal(uint64_t bits, double mean, double std)
{
	double p = ((double)(bits >> 12) + 0.5) * 0x1p-52;

	return (float)(mean + std * rm_normal_quantile(p));
}

static void fill_random(float (*draw)(uint64_t, double, double), uint64_t seed, double a, double b,
			uint64_t first, float *out, size_t len)
{
	for (size_t done = 0; done < len;) {
		uint64_t pair = (first + done) / 2;
		uint32_t r[4] = {(uint32_t)pair, (uint32_t)(pair >> 32), 0, 0};

		philox4x32_10(r, seed);
		for (unsigned half = (first + done) % 2; half < 2 && done < len; half++)
			out[done++] = draw((uint64_t)r[2 * half + 1] << 32 | r[2 * half], a, b);
	}
}

void kern_init_fill(enum kern_init kind, uint64_t seed, double a, double b, uint64_t first,
		    float *out, size_t len)
{
	switch (kind) {
	case KERN_INIT_ZERO:
	case KERN_INIT_CONSTANT:
		for (size_t i = 0; i < len; i++)
			out[i] = kind == KERN_INIT_ZERO ? 0.0f : (float)a;
		break;
	case KERN_INIT_UNIFORM:
		fill_random(uniform, seed, a, b, first, out, len);
		break;
	case KERN_INIT_NORMAL:
		fill_random(normal, seed, a, b, first, out, len);
		break;
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Several gradients become one, tile by tile: additions in the order of the gradients, then the
 * scale. What is left out where it is 1 is multiplied by all the same here: that changes no bit.
 */
#include "kernels/loop.h"

/* out = ((in + fa * a) + fb * b) * scale, without what is NULL. Two gradients a pass, to halve the
 * traffic between the tile and the registers. Gives kern_odd of all that was written. */
KERN_INLINE uint32_t pass(float *out, const float *in, const float *a, float fa, const float *b,
			  float fb, float scale, size_t len)
{
	uint32_t odd = 0;

#pragma GCC ivdep
	for (size_t i = 0; i < len; i++) {
		float x = fa * a[i];

		if (in)
			x = in[i] + x;
		if (b)
			x = x + fb * b[i];
		x *= scale;
		odd |= kern_odd(x);
		out[i] = x;
	}
	return odd;
}

/* A function for each shape, so that each becomes a loop without tests. */
static uint32_t first(float *out, const float *a, float fa, float scale, size_t len)
{
	return pass(out, NULL, a, fa, NULL, 0, scale, len);
}

static uint32_t first_two(float *out, const float *a, float fa, const float *b, float fb,
			  float scale, size_t len)
{
	return pass(out, NULL, a, fa, b, fb, scale, len);
}

static uint32_t next(float *out, const float *a, float fa, float scale, size_t len)
{
	return pass(out, out, a, fa, NULL, 0, scale, len);
}

static uint32_t next_two(float *out, const float *a, float fa, const float *b, float fb,
			 float scale, size_t len)
{
	return pass(out, out, a, fa, b, fb, scale, len);
}

static float factor(const struct kern_grads *g, unsigned k)
{
	return g->factor ? g->factor[k] : 1.0f;
}

static bool merge_floats(const struct kern_grads *g, size_t at, float *out, size_t len)
{
	uint32_t odd = 0;

	for (unsigned k = 0; k < g->n; k += 2) {
		const float *a = (const float *)g->data[k] + at;
		float scale = k + 2 >= g->n ? g->scale : 1.0f;

		if (k + 1 == g->n) {
			odd = (k ? next : first)(out, a, factor(g, k), scale, len);
		} else {
			const float *b = (const float *)g->data[k + 1] + at;

			odd = (k ? next_two : first_two)(out, a, factor(g, k), b, factor(g, k + 1),
							 scale, len);
		}
	}
	return odd >> 31;
}

/* Each is made floats first; the first one in its place, where an only one may stay as it is. */
static bool merge_halves(const struct kern_grads *g, size_t at, float *out, size_t len)
{
	const uint16_t *one = (const uint16_t *)g->data[0] + at;
	float tile[KERN_TILE] __attribute__((aligned(64)));
	uint32_t odd = 0;

	KERN_SYMBOL(kern_widen)(g->dtype, one, out, len);
	if (g->n == 1 && factor(g, 0) == 1 && g->scale == 1)
		return KERN_SYMBOL(kern_nonfinite)(g->dtype, one, len);
	odd = first(out, out, factor(g, 0), g->n == 1 ? g->scale : 1.0f, len);
	for (unsigned k = 1; k < g->n; k++) {
		KERN_SYMBOL(kern_widen)(g->dtype, (const uint16_t *)g->data[k] + at, tile, len);
		odd = next(out, tile, factor(g, k), k + 1 == g->n ? g->scale : 1.0f, len);
	}
	return odd >> 31;
}

bool KERN_SYMBOL(kern_merge)(const struct kern_grads *g, size_t at, float *out, size_t len)
{
	return (g->dtype == KERN_F32 ? merge_floats : merge_halves)(g, at, out, len);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What every optimizer takes beside its own settings: clipping, delay compensation, decay. One pass
 * over the tile for each that is asked for and none for the others, so that an infinite weight is
 * not multiplied by a zero.
 */
#include "kernels/loop.h"

static void scale(float *restrict g, float by, size_t len)
{
	for (size_t i = 0; i < len; i++)
		g[i] *= by;
}

/* A NaN stays one. */
static void cut(float *restrict g, float limit, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		float x = g[i] > limit ? limit : g[i];

		g[i] = x < -limit ? -limit : x;
	}
}

/* S. Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation", ICML 2017,
 * https://arxiv.org/abs/1609.08326, equation 10. */
static void compensate(float *restrict g, const float *restrict w, const float *restrict backup,
		       float lambda, size_t len)
{
	for (size_t i = 0; i < len; i++)
		g[i] = g[i] + ((lambda * g[i]) * g[i]) * (w[i] - backup[i]);
}

static void add_l1(float *restrict g, const float *restrict w, float l1, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		float up = w[i] > 0 ? l1 : 0.0f, down = w[i] < 0 ? l1 : 0.0f;

		g[i] = g[i] + (up - down);
	}
}

static void add_decay(float *restrict g, const float *restrict w, float decay, size_t len)
{
	for (size_t i = 0; i < len; i++)
		g[i] = g[i] + decay * w[i];
}

void KERN_SYMBOL(kern_adjust)(const struct kern_common *common, float clip, const float *backup,
			      const float *w, float *g, size_t len)
{
	if (clip != 1)
		scale(g, clip, len);
	if (common->clip_value > 0)
		cut(g, common->clip_value, len);
	if (common->dc_lambda > 0 && backup)
		compensate(g, w, backup, common->dc_lambda, len);
	if (common->l1 > 0)
		add_l1(g, w, common->l1, len);
	if (common->weight_decay > 0 && !common->decoupled)
		add_decay(g, w, common->weight_decay, len);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The mean of several gradients: the sum that the optimizers' loops make, times 1/n.
 */
#include "kernels/loop.h"

#include <string.h>

void KERN_SYMBOL(kern_average)(float *out, const float *const *grads, unsigned n, size_t len)
{
	const float scale = 1.0f / (float)n;

	if (n == 1) {
		memcpy(out, grads[0], len * sizeof(*out));
		return;
	}
	for (size_t at = 0, m; at < len; at += m) {
		float *restrict tile = out + at;

		m = len - at < KERN_TILE ? len - at : KERN_TILE;
		kern_sum(tile, grads, n, at, m);
		for (size_t i = 0; i < m; i++)
			tile[i] *= scale;
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulation: several pushes become one gradient here, before anything is sent. The sum is of
 * float, in the order of the pushes, whatever type travels.
 */
#include "trainer/sum.h"

#include "trainer/half.h"

void sum_add(gs_param *p, const void *grad, float scale)
{
	enum wire_dtype type = p->wire.grad_type;
	const uint8_t *at = grad;

	if (!p->accumulated)
		p->sum_scale = scale;
	float factor = p->sum_scale / scale;
	for (uint64_t i = 0; i < p->elems; i++, at += p->grad_size) {
		float g = half_widen(type, at) * factor;

		p->sum[i] = p->accumulated ? p->sum[i] + g : g;
	}
	p->accumulated++;
}

void sum_write(const gs_param *p, const void *grad, float scale, void *slot)
{
	enum wire_dtype type = p->wire.grad_type;
	uint32_t n = p->accumulated + (grad != NULL);
	float part = p->accumulate_sum ? 1 : 1.0f / (float)n, factor = p->sum_scale / scale;
	const uint8_t *from = grad;
	uint8_t *at = slot;

	for (uint64_t i = 0; i < p->elems; i++, at += p->grad_size) {
		float sum = p->sum[i];

		if (grad)
			sum += half_widen(type, from + i * p->grad_size) * factor;
		half_narrow(type, sum * part, at);
	}
}

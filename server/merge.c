/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging: which factor each trainer's gradient has.
 */
#include "server/merge.h"

void merge_begin(struct merge *m, enum wire_reduce reduce, enum kern_dtype dtype)
{
	m->grads = (struct kern_grads){.data = m->data, .dtype = dtype};
	m->reduce = reduce;
	m->scaled = false;
	m->weights = 0;
}

void merge_add(struct merge *m, const void *data, float weight, float scale)
{
	double samples = m->reduce == WIRE_WEIGHTED ? (double)weight : 1;
	float factor = (float)(samples / (double)scale);

	m->data[m->grads.n] = data;
	m->factor[m->grads.n] = factor;
	m->scaled |= factor != 1;
	m->weights += samples;
	m->grads.n++;
}

void merge_end(struct merge *m)
{
	m->grads.factor = m->scaled ? m->factor : NULL;
	if (m->reduce == WIRE_SUM)
		m->grads.scale = 1;
	else if (m->reduce == WIRE_MEAN)
		m->grads.scale = 1.0f / (float)m->grads.n;
	else
		m->grads.scale = (float)(1 / m->weights);
}

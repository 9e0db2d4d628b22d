/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a step.
 */
#include "kernels/step.h"

#include <string.h>

void work_start(struct work *k, const struct kern_opt *opt, const struct kern_step *step)
{
	const struct kern_common *common = &opt->common;

	k->loops = kern_loops();
	k->rule = k->loops->rule[opt->rule];
	k->opt = opt;
	k->step = step;
	k->loop = k->rule->loop(opt->value);
	k->arrays = k->rule->arrays(opt->value);
	k->adjusts = step->clip != 1 || common->clip_value > 0 || common->dc_lambda > 0 ||
		     common->l1 > 0 || (common->weight_decay > 0 && !common->decoupled);
	k->shrink = common->decoupled ? step->lr * common->weight_decay : 0;
	memset(k->c, 0, sizeof(k->c));
	k->rule->constants(opt->value, step, k->c);
}

void work_adjust(const struct work *k, size_t at, const float *w, float *g, size_t len)
{
	const float *backup = k->step->backup;

	if (k->adjusts)
		k->loops->adjust(&k->opt->common, k->step->clip, backup ? backup + at : NULL, w, g,
				 len);
}

bool work_update(const struct work *k, size_t at, float *w, float *const *state, const float *g,
		 size_t len)
{
	const struct kern_step *step = k->step;
	bool odd;

	odd = k->loop(k->c, k->shrink, w, state, g, len);
	if (step->copy)
		k->loops->narrow(step->copy_dtype, w,
				 (char *)step->copy + at * kern_size(step->copy_dtype), len);
	return odd;
}

double lanes_sum(const double lane[KERN_LANES])
{
	double sum[KERN_LANES];

	for (unsigned i = 0; i < KERN_LANES; i++)
		sum[i] = lane[i];
	for (unsigned half = KERN_LANES / 2; half; half /= 2)
		for (unsigned i = 0; i < half; i++)
			sum[i] += sum[i + half];
	return sum[0];
}

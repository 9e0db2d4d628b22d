/* SPDX-License-Identifier: Apache-2.0
 *
 * From the public calls to the loops of the instruction set in use.
 */
#include "kernels/isa.h"

void kern_apply(const struct kern_opt *opt, float *w, float *const *state,
		const float *const *grads, unsigned n, size_t len)
{
	float *buf = kern_opt_arrays(opt) ? state[0] : NULL;

	kern_loops()->apply[opt->rule](opt, w, buf, grads, n, len);
}

void kern_mean(float *out, const float *const *grads, unsigned n, size_t len)
{
	kern_loops()->mean(out, grads, n, len);
}

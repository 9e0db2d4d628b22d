/* SPDX-License-Identifier: Apache-2.0
 *
 * One long parameter, and very many short ones.
 */
#include "cases.h"
#include "harness.h"

START_TEST(a_long_parameter)
{
	uint64_t elems = (uint64_t)scaled(16 << 20, 256 << 10) + 3;
	struct srv_options opt = bed_options(1, SRV_SYNC);
	float *w = malloc(elems * sizeof(float)), *buf;
	gs_trainer *t;
	gs_param *p;
	struct bed bed;

	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	p = declare_line(t, "long", elems, 0.5, 1);
	ok(gs_start(t));
	for (int step = 1; step <= 3; step++) {
		buf = w;
		if (step == 2)
			ok(gs_grad_buffer(t, p, (void **)&buf));
		for (uint64_t e = 0; e < elems; e++)
			buf[e] = (float)(e % 1024);
		ok(gs_push(t, p, buf));
		ok(gs_step_end(t));
		ok(gs_pull(t, p, (enum gs_consistency)(step % 3), w));
		for (uint64_t e = 0; e < elems; e++)
			must(w[e] == 1 - 0.5f * (float)step * (float)(e % 1024), "element %llu",
			     (unsigned long long)e);
	}
	leave(t);
	free(w);
	bed_stop(&bed);
}
END_TEST

START_TEST(very_many_parameters)
{
	uint32_t n = scaled(10000, 600);
	struct srv_options opt = bed_options(1, _i ? SRV_ASYNC : SRV_SYNC);
	gs_param **p = calloc(n, sizeof(gs_param *));
	void **dst = calloc(n, sizeof(void *));
	float *w = calloc(n, 3 * sizeof(float));
	float grad[3] = {1, 2, 3};
	char name[16];
	gs_trainer *t;
	struct bed bed;

	opt.workers = 1 + (uint32_t)_i;
	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	for (uint32_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "p%u", i);
		p[i] = declare_line(t, name, 1 + i % 3, 1, i);
		dst[i] = w + 3 * (size_t)i;
	}
	ok(gs_start(t));
	for (int step = 1; step <= 2; step++) {
		for (uint32_t i = 0; i < n; i++)
			ok(gs_push(t, p[i], grad));
		if (!_i)
			ok(gs_step_end(t));
		ok(gs_pull_many(t, p, dst, n, _i ? GS_ORDERED : GS_RELAXED));
		for (uint32_t i = 0; i < n; i++)
			must(w[3 * i + i % 3] == (float)i - (float)step * grad[i % 3],
			     "parameter %u: %g", i, (double)w[3 * i + i % 3]);
	}
	leave(t);
	free(p);
	free(dst);
	free(w);
	bed_stop(&bed);
}
END_TEST

TCase *big_case(void)
{
	TCase *t = e2e_wire_case("big");

	tcase_add_test(t, a_long_parameter);
	tcase_add_loop_test(t, very_many_parameters, 0, 2);
	return t;
}

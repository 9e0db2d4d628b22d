/* SPDX-License-Identifier: Apache-2.0
 *
 * How the gradients of several trainers become one, and what each of them counts.
 */
#include <math.h>

#include "cases.h"
#include "play.h"

static double samples(uint32_t rank, uint64_t step)
{
	return rank * 3 + (double)(step % 4) + 0.5;
}

/* Powers of two, so that dividing by them is exact. */
static double scale(uint32_t rank, uint64_t step)
{
	return ldexp(1, (int)((rank * 5 + step * 3) % 10));
}

static bool pushes(uint32_t rank, uint64_t step, uint32_t p)
{
	return mix64(rank * 100 + step * 10 + p) % 3 != 0;
}

static void add_all(struct play *play)
{
	static const char *const name[3][4] = {
	    {"mean", "mean adam", "mean lamb", "mean f16"},
	    {"sum", "sum adam", "sum lamb", "sum f16"},
	    {"weighted", "weighted adam", "weighted lamb", "weighted f16"},
	};

	for (int r = 0; r < 3; r++) {
		play_add(play, name[r][0], "sgd", 3, 257)->reduce = (enum gs_reduce)r;
		play_add(play, name[r][1], "adam", 1, 1031)->reduce = (enum gs_reduce)r;
		play_add(play, name[r][2], "lamb", 1031, 1)->reduce = (enum gs_reduce)r;
		play_add(play, name[r][3], "momentum", 7, 111)->reduce = (enum gs_reduce)r;
		play->desc[play->n - 1].grad_dtype = GS_F16;
	}
}

START_TEST(three_ways)
{
	struct srv_options opt = bed_options(1 + (uint32_t)_i % 4, SRV_SYNC);
	struct play *play = play_create(41, opt.trainers, scaled(8, 5));

	if (left_out(_i, 4))
		return;
	opt.workers = (uint32_t)_i % 3;
	opt.block_kib = _i % 2 ? 1 : 256;
	if (_i & 4)
		play->pushes = pushes;
	if (_i & 8)
		play->samples = samples;
	play->scale = scale;
	add_all(play);
	play_foresee(play);
	play_run(play, &opt);
	play_free(play);
}
END_TEST

START_TEST(numbers_that_are_refused)
{
	static const double bad[] = {0, -1, NAN, INFINITY, -INFINITY, 0x1p61, 0x1p-61, 1e300};
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct bed bed;
	gs_trainer *t;
	gs_param *p;
	float w = 0, g = 1;

	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	p = declare_line(t, "w", 1, 1, 0);
	ok(gs_start(t));
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fails(gs_set_samples(t, bad[i]), EINVAL, "samples", "2^60");
		fails(gs_set_grad_scale(t, bad[i]), EINVAL, "grad_scale", "2^60");
	}
	/* What was refused left nothing behind. */
	ok(gs_push(t, p, &g));
	ok(gs_pull(t, p, GS_ORDERED, &w));
	must(w == -1, "%g", (double)w);
	ok(gs_set_grad_scale(t, 0x1p60));
	ok(gs_set_samples(t, 0x1p60)); /* does not matter in async mode */
	ok(gs_push(t, p, &g));
	ok(gs_pull(t, p, GS_ORDERED, &w));
	must(w == -1, "%g", (double)w);
	ok(gs_set_grad_scale(t, 0.25));
	ok(gs_push(t, p, &g));
	ok(gs_pull(t, p, GS_ORDERED, &w));
	must(w == -5, "%g", (double)w);
	leave(t);
	bed_stop(&bed);
}
END_TEST

TCase *reduce_case(void)
{
	TCase *t = e2e_case("reduce");

	tcase_add_loop_test(t, three_ways, 0, 16);
	tcase_add_test(t, numbers_that_are_refused);
	return t;
}

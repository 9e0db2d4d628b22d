/* SPDX-License-Identifier: Apache-2.0
 *
 * Clipping: by value, by a parameter's norm, by the norm over several parameters; and decay.
 */
#include <math.h>

#include "cases.h"
#include "play.h"

static bool pushes(uint32_t rank, uint64_t step, uint32_t p)
{
	/* In step 3 nobody pushes parameter 4, in step 5 nobody anything. */
	if (step == 5 || (step == 3 && p == 4))
		return false;
	return mix64(rank * 100 + step * 10 + p) % 5 != 0;
}

static void add_all(struct play *play)
{
	struct gs_param_desc *d = play_add(play, "value", "sgd", 3, 257);

	gs_setting(d, "clip_value", 0.2);
	d = play_add(play, "norm", "momentum", 3, 257);
	gs_setting(d, "clip_norm", 2);
	d = play_add(play, "norm f16", "adam", 1, 1031);
	gs_setting(d, "clip_norm", 0.5);
	d->grad_dtype = GS_F16;
	d = play_add(play, "global", "sgd", 3, 257);
	gs_setting(d, "clip_global_norm", 5);
	d = play_add(play, "global bf16", "lamb", 40, 37);
	gs_setting(d, "clip_global_norm", 5);
	d->grad_dtype = GS_BF16;
	d->weight_dtype = GS_F16;
	d->reduce = GS_SUM;
	d = play_add(play, "all", "adamw", 7, 111);
	gs_setting(d, "clip_global_norm", 5);
	gs_setting(d, "clip_norm", 3);
	gs_setting(d, "clip_value", 0.1);
	gs_setting(d, "l1", 0.001);
	d = play_add(play, "global one", "sgd", 1, 1);
	gs_setting(d, "clip_global_norm", 5);
	d->reduce = GS_WEIGHTED;
	play_add(play, "free", "sgd", 3, 5);
}

START_TEST(the_same_bits)
{
	static const uint32_t ranks_of[] = {1, 2, 4};
	struct srv_options opt = bed_options(ranks_of[_i / 3], SRV_SYNC);
	struct play *play;

	if (left_out(_i, 4))
		return;
	play = play_create(61, opt.trainers, scaled(7, 5));
	play->pushes = pushes;
	add_all(play);
	play_foresee(play);
	opt.workers = (uint32_t)_i % 3;
	for (uint32_t k = 0; k < scaled(2, 1); k++) {
		opt.block_kib = k ? 256 : 1;
		play_run(play, &opt);
	}
	play_free(play);
}
END_TEST

/* ---- against double -------------------------------------------------------------------------- */

enum { LINES = 3, LONGEST = 1031 };
static const uint64_t length[LINES] = {LONGEST, 3, 257};

struct sums {
	float g[2][LINES][LONGEST], w[LINES][LONGEST];
	struct bed bed;
	const char *setting;
	double limit;
};

static gs_trainer *join_sums(struct sums *s, int rank, gs_param **p)
{
	static const char *const name[LINES] = {"a", "b", "c"};
	gs_trainer *t = connect_as(s->bed.uri, rank);

	for (int i = 0; i < LINES; i++) {
		struct gs_param_desc d = GS_PARAM_DESC_INIT;

		d.name = name[i];
		d.ndim = 1;
		d.shape[0] = length[i];
		d.init_a = 0.5;
		gs_setting(&d, "lr", 1);
		gs_setting(&d, s->setting, s->limit);
		if (strcmp(s->setting, "decoupled") == 0)
			gs_setting(&d, "weight_decay", 0.25);
		ok(gs_declare(t, &d, &p[i]));
	}
	return t;
}

static void *second(void *arg)
{
	struct sums *s = arg;
	gs_param *p[LINES];
	gs_trainer *t = join_sums(s, 1, p);

	ok(gs_start(t));
	for (int i = 0; i < LINES; i++)
		ok(gs_push(t, p[i], s->g[1][i]));
	ok(gs_step_end(t));
	leave(t);
	return NULL;
}

static void make_step(struct sums *s)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	gs_param *p[LINES];
	pthread_t thread;
	uint64_t rng = 8;
	gs_trainer *t;

	opt.block_kib = 1;
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < LINES; i++)
			for (uint64_t k = 0; k < length[i]; k++)
				s->g[r][i][k] = (float)(int32_t)mix64(rng++) * 0x1p-31f;
	bed_start(&s->bed, &opt);
	must(pthread_create(&thread, NULL, second, s) == 0, "thread");
	t = join_sums(s, 0, p);
	ok(gs_start(t));
	for (int i = 0; i < LINES; i++)
		ok(gs_push(t, p[i], s->g[0][i]));
	ok(gs_step_end(t));
	for (int i = 0; i < LINES; i++)
		ok(gs_pull(t, p[i], GS_RELAXED, s->w[i]));
	leave(t);
	pthread_join(thread, NULL);
	bed_stop(&s->bed);
}

static double mean(const struct sums *s, int i, uint64_t k)
{
	return ((double)s->g[0][i][k] + (double)s->g[1][i][k]) / 2;
}

static double norm(const struct sums *s, int from, int end)
{
	double sum = 0;

	for (int i = from; i < end; i++)
		for (uint64_t k = 0; k < length[i]; k++)
			sum += mean(s, i, k) * mean(s, i, k);
	return sqrt(sum);
}

static double clipped(double g, double limit)
{
	return g > limit ? limit : g < -limit ? -limit : g;
}

/* What is taken off a weight of 0.5. */
static double taken(const struct sums *s, int i, uint64_t k)
{
	double g = mean(s, i, k), of = s->limit;

	switch (s->setting[5]) {
	case 'n': /* clip_norm */
		return g * fmin(1, of / (norm(s, i, i + 1) + 1e-6));
	case 'g': /* clip_global_norm */
		return g * fmin(1, of / (norm(s, 0, LINES) + 1e-6));
	case 'v': /* clip_value */
		return clipped(g, of);
	case 't': /* weight_decay */
		return g + of * 0.5;
	case 'p': /* decoupled */
		return g + 0.25 * 0.5;
	default: /* l1 */
		return g + of;
	}
}

START_TEST(what_they_come_to)
{
	static const struct {
		const char *name;
		double value;
	} all[] = {{"clip_norm", 1.5},    {"clip_norm", 1e6},     {"clip_global_norm", 2},
		   {"clip_value", 0.125}, {"weight_decay", 0.25}, {"decoupled", 1},
		   {"l1", 0.25}};
	static struct sums s;

	if (left_out(_i, 3))
		return;
	s.setting = strcmp(all[_i].name, "l1") == 0 ? "l1\0\0\0\0" : all[_i].name;
	s.limit = all[_i].value;
	make_step(&s);
	for (int i = 0; i < LINES; i++)
		for (uint64_t k = 0; k < length[i]; k++) {
			double w = 0.5 - taken(&s, i, k);

			must(fabs((double)s.w[i][k] - w) <= 1e-6 * fmax(1, fabs(w)),
			     "%s: element %llu of %d is %.9g, not %.9g", s.setting,
			     (unsigned long long)k, i, (double)s.w[i][k], w);
		}
}
END_TEST

/* ---- what there is not ----------------------------------------------------------------------- */

static gs_trainer *declare_two(struct bed *bed, double first, double second)
{
	gs_trainer *t = connect_as(bed->uri, 0);
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;

	d.ndim = 1;
	d.shape[0] = 10;
	d.name = "one";
	gs_setting(&d, "lr", 1);
	gs_setting(&d, "clip_global_norm", first);
	ok(gs_declare(t, &d, &p));
	d.name = "two";
	d.settings[1].value = second;
	ok(gs_declare(t, &d, &p));
	return t;
}

START_TEST(norms_that_there_are_not)
{
	struct srv_options opt = bed_options(1, _i ? SRV_ASYNC : SRV_SYNC);
	struct bed bed;
	gs_trainer *t;

	bed_start(&bed, &opt);
	t = declare_two(&bed, 2, 3);
	if (_i)
		fails(gs_start(t), EINVAL, "\"one\"", "clip_global_norm is 2", "sync");
	else
		fails(gs_start(t), EINVAL, "2 of parameter \"one\"", "3 of \"two\"");
	gs_close(t);
	bed_wait_connected(&bed, 0);
	/* It left no trace. One that says nothing is no part of it. */
	t = declare_two(&bed, 0, _i ? 0 : 3);
	ok(gs_start(t));
	leave(t);
	bed_stop(&bed);
}
END_TEST

TCase *clip_case(void)
{
	TCase *t = e2e_case("clip");

	tcase_add_loop_test(t, the_same_bits, 0, 9);
	tcase_add_loop_test(t, what_they_come_to, 0, 7);
	tcase_add_loop_test(t, norms_that_there_are_not, 0, 2);
	return t;
}

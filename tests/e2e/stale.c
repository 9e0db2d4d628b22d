/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of weights that have moved on: how old they are counted to be, for every way of reading
 * the weights, and what delay compensation makes of them.
 *
 * Two trainers, one thing after the other, so that what must come out is known.
 */
#include "cases.h"
#include "harness.h"

enum { ELEMS = 256 * 2 + 9 }; /* 3 blocks of 1 KiB */

static const double lr = 0.25, lambda = 0.5;

struct two {
	struct bed bed;
	gs_trainer *t[2];
	gs_param *w[2];
	float grad[ELEMS], seen[ELEMS];
	pthread_t thread;
};

/* _i: which mode, how many workers, whether gradients are used whole. */
static enum srv_mode mode_of(int i)
{
	return i % 2 ? SRV_SSP : SRV_ASYNC;
}

static void declare(struct two *two, int k, double dc, bool whole)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = "w";
	d.ndim = 1;
	d.shape[0] = ELEMS;
	d.init = GS_INIT_UNIFORM;
	d.init_a = -1;
	d.init_b = 1;
	gs_setting(&d, "lr", lr);
	if (dc > 0)
		gs_setting(&d, "dc_lambda", dc);
	if (whole)
		gs_setting(&d, "clip_norm", 1e6);
	ok(gs_declare(two->t[k], &d, &two->w[k]));
}

static void two_open(struct two *two, int i, double dc)
{
	struct srv_options opt = bed_options(2, mode_of(i));

	opt.staleness = opt.mode == SRV_SSP ? 100 : 0;
	opt.block_kib = 1;
	opt.workers = (uint32_t)i / 2 % 3;
	bed_start(&two->bed, &opt);
	for (int k = 0; k < 2; k++) {
		two->t[k] = connect_as(two->bed.uri, k);
		declare(two, k, dc, i / 6);
	}
	start_both(two->t);
}

static void two_close(struct two *two)
{
	leave(two->t[1]);
	leave(two->t[0]);
	must(bed_stats(&two->bed).violations == 0, "violations");
	bed_stop(&two->bed);
}

static void push(struct two *two, int k, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		ok(gs_push(two->t[k], two->w[k], two->grad));
	ok(gs_wait_applied(two->t[k], two->w[k]));
}

static void pull(struct two *two, int k, enum gs_consistency how)
{
	ok(gs_pull(two->t[k], two->w[k], how, two->seen));
}

/* ---- ages ------------------------------------------------------------------------------------ */

static void check_ages(struct two *two, uint64_t pushes, uint64_t sum, uint64_t max)
{
	struct srv_stats s = bed_stats(&two->bed);

	must(s.aged == pushes && s.age_sum == sum && s.age_max == max,
	     "%llu pushes, in all %llu old, at most %llu; not %llu, %llu, %llu",
	     (unsigned long long)s.aged, (unsigned long long)s.age_sum,
	     (unsigned long long)s.age_max, (unsigned long long)pushes, (unsigned long long)sum,
	     (unsigned long long)max);
}

START_TEST(ages_are_counted)
{
	static const enum gs_consistency hows[] = {GS_RELAXED, GS_CONSISTENT, GS_ORDERED};
	enum gs_consistency how = hows[_i / 12];
	struct two two = {.grad = {0}};

	if (left_out(_i, 5))
		return;
	two_open(&two, _i % 12, 0);
	push(&two, 1, 2); /* it never looked: nobody knows of what these are */
	check_ages(&two, 0, 0, 0);
	pull(&two, 0, how);
	push(&two, 0, 1);
	check_ages(&two, 1, 0, 0);
	pull(&two, 0, how);
	push(&two, 1, 3);
	push(&two, 0, 1);
	check_ages(&two, 2, 3, 3);
	push(&two, 0, 2); /* they have not seen this trainer's own either */
	check_ages(&two, 4, 3 + 4 + 5, 5);
	pull(&two, 0, how);
	push(&two, 0, 1);
	check_ages(&two, 5, 12, 5);
	/* What was read last counts, whichever way. */
	for (int k = 0; k < 3; k++) {
		pull(&two, 0, hows[k]);
		push(&two, 1, 1);
		push(&two, 0, 1);
	}
	check_ages(&two, 8, 15, 5);
	two_close(&two);
}
END_TEST

static void *pull_many(void *arg)
{
	struct two *two = arg;
	float seen[ELEMS];

	for (int i = 0; i < 100; i++)
		ok(gs_pull(two->t[0], two->w[0], (enum gs_consistency)(i % 3), seen));
	return NULL;
}

/* One thread reads, another pushes: what was read last is a matter of luck, but one of them. */
START_TEST(pulls_beside_pushes)
{
	struct two two = {.grad = {0}};
	uint32_t pushes = scaled(100, 20);

	two_open(&two, _i, 0);
	pull(&two, 0, GS_RELAXED);
	pthread_create(&two.thread, NULL, pull_many, &two);
	for (uint32_t i = 0; i < pushes; i++)
		ok(gs_push(two.t[0], two.w[0], two.grad));
	pthread_join(two.thread, NULL);
	ok(gs_wait_applied(two.t[0], two.w[0]));
	must(bed_stats(&two.bed).aged <= pushes && bed_stats(&two.bed).age_max < pushes, "ages");
	two_close(&two);
}
END_TEST

START_TEST(nothing_is_old_in_sync_mode)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct two two = {.grad = {0}};

	bed_start(&two.bed, &opt);
	two.t[0] = connect_as(two.bed.uri, 0);
	declare(&two, 0, 0, false);
	ok(gs_start(two.t[0]));
	for (int i = 0; i < 3; i++) {
		pull(&two, 0, (enum gs_consistency)i);
		ok(gs_push(two.t[0], two.w[0], two.grad));
		ok(gs_step_end(two.t[0]));
	}
	check_ages(&two, 0, 0, 0);
	leave(two.t[0]);
	bed_stop(&two.bed);
}
END_TEST

/* ---- delay compensation ---------------------------------------------------------------------- */

/* The weights after g, pushed by who last read `backup` (NULL: nothing). */
static void compensated(float *w, const float *g, const float *backup)
{
	for (int i = 0; i < ELEMS; i++) {
		float by = g[i];

		if (backup)
			by = by + (((float)lambda * by) * by) * (w[i] - backup[i]);
		w[i] = w[i] - (float)lr * by;
	}
}

static void new_gradient(struct two *two, uint64_t *seed)
{
	for (int i = 0; i < ELEMS; i++)
		two->grad[i] = (float)rnd(seed, 2001) / 500 - 2;
}

START_TEST(makes_up_for_the_delay)
{
	struct two two;
	uint64_t seed = 9 + (uint64_t)_i;
	float w[ELEMS], backup[2][ELEMS];
	bool has[2] = {false};

	if (left_out(_i, 4))
		return;
	two_open(&two, _i, lambda);
	pull(&two, 1, GS_ORDERED);
	has[1] = true;
	memcpy(w, two.seen, sizeof(w));
	memcpy(backup[1], w, sizeof(w));
	for (uint32_t i = 0; i < scaled(60, 20); i++) {
		int k = (int)rnd(&seed, 2);

		if (i > 4 && rnd(&seed, 3) == 0) {
			/* Whichever way is asked for: the server has to know. */
			pull(&two, k, (enum gs_consistency)rnd(&seed, 3));
			must(memcmp(two.seen, w, sizeof(w)) == 0, "other weights, round %u", i);
			memcpy(backup[k], w, sizeof(w));
			has[k] = true;
		}
		new_gradient(&two, &seed);
		push(&two, k, 1);
		compensated(w, two.grad, has[k] ? backup[k] : NULL);
	}
	pull(&two, 0, GS_ORDERED);
	for (int i = 0; i < ELEMS; i++)
		must(two.seen[i] == w[i], "element %d is %.9g, not %.9g", i, (double)two.seen[i],
		     (double)w[i]);
	two_close(&two);
}
END_TEST

START_TEST(what_it_excludes)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct two two;
	const void *view = NULL;

	two_open(&two, 0, lambda);
	fails(gs_weights_view(two.t[0], two.w[0], &view), EOPNOTSUPP,
	      over_shm() ? "dc_lambda" : "shm");
	must(!view, "an output was touched");
	two_close(&two);
	bed_start(&two.bed, &opt);
	two.t[0] = connect_as(two.bed.uri, 0);
	declare(&two, 0, lambda, false);
	fails(gs_start(two.t[0]), EINVAL, "\"w\"", "dc_lambda is 0.5", "sync");
	gs_close(two.t[0]);
	bed_stop(&two.bed);
}
END_TEST

TCase *stale_case(void)
{
	TCase *t = e2e_case("stale");

	tcase_add_loop_test(t, ages_are_counted, 0, 36);
	tcase_add_loop_test(t, pulls_beside_pushes, 0, 2);
	tcase_add_test(t, nothing_is_old_in_sync_mode);
	tcase_add_loop_test(t, makes_up_for_the_delay, 0, 12);
	tcase_add_test(t, what_it_excludes);
	return t;
}

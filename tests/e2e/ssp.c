/* SPDX-License-Identifier: Apache-2.0
 *
 * Ssp mode: nobody gets more than K steps ahead of the slowest, who may go ahead does, and what one
 * sees holds all that the bound promises.
 *
 * Rank r pushes -1 to its own part of "w" in each step and nothing elsewhere, with lr 1: so its
 * part counts its steps that are in the weights.
 */
#include "cases.h"
#include "job.h"
#include "raw.h"

enum { RANKS = 4, PART = 1024, ELEMS = RANKS * PART };

struct run {
	uint32_t ranks, steps, staleness;
	bool whole;                     /* updates need the whole gradient */
	_Atomic uint64_t posted[RANKS]; /* barriers that may be on their way */
	_Atomic uint64_t ahead;         /* the farthest that anybody was */
};

struct runner {
	struct run *run;
	const char *uri;
	uint32_t rank;
	gs_trainer *t;
	gs_param *w;
	float *grad, *seen;
	pthread_t thread;
};

static void runner_join(struct runner *r, struct run *run, const char *uri, uint32_t rank)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	r->run = run;
	r->uri = uri;
	r->rank = rank;
	r->grad = calloc(ELEMS, sizeof(float));
	r->seen = calloc(ELEMS, sizeof(float));
	for (int i = 0; i < PART; i++)
		r->grad[rank * PART + (uint32_t)i] = -1;
	r->t = connect_as(uri, (int32_t)rank);
	d.name = "w";
	d.ndim = 1;
	d.shape[0] = ELEMS;
	gs_setting(&d, "lr", 1);
	if (run->whole)
		gs_setting(&d, "clip_norm", 1e6); /* longer than any gradient here */
	ok(gs_declare(r->t, &d, &r->w));
	ok(gs_start(r->t));
}

static void runner_end(struct runner *r, bool says_bye)
{
	if (says_bye)
		ok(gs_leave(r->t));
	gs_close(r->t);
	free(r->grad);
	free(r->seen);
}

static uint64_t runner_step(const struct runner *r)
{
	struct gs_info info;

	gs_get_info(r->t, &info);
	return info.step;
}

/* It went past step k: all steps up to k - K of everybody are over, and in what it sees. */
static void check_past(struct runner *r, uint64_t k, bool everybody)
{
	struct run *run = r->run;
	uint64_t low = k > run->staleness ? k - run->staleness : 0, slowest = UINT64_MAX;

	for (uint32_t i = 0; everybody && i < run->ranks; i++) {
		must(run->posted[i] >= low, "step %llu is over, rank %u made %llu",
		     (unsigned long long)k, i, (unsigned long long)run->posted[i]);
		if (run->posted[i] < slowest)
			slowest = run->posted[i];
	}
	if (everybody && slowest < k && k - slowest > run->ahead)
		run->ahead = k - slowest;
	ok(gs_pull(r->t, r->w, GS_RELAXED, r->seen));
	for (uint32_t i = 0; everybody && i < run->ranks * PART; i++) {
		uint64_t want = i / PART == r->rank ? k : low;

		must(r->seen[i] >= (float)want, "past step %llu: %g steps of rank %u",
		     (unsigned long long)k, (double)r->seen[i], i / PART);
	}
}

static void post_step(struct runner *r)
{
	ok(gs_push(r->t, r->w, r->grad));
	r->run->posted[r->rank]++;
	ok(gs_step_post(r->t));
}

static void make_step(struct runner *r)
{
	post_step(r);
	ok(gs_step_wait(r->t));
}

/* ---- trainers of different speeds --------------------------------------------------------------
 */

static void *run_all_steps(void *arg)
{
	struct runner *r = arg;
	uint64_t rng = 77 + r->rank;

	runner_join(r, r->run, r->uri, r->rank);
	for (uint64_t k = 1; k <= r->run->steps; k++) {
		nap_us(rnd(&rng, r->rank == k / 8 % r->run->ranks ? 1500 : 100));
		make_step(r);
		check_past(r, k, true);
	}
	runner_end(r, true);
	return NULL;
}

START_TEST(never_more_than_k_ahead)
{
	struct run run = {.ranks = 2 + (uint32_t)_i % 3,
			  .steps = scaled(60, 12),
			  .staleness = 1 + (uint32_t)_i % 4 * 2,
			  .whole = _i % 2};
	struct srv_options opt = bed_options(run.ranks, SRV_SSP);
	struct runner r[RANKS];
	struct bed bed;

	if (left_out(_i, 3))
		return;
	opt.staleness = run.staleness;
	opt.workers = (uint32_t)_i % 3;
	opt.pollers = 1 + (uint32_t)_i % 2;
	opt.block_kib = _i % 4 < 2 ? 1 : 16;
	bed_start(&bed, &opt);
	for (uint32_t i = 0; i < run.ranks; i++) {
		r[i] = (struct runner){.run = &run, .uri = bed.uri, .rank = i};
		must(pthread_create(&r[i].thread, NULL, run_all_steps, &r[i]) == 0, "thread");
	}
	for (uint32_t i = 0; i < run.ranks; i++)
		pthread_join(r[i].thread, NULL);
	must(bed_stats(&bed).step == run.steps, "the slowest made %llu steps",
	     (unsigned long long)bed_stats(&bed).step);
	must(bed_stats(&bed).violations == 0, "violations");
	must(run.ahead <= run.staleness, "%llu ahead", (unsigned long long)run.ahead);
	must(run.ahead > 0 || e2e_small, "nobody was ever ahead");
	bed_stop(&bed);
}
END_TEST

/* ---- two trainers, one thing after the other ---------------------------------------------------
 */

struct pair {
	struct run run;
	struct bed bed;
	struct runner a, b;
	_Atomic bool released; /* a's step */
	pthread_t thread;
};

static void *join_b(void *arg)
{
	struct pair *p = arg;

	runner_join(&p->b, &p->run, p->bed.uri, 1);
	return NULL;
}

static void pair_open(struct pair *p, uint32_t staleness)
{
	struct srv_options opt = bed_options(2, SRV_SSP);

	*p = (struct pair){.run = {.ranks = 2, .staleness = staleness}};
	opt.staleness = staleness;
	opt.block_kib = 1;
	bed_start(&p->bed, &opt);
	pthread_create(&p->thread, NULL, join_b, p);
	runner_join(&p->a, &p->run, p->bed.uri, 0);
	pthread_join(p->thread, NULL);
}

static void *wait_for_release(void *arg)
{
	struct pair *p = arg;

	ok(gs_step_wait(p->a.t));
	p->released = true;
	return NULL;
}

/* a makes as many steps as it may, and posts one more. */
static void go_to_the_bound(struct pair *p)
{
	for (uint32_t i = 0; i < p->run.staleness; i++)
		make_step(&p->a);
	post_step(&p->a);
	p->released = false;
	pthread_create(&p->thread, NULL, wait_for_release, p);
	nap_us(30000);
	must(!p->released, "more than %u steps ahead", p->run.staleness);
}

static void must_go_on(struct pair *p)
{
	pthread_join(p->thread, NULL);
	must(p->released, "release");
}

static void pair_close(struct pair *p)
{
	runner_end(&p->a, true);
	must(bed_stats(&p->bed).violations == 0, "violations");
	bed_stop(&p->bed);
}

START_TEST(goes_ahead_up_to_the_bound)
{
	struct pair p;
	struct gs_info info;

	pair_open(&p, 1 + (uint32_t)_i);
	gs_get_info(p.a.t, &info);
	must(info.mode == GS_SSP && info.staleness == 1 + (uint32_t)_i && info.step == 1, "info");
	go_to_the_bound(&p);
	for (int i = 0; i < 3; i++) {
		make_step(&p.b);
		must_go_on(&p);
		post_step(&p.a);
		p.released = false;
		pthread_create(&p.thread, NULL, wait_for_release, &p);
		nap_us(5000);
		must(!p.released, "more than %u steps ahead", p.run.staleness);
	}
	make_step(&p.b);
	must_go_on(&p);
	runner_end(&p.b, true);
	pair_close(&p);
}
END_TEST

START_TEST(nobody_waits_for_who_is_gone)
{
	struct pair p;
	bool says_bye = _i;

	pair_open(&p, 2);
	make_step(&p.b);
	ok(gs_push(p.b.t, p.b.w, p.b.grad)); /* of a step that it does not end */
	make_step(&p.a);
	go_to_the_bound(&p);
	runner_end(&p.b, says_bye);
	must_go_on(&p);
	for (int i = 0; i < 5; i++)
		make_step(&p.a);
	check_past(&p.a, 9, false);
	must(p.a.seen[0] == 9 && (p.a.seen[PART] == 2 || !says_bye), "%g steps, of the other %g",
	     (double)p.a.seen[0], (double)p.a.seen[PART]);
	pair_close(&p);
}
END_TEST

START_TEST(joins_where_the_slowest_is)
{
	struct pair p;

	pair_open(&p, 1);
	runner_end(&p.b, true);
	for (int i = 0; i < 5; i++)
		make_step(&p.a);
	runner_join(&p.b, &p.run, p.bed.uri, 1);
	must(runner_step(&p.b) == 6, "it begins with step %llu",
	     (unsigned long long)runner_step(&p.b));
	go_to_the_bound(&p);
	make_step(&p.b);
	must_go_on(&p);
	make_step(&p.b);
	must(runner_step(&p.a) == 8 && runner_step(&p.b) == 8, "steps");
	/* The one that is ahead leaves; whoever comes then is no farther than the slowest. */
	make_step(&p.a);
	runner_end(&p.a, true);
	runner_join(&p.a, &p.run, p.bed.uri, 0);
	must(runner_step(&p.a) == 8, "step");
	runner_end(&p.b, true);
	pair_close(&p);
}
END_TEST

static void see(void *ctx, uint32_t i, uint64_t first, uint64_t count, const void *weights)
{
	struct runner *r = ctx;

	must(i == 0 && first == 0 && count == ELEMS, "%llu elements of parameter %u from %llu on",
	     (unsigned long long)count, i, (unsigned long long)first);
	memcpy(r->seen, weights, count * sizeof(float));
}

/* What lies in place behind a step has it in. (Alone, as who copies what others write sees it
 * torn.) */
START_TEST(looks_in_place)
{
	struct pair p;

	pair_open(&p, 3);
	runner_end(&p.b, true);
	gs_param *twice[] = {p.a.w, p.a.w};
	if (over_shm())
		fails(gs_step_view(p.a.t, twice, 2, see, &p.a), EINVAL, "twice");
	for (int step = 1; step <= 5; step++) {
		ok(gs_push(p.a.t, p.a.w, p.a.grad));
		if (!over_shm()) {
			fails(gs_step_view(p.a.t, &p.a.w, 1, see, &p.a), EOPNOTSUPP, "shm");
			ok(gs_step_end(p.a.t));
			continue;
		}
		ok(gs_step_view(p.a.t, &p.a.w, 1, see, &p.a));
		must(p.a.seen[0] == (float)step && p.a.seen[PART - 1] == (float)step,
		     "step %d: %g, %g", step, (double)p.a.seen[0], (double)p.a.seen[PART - 1]);
	}
	must(runner_step(&p.a) == 6, "step %llu", (unsigned long long)runner_step(&p.a));
	pair_close(&p);
}
END_TEST

/* ---- no staleness at all is sync mode -------------------------------------------------------- */

START_TEST(zero_is_sync)
{
	uint64_t sum[2];

	for (int i = 0; i < 2; i++) {
		struct srv_options opt = bed_options(3, i ? SRV_SSP : SRV_SYNC);
		uint32_t steps = scaled(10, 3);
		struct job *job = job_create(5);
		struct bed bed;

		opt.block_kib = 1;
		bed_start(&bed, &opt);
		job_run_all(job, bed.uri, 3, (uint32_t[]){steps, steps, steps});
		must(bed_stats(&bed).step == steps, "steps");
		bed_stop(&bed);
		sum[i] = job_verify(job, steps);
		free(job);
	}
	must(sum[0] == sum[1], "other weights");
}
END_TEST

/* ---- trainers that break the protocol -------------------------------------------------------- */

static void barrier_far_ahead(struct raw *r)
{
	raw_barrier(r, 2);
}

/* K is 1, and the other one has not made a step. */
static void second_step_not_released(struct raw *r)
{
	raw_barrier(r, 1);
	raw_wait_release(r, 1);
	raw_barrier(r, 2);
}

static void barrier_not_released(struct raw *r)
{
	second_step_not_released(r);
	raw_barrier(r, 3);
}

static void gradient_not_released(struct raw *r)
{
	second_step_not_released(r);
	raw_gradient(r, 1, 0, 0, 7, false);
}

static const struct act {
	void (*act)(struct raw *);
	const char *words[4];
} acts[] = {
    {barrier_far_ahead, {"step 2", "1 is next"}},
    {barrier_not_released, {"step 3", "step 2", "not released"}},
    {gradient_not_released, {"block 4", "step 3", "step 2"}},
};
enum { ACTS = sizeof(acts) / sizeof(acts[0]) };

static void open_raw(struct bed *bed, struct raw *good, struct raw *bad)
{
	struct srv_options opt = bed_options(2, SRV_SSP);

	opt.staleness = 1;
	opt.block_kib = 1;
	bed_start(bed, &opt);
	raw_join(good, bed->uri, 0);
	raw_join(bad, bed->uri, 1);
	raw_wait_start(good);
	raw_wait_start(bad);
	must(good->step == 1 && bad->step == 1, "step");
}

START_TEST(is_told_and_let_go)
{
	struct raw good, bad;
	struct bed bed;

	open_raw(&bed, &good, &bad);
	acts[_i].act(&bad);
	raw_expect_error(&bad, WIRE_E_PROTOCOL, acts[_i].words);
	bed_wait_connected(&bed, 1);
	must(bed_stats(&bed).violations == 1, "violations");
	for (uint64_t step = 1; step <= 5; step++) {
		raw_gradient(&good, 1, 0, step % 2, 1, false);
		raw_barrier(&good, step);
		raw_wait_release(&good, step);
	}
	raw_close(&good);
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).updates == 5, "updates");
	bed_stop(&bed);
}
END_TEST

/* It ends one step, not two. */
START_TEST(a_repeated_barrier_is_harmless)
{
	struct raw good, bad;
	struct bed bed;

	open_raw(&bed, &good, &bad);
	raw_barrier(&bad, 1);
	raw_barrier(&bad, 1);
	raw_wait_release(&bad, 1);
	raw_barrier(&bad, 1);
	raw_barrier(&bad, 2);
	raw_barrier(&bad, 2);
	raw_barrier(&good, 1);
	raw_wait_release(&bad, 2);
	raw_wait_release(&good, 1);
	bed_wait_step(&bed, 1);
	must(bed_stats(&bed).violations == 0 && bed_stats(&bed).step == 1, "step");
	raw_close(&bad);
	raw_close(&good);
	bed_stop(&bed);
}
END_TEST

/* It ends steps with a push half sent that is only of use whole: nobody waits for the rest of it, and
 * with the rest it counts. */
START_TEST(half_a_whole_push_holds_nobody)
{
	struct srv_options opt = bed_options(2, SRV_SSP);
	struct wire_param line = raw_lines[0];
	struct raw bad, good;
	struct bed bed;

	line.setting[line.n_settings++] = (struct wire_setting){"clip_norm", 1e6};
	opt.block_kib = 1;
	opt.staleness = 1;
	bed_start(&bed, &opt);
	raw_join_with(&bad, bed.uri, 0, &line, 1);
	raw_join_with(&good, bed.uri, 1, &line, 1);
	raw_wait_start(&bad);
	raw_wait_start(&good);
	for (uint32_t b = 1; b < bad.blocks; b++)
		raw_gradient(&bad, 0, b, 0, 1, false);
	for (uint64_t step = 1; step <= 3; step++) {
		raw_barrier(&bad, step);
		raw_wait_release(&bad, step);
		raw_barrier(&good, step);
		raw_wait_release(&good, step);
	}
	must(bed_stats(&bed).updates == 0, "half a push was applied");
	raw_gradient(&bad, 0, 0, 0, 1, false);
	raw_barrier(&bad, 4);
	raw_wait_release(&bad, 4);
	for (uint32_t b = 0; b < bad.blocks; b++)
		raw_wait_credit(&bad, b, 1);
	must(bed_stats(&bed).updates == bad.blocks, "the whole push was not");
	raw_close(&bad);
	raw_close(&good);
	bed_stop(&bed);
}
END_TEST

TCase *ssp_case(void)
{
	TCase *t = e2e_case("ssp");

	tcase_add_loop_test(t, never_more_than_k_ahead, 0, 12);
	tcase_add_loop_test(t, goes_ahead_up_to_the_bound, 0, 2);
	tcase_add_loop_test(t, nobody_waits_for_who_is_gone, 0, 2);
	tcase_add_test(t, joins_where_the_slowest_is);
	tcase_add_test(t, looks_in_place);
	tcase_add_test(t, zero_is_sync);
	tcase_add_loop_test(t, is_told_and_let_go, 0, ACTS);
	tcase_add_test(t, a_repeated_barrier_is_harmless);
	tcase_add_test(t, half_a_whole_push_holds_nobody);
	return t;
}

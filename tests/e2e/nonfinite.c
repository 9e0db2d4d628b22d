/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that are used whole: what becomes of those with an infinity or a NaN in them, and of
 * those of which only a part comes.
 */
#include <math.h>
#include <signal.h>

#include "cases.h"
#include "child.h"
#include "play.h"
#include "raw.h"

/* Infinities and NaNs, now here, now there: in the first block, the last one, and more than one. */
static void spoil(uint32_t rank, uint64_t step, uint32_t p, float *grad, uint64_t n)
{
	uint64_t dice = mix64(rank * 1000 + step * 50 + p);

	if (dice % 5 == 0)
		grad[0] = dice & 64 ? INFINITY : -INFINITY;
	if (dice % 7 == 0)
		grad[n - 1] = NAN;
}

static bool pushes(uint32_t rank, uint64_t step, uint32_t p)
{
	return mix64(rank * 100 + step * 10 + p) % 6 != 0;
}

static void add_policy(struct play *play, enum gs_nonfinite policy)
{
	static const char *const name[3][4] = {
	    {"apply", "apply adam", "apply lars", "apply norm"},
	    {"reject", "reject adam", "reject lars", "reject norm"},
	    {"skip", "skip adam", "skip lars", "skip norm"},
	};

	play_add(play, name[policy][0], "sgd", 3, 257)->nonfinite = policy;
	play_add(play, name[policy][1], "adam", 5, 201)->nonfinite = policy;
	play->desc[play->n - 1].grad_dtype = GS_F16;
	play->desc[play->n - 1].reduce = GS_SUM;
	play_add(play, name[policy][2], "lars", 1, 1031)->nonfinite = policy;
	play->desc[play->n - 1].grad_dtype = GS_BF16;
	play->desc[play->n - 1].weight_dtype = GS_BF16;
	play_add(play, name[policy][3], "sgd", 1, 1)->nonfinite = policy;
	gs_setting(&play->desc[play->n - 1], "clip_norm", 0.5);
}

START_TEST(in_steps)
{
	struct srv_options opt = bed_options(1 + (uint32_t)_i % 4, SRV_SYNC);
	struct play *play;

	if (left_out(_i, 4))
		return;
	play = play_create(91, opt.trainers, scaled(8, 5));
	play->change = spoil;
	if (_i & 4)
		play->pushes = pushes;
	for (int k = 0; k < 3; k++)
		if (_i < 8 || k == 1 + _i / 2 % 2) /* alone, so that little else is in the way */
			add_policy(play, (enum gs_nonfinite)k);
	play_foresee(play);
	opt.workers = (uint32_t)_i % 3;
	opt.block_kib = _i % 2 ? 256 : 1;
	play_run(play, &opt);
	play_free(play);
}
END_TEST

/* The norm over all is of those whose gradients count. */
static void spoil_few(uint32_t rank, uint64_t step, uint32_t p, float *grad, uint64_t n)
{
	if (p == 1 && rank == step % 3)
		grad[n / 2] = NAN;
}

START_TEST(left_out_of_the_norm)
{
	struct srv_options opt = bed_options(3, SRV_SYNC);
	struct play *play = play_create(17, 3, 5);

	play->change = spoil_few;
	for (uint32_t p = 0; p < 3; p++) {
		static const char *const name[] = {"a", "b", "c"};
		struct gs_param_desc *d = play_add(play, name[p], "sgd", 3, 257);

		gs_setting(d, "clip_global_norm", 1);
		d->nonfinite = p == 1 ? GS_NONFINITE_REJECT : GS_NONFINITE_APPLY;
	}
	play_foresee(play);
	opt.block_kib = _i ? 256 : 1;
	opt.workers = (uint32_t)_i;
	play_run(play, &opt);
	play_free(play);
}
END_TEST

static uint64_t counted(gs_trainer *t)
{
	struct gs_counts c = {.size = sizeof(c)};

	ok(gs_get_counts(t, &c));
	must(c.skipped == 0 && c.refused == 0, "skipped, refused");
	return c.nonfinite;
}

START_TEST(without_steps)
{
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	float g[RAW_A_ELEMS], w[RAW_A_ELEMS];
	struct bed bed;
	gs_trainer *t;
	gs_param *p;

	if (left_out(_i, 2))
		return;
	opt.block_kib = 1;
	opt.workers = (uint32_t)_i % 2;
	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	d.name = "w";
	d.ndim = 1;
	d.shape[0] = RAW_A_ELEMS;
	d.nonfinite = (enum gs_nonfinite)(_i / 2);
	gs_setting(&d, "lr", 1);
	if (_i & 1)
		gs_setting(&d, "clip_norm", 1e9); /* whole, whatever the policy */
	ok(gs_declare(t, &d, &p));
	ok(gs_start(t));
	for (uint64_t n = 1; n <= 5; n++) {
		for (int i = 0; i < RAW_A_ELEMS; i++)
			g[i] = 1;
		ok(gs_push(t, p, g));
		g[300] = g[700] = (float)INFINITY;
		ok(gs_push(t, p, g));
		ok(gs_wait_applied(t, p));
		must(counted(t) == n, "%llu counted, not %llu", (unsigned long long)counted(t),
		     (unsigned long long)n);
	}
	ok(gs_pull(t, p, GS_ORDERED, w));
	if (d.nonfinite == GS_NONFINITE_APPLY)
		must(!isfinite(w[300]), "%g", (double)w[300]);
	for (int i = 0; i < RAW_A_ELEMS && d.nonfinite != GS_NONFINITE_APPLY; i++)
		must(w[i] == -5, "element %d is %g", i, (double)w[i]);
	leave(t);
	bed_stop(&bed);
}
END_TEST

struct newcomer {
	const char *uri;
	gs_trainer *t;
	gs_param *p;
	pthread_t thread;
};

static gs_trainer *declare_skipping(const char *uri, int rank, gs_param **p)
{
	gs_trainer *t = connect_as(uri, rank);
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = "w";
	d.ndim = 1;
	d.shape[0] = 10;
	d.nonfinite = GS_NONFINITE_SKIP;
	gs_setting(&d, "lr", 1);
	ok(gs_declare(t, &d, p));
	return t;
}

static void *come(void *arg)
{
	struct newcomer *n = arg;

	n->t = declare_skipping(n->uri, 1, &n->p);
	ok(gs_start(n->t));
	return NULL;
}

static bool newcomer_joined(void *arg)
{
	return bed_stats(arg).joined == 3;
}

/* A trainer that waits for the next step has nothing to do with the one that is skipped. */
START_TEST(who_waits_has_skipped_nothing)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct newcomer first, n;
	float g[10] = {(float)NAN};
	struct gs_counts c = {.size = sizeof(c)};
	struct bed bed;
	gs_trainer *t;
	gs_param *p;

	bed_start(&bed, &opt);
	first.uri = n.uri = bed.uri;
	pthread_create(&first.thread, NULL, come, &first);
	t = declare_skipping(bed.uri, 0, &p);
	ok(gs_start(t));
	pthread_join(first.thread, NULL);
	leave(first.t);
	pthread_create(&n.thread, NULL, come, &n);
	wait_until(newcomer_joined, &bed, "the newcomer");
	nap_us(scaled(20000, 100000)); /* most likely it waits now; if not, nothing is tested */
	ok(gs_push(t, p, g));
	ok(gs_step_end(t));
	ok(gs_get_counts(t, &c));
	must(c.skipped == 1 && c.nonfinite == 1, "skipped");
	pthread_join(n.thread, NULL);
	/* A release brings the counts. */
	ok(gs_step_post(t));
	ok(gs_step_end(n.t));
	ok(gs_step_wait(t));
	ok(gs_get_counts(n.t, &c));
	must(c.skipped == 0, "a step that it was not in is counted");
	leave(n.t);
	leave(t);
	bed_stop(&bed);
}
END_TEST

/* ---- counts ---------------------------------------------------------------------------------- */

enum { COUNTERS = 3 };

struct counter {
	gs_trainer *t;
	gs_param *p;
	uint32_t n;
	pthread_t thread;
};

static void *count(void *arg)
{
	struct counter *c = arg;
	float g[10] = {(float)NAN};

	for (uint32_t i = 1; i <= c->n; i++) {
		ok(gs_push(c->t, c->p, g));
		ok(gs_wait_applied(c->t, c->p));
		must(counted(c->t) >= i, "%llu counted, this thread alone sent %u",
		     (unsigned long long)counted(c->t), i);
	}
	return NULL;
}

/* Several workers count at once: none is told of before it is counted, and none is lost. */
START_TEST(counted_at_once)
{
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	static const char *const name[COUNTERS] = {"a", "b", "c"};
	struct counter c[COUNTERS];
	struct bed bed;
	gs_trainer *t;

	opt.workers = COUNTERS;
	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	for (int i = 0; i < COUNTERS; i++) {
		struct gs_param_desc d = GS_PARAM_DESC_INIT;

		d.name = name[i];
		d.ndim = 1;
		d.shape[0] = 10;
		d.nonfinite = GS_NONFINITE_REJECT;
		gs_setting(&d, "lr", 1);
		c[i] = (struct counter){.t = t, .n = scaled(1500, 20)};
		ok(gs_declare(t, &d, &c[i].p));
	}
	ok(gs_start(t));
	for (int i = 0; i < COUNTERS; i++)
		pthread_create(&c[i].thread, NULL, count, &c[i]);
	for (int i = 0; i < COUNTERS; i++)
		pthread_join(c[i].thread, NULL);
	must(counted(t) == COUNTERS * c[0].n, "%llu counted", (unsigned long long)counted(t));
	leave(t);
	bed_stop(&bed);
}
END_TEST

/* ---- parts of gradients ---------------------------------------------------------------------- */

static const struct wire_param *whole_line(void)
{
	static struct wire_param p;

	p = raw_lines[0];
	p.setting[p.n_settings++] = (struct wire_setting){"clip_norm", 1e9};
	return &p;
}

static void push_part(struct raw *r, uint32_t blocks, uint32_t slot, float value)
{
	for (uint32_t b = 0; b < blocks; b++)
		raw_gradient(r, 0, b, slot, value, false);
}

static void expect_weights(struct raw *r, float value)
{
	uint32_t imms = r->imms;
	float *landed =
	    (float *)(void *)((uint8_t *)tp_arena_base(r->mailbox) + r->place[0].landing_off);

	for (uint32_t b = 0; b < 4; b++)
		raw_write(r, 8, 8, imm_block(IMM_PULL, b, 0, false));
	while (r->imms < imms + 4)
		raw_poll(r);
	for (int i = 0; i < RAW_A_ELEMS; i++)
		must(landed[i] == value, "element %d is %g, not %g", i, (double)landed[i],
		     (double)value);
}

struct memory {
	struct bed *bed;
	uint64_t bytes;
};

static bool is_back(void *arg)
{
	struct memory *m = arg;

	return bed_stats(m->bed).memory == m->bytes;
}

static void wait_memory(struct bed *bed, uint64_t bytes)
{
	struct memory m = {bed, bytes};

	wait_until(is_back, &m, "the dead one's memory to come back");
}

/* Rank 0's part of a step, which nobody else delays. */
static void good_step(struct raw *r, enum srv_mode mode, uint64_t n)
{
	push_part(r, 4, (uint32_t)n % 2, 1);
	if (mode == SRV_SYNC) {
		raw_barrier(r, n);
		raw_wait_release(r, n);
	} else {
		for (uint32_t b = 0; b < 4; b++)
			raw_wait_credit(r, b, n);
	}
}

/* Killed with one to three blocks of four delivered; in odd runs the other's gradient is there
 * before. */
START_TEST(killed_in_a_push)
{
	static const char *const parts[] = {"1", "2", "3"};
	enum srv_mode mode = _i < 6 ? SRV_SYNC : SRV_ASYNC;
	struct srv_options opt = bed_options(2, mode);
	uint64_t alone, step = 1;
	struct child child;
	struct bed bed;
	struct raw r, other;

	if (left_out(_i, 5))
		return;
	opt.block_kib = 1;
	opt.workers = (uint32_t)_i % 3;
	bed_start(&bed, &opt);
	raw_join_with(&r, bed.uri, 0, whole_line(), 1);
	alone = bed_stats(&bed).memory;
	child_start(&child, "halfway", bed.uri, "1", parts[_i % 3], NULL);
	raw_wait_start(&r);
	child_says(&child, "halfway");
	if (_i % 2 && mode == SRV_SYNC)
		push_part(&r, 4, (uint32_t)step % 2, 1);
	else if (_i % 2)
		good_step(&r, mode, step);
	child_kill(&child);
	bed_wait_connected(&bed, 1);
	if (_i % 2 && mode == SRV_SYNC) {
		raw_barrier(&r, step);
		raw_wait_release(&r, step);
	} else if (_i % 2 == 0) {
		good_step(&r, mode, step);
	}
	wait_memory(&bed, alone);
	expect_weights(&r, -1);
	good_step(&r, mode, ++step);
	expect_weights(&r, -2);
	/* Its place is taken anew, and both go on. */
	raw_join_with(&other, bed.uri, 1, whole_line(), 1);
	if (mode == SRV_SYNC)
		good_step(&r, mode, ++step);
	raw_wait_start(&other);
	push_part(&other, 4, 0, 3);
	if (mode == SRV_SYNC) {
		while (step + 1 < other.step)
			good_step(&r, mode, ++step);
		raw_barrier(&other, step + 1);
	} else {
		for (uint32_t b = 0; b < 4; b++)
			raw_wait_credit(&other, b, 1);
	}
	good_step(&r, mode, ++step);
	expect_weights(&r, mode == SRV_SYNC ? -(float)(step - 1) - 2 : -(float)step - 3);
	raw_close(&other);
	wait_memory(&bed, alone);
	raw_close(&r);
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).violations == 0, "violations");
	bed_stop(&bed);
}
END_TEST

/* Async: parts of two pushes, one into each slot; who fills one twice is let go of. */
START_TEST(parts_in_any_order)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct bed bed;
	struct raw r, bad;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	raw_join_with(&r, bed.uri, 0, whole_line(), 1);
	raw_join_with(&bad, bed.uri, 1, whole_line(), 1);
	raw_wait_start(&r);
	raw_wait_start(&bad);
	for (uint32_t b = 4; b-- > 1;)
		for (uint32_t s = 0; s < 2; s++)
			raw_gradient(&r, 0, b, s, s ? 10 : 1, false);
	expect_weights(&r, 0);
	raw_gradient(&r, 0, 0, 1, 10, false);
	expect_weights(&r, -10);
	raw_gradient(&r, 0, 0, 0, 1, false);
	expect_weights(&r, -11);
	for (uint32_t b = 0; b < 4; b++)
		raw_wait_credit(&r, b, 2);
	push_part(&bad, 2, 0, 100);
	raw_gradient(&bad, 0, 1, 0, 100, false);
	RAW_ENDS(&bad, WIRE_E_PROTOCOL, "block 1 slot 0", "credit");
	bed_wait_connected(&bed, 1);
	push_part(&r, 4, 0, 1);
	expect_weights(&r, -12);
	raw_close(&r);
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
}
END_TEST

/* Sync: blocks of one push in two slots are not one gradient. */
START_TEST(parts_in_two_slots)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct bed bed;
	struct raw r, odd;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	raw_join_with(&r, bed.uri, 0, whole_line(), 1);
	raw_join_with(&odd, bed.uri, 1, whole_line(), 1);
	raw_wait_start(&r);
	raw_wait_start(&odd);
	for (uint32_t b = 0; b < 4; b++)
		raw_gradient(&odd, 0, b, b % 2, 100, false);
	raw_barrier(&odd, 1);
	good_step(&r, SRV_SYNC, 1);
	expect_weights(&r, -1);
	push_part(&odd, 4, 0, 3);
	raw_barrier(&odd, 2);
	good_step(&r, SRV_SYNC, 2);
	expect_weights(&r, -3);
	raw_close(&odd);
	raw_close(&r);
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).violations == 0, "violations");
	bed_stop(&bed);
}
END_TEST

TCase *nonfinite_case(void)
{
	TCase *t = e2e_case("nonfinite");

	tcase_add_loop_test(t, in_steps, 0, 12);
	tcase_add_loop_test(t, left_out_of_the_norm, 0, 2);
	tcase_add_loop_test(t, without_steps, 0, 6);
	tcase_add_test(t, who_waits_has_skipped_nothing);
	tcase_add_test(t, counted_at_once);
	tcase_add_loop_test(t, killed_in_a_push, 0, 12);
	tcase_add_test(t, parts_in_any_order);
	tcase_add_test(t, parts_in_two_slots);
	return t;
}

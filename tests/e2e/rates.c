/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning rates: gs_set_lr for all trainers and in its place among the caller's pushes, and
 * schedules, whose clock counts released steps in sync mode and updates elsewhere, whatever the
 * number of trainers and blocks.
 *
 * Gradients are ones (or -1), so the weights are sums of rates.
 */
#include <math.h>

#include "cases.h"
#include "kernels/schedule.h"
#include "raw.h"

enum { ELEMS = 256 * 3 + 7 }; /* 4 blocks of 1 KiB */

static float ones[ELEMS];

/* "w" of ELEMS at 0, sgd. */
static gs_param *declare_w(gs_trainer *t, const char *name, double lr, const char *schedule,
			   bool whole)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *w;

	for (int i = 0; i < ELEMS; i++)
		ones[i] = 1;
	d.name = name;
	d.ndim = 1;
	d.shape[0] = ELEMS;
	d.schedule = schedule;
	gs_setting(&d, "lr", lr);
	if (whole)
		gs_setting(&d, "clip_norm", 1e6);
	ok(gs_declare(t, &d, &w));
	return w;
}

/* All of the weights are `want`. */
static void check_weights(gs_trainer *t, gs_param *w, float want)
{
	float seen[ELEMS];

	ok(gs_pull(t, w, GS_ORDERED, seen));
	for (int i = 0; i < ELEMS; i++)
		must(seen[i] == want, "element %d is %.9g, not %.9g", i, (double)seen[i],
		     (double)want);
}

/* ---- gs_set_lr ------------------------------------------------------------------------------- */

struct two {
	struct bed bed;
	gs_trainer *t[2];
	gs_param *w[2], *v[2];
	pthread_t thread;
};

static void two_open(struct two *two, enum srv_mode mode, const char *schedule, uint32_t workers)
{
	struct srv_options opt = bed_options(2, mode);

	opt.staleness = mode == SRV_SSP ? 100 : 0;
	opt.block_kib = 1;
	opt.workers = workers;
	bed_start(&two->bed, &opt);
	for (int i = 0; i < 2; i++) {
		two->t[i] = connect_as(two->bed.uri, i);
		two->v[i] = declare_w(two->t[i], "v", 1, schedule, workers == 2);
		two->w[i] = declare_w(two->t[i], "w", 1, schedule, workers == 2);
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

/* Behind what was pushed before, in front of what is pushed afterwards; of this parameter alone. */
START_TEST(set_in_its_place)
{
	struct two two;
	float want = 0, other = 0;

	two_open(&two, _i % 2 ? SRV_SSP : SRV_ASYNC, NULL, (uint32_t)_i / 2);
	for (int i = 0; i < 20; i++) {
		double rate = i % 5 * 0.25;

		ok(gs_push(two.t[0], two.w[0], ones));
		want -= i ? (float)((i - 1) % 5) * 0.25F : 1;
		ok(gs_push(two.t[0], two.v[0], ones));
		other -= 1;
		ok(gs_set_lr(two.t[0], two.w[0], rate));
		ok(gs_push(two.t[0], two.w[0], ones));
		want -= (float)rate;
		check_weights(two.t[0], two.w[0], want);
		/* The other trainer's are applied at it as well. */
		ok(gs_push(two.t[1], two.w[1], ones));
		want -= (float)rate;
		check_weights(two.t[1], two.w[1], want);
	}
	check_weights(two.t[1], two.v[1], other);
	two_close(&two);
}
END_TEST

static void *end_second(void *arg)
{
	struct two *two = arg;

	ok(gs_push(two->t[1], two->w[1], ones));
	ok(gs_step_end(two->t[1]));
	return NULL;
}

/* Set before this trainer's pushes: it holds for the whole step, also for what the other pushed
 * before. */
START_TEST(holds_for_the_whole_step)
{
	struct two two;
	float want = 0;

	two_open(&two, SRV_SYNC, NULL, (uint32_t)_i);
	for (uint32_t i = 0; i < scaled(16, 4); i++) {
		double rate = 0.5 + i % 3;

		pthread_create(&two.thread, NULL, end_second, &two);
		if (i % 2)
			nap_us(500);
		ok(gs_set_lr(two.t[0], two.w[0], rate));
		ok(gs_push(two.t[0], two.w[0], ones));
		ok(gs_step_end(two.t[0]));
		pthread_join(two.thread, NULL);
		want -= (float)rate;
		check_weights(two.t[0], two.w[0], want);
	}
	two_close(&two);
}
END_TEST

struct setter {
	gs_trainer *t;
	gs_param *p;
	pthread_t thread;
};

static void *set_many(void *arg)
{
	struct setter *s = arg;

	for (int i = 1; i <= 50; i++)
		ok(gs_set_lr(s->t, s->p, i));
	return NULL;
}

/* Threads of one trainer take turns; trainers need none. */
START_TEST(set_at_once)
{
	struct two two;
	struct setter s[4];

	two_open(&two, SRV_ASYNC, NULL, 1);
	for (int i = 0; i < 4; i++) {
		s[i] = (struct setter){.t = two.t[i / 2], .p = i % 2 ? two.w[i / 2] : two.v[i / 2]};
		pthread_create(&s[i].thread, NULL, set_many, &s[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(s[i].thread, NULL);
	ok(gs_push(two.t[0], two.w[0], ones));
	check_weights(two.t[0], two.w[0], -50);
	two_close(&two);
}
END_TEST

START_TEST(what_the_library_refuses)
{
	struct two two;

	two_open(&two, SRV_ASYNC, NULL, 0);
	fails(gs_set_lr(two.t[0], two.w[0], NAN), EINVAL, "lr", "nan");
	fails(gs_set_lr(two.t[0], two.w[0], INFINITY), EINVAL, "lr", "inf");
	fails(gs_set_lr(two.t[0], two.w[0], -0.5), EINVAL, "lr", "-0.5");
	fails(gs_set_lr(two.t[0], two.w[1], 1), EINVAL, "not one of this trainer's");
	fails(gs_set_lr(two.t[0], NULL, 1), EINVAL, "not one of this trainer's");
	ok(gs_push(two.t[0], two.w[0], ones));
	check_weights(two.t[0], two.w[0], -1);
	two_close(&two);
}
END_TEST

/* ---- what the library never says ------------------------------------------------------------- */

static void open_raw(struct bed *bed, struct raw *r)
{
	struct srv_options opt = bed_options(1, SRV_ASYNC);

	opt.block_kib = 1;
	bed_start(bed, &opt);
	raw_join(r, bed->uri, 0);
	raw_wait_start(r);
}

static void send_rate(struct raw *r, uint32_t param, double rate)
{
	struct wire_msg msg = {.kind = WIRE_SET_RATE, .set_rate = {.param = param, .rate = rate}};

	raw_send(r, &msg);
}

/* Gradients may follow it at once, and are taken. */
START_TEST(data_behind_a_rate)
{
	struct bed bed;
	struct raw r;

	open_raw(&bed, &r);
	for (uint32_t i = 1; i <= scaled(50, 8); i++) {
		send_rate(&r, 1, 2);
		raw_gradient(&r, 1, 0, i % 2, 1, true);
		must(raw_expect(&r, WIRE_RATE_SET).rate_set.param == 1, "param");
		raw_wait_credit(&r, r.place[1].first_block, i);
	}
	must(bed_stats(&bed).violations == 0, "violations");
	raw_close(&r);
	bed_stop(&bed);
}
END_TEST

static void unknown_parameter(struct raw *r)
{
	send_rate(r, 2, 1);
}

/* The bytes of a good message with its rate replaced: 8 bytes, the last ones. */
static void bad_number(struct raw *r, double rate)
{
	const struct wire_msg msg = {.kind = WIRE_SET_RATE, .set_rate = {.param = 1, .rate = 1.5}};
	const double good = 1.5;
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(&msg, buf, sizeof(buf));

	for (int i = 0; i + 8 <= len; i++)
		if (memcmp(buf + i, &good, 8) == 0)
			memcpy(buf + i, &rate, 8);
	raw_send_bytes(r, buf, (size_t)len);
}

static void not_a_number(struct raw *r)
{
	bad_number(r, NAN);
}

static void below_zero(struct raw *r)
{
	bad_number(r, -1);
}

static void data_behind_a_bye_behind_a_rate(struct raw *r)
{
	const struct wire_msg bye = {.kind = WIRE_BYE};

	r->deaf = true;
	send_rate(r, 1, 1);
	raw_send(r, &bye);
	raw_gradient(r, 1, 0, 0, 1, false);
	while (r->first == r->last || r->inbox[r->first % 16].kind == WIRE_RATE_SET) {
		raw_poll(r);
		if (r->first != r->last && r->inbox[r->first % 16].kind == WIRE_RATE_SET)
			r->first++;
	}
}

static const struct act {
	void (*act)(struct raw *);
	const char *words[3];
} acts[] = {
    {unknown_parameter, {"parameter 2", "none"}},
    {not_a_number, {"rate", "nan"}},
    {below_zero, {"rate", "-1"}},
};
enum { ACTS = sizeof(acts) / sizeof(acts[0]) };

START_TEST(is_told_and_let_go)
{
	struct bed bed;
	struct raw r;

	open_raw(&bed, &r);
	acts[_i].act(&r);
	raw_expect_error(&r, WIRE_E_PROTOCOL, acts[_i].words);
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).violations == 1, "violations");
	bed_stop(&bed);
}
END_TEST

/* The second may find the first done already; if not, it is one too many. Nothing worse happens. */
START_TEST(two_under_way)
{
	struct bed bed;
	struct raw r;

	open_raw(&bed, &r);
	send_rate(&r, 0, 1);
	send_rate(&r, 1, 1);
	while (r.last - r.first < 2 && !r.closed)
		raw_poll(&r);
	must(bed_stats(&bed).violations == (r.inbox[(r.last - 1) % 16].kind == WIRE_ERROR),
	     "violations");
	raw_free(&r);
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
}
END_TEST

START_TEST(a_bye_ends_it_all_the_same)
{
	struct bed bed;
	struct raw r;

	open_raw(&bed, &r);
	data_behind_a_bye_behind_a_rate(&r);
	raw_free(&r);
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).updates == 0, "data behind a bye was applied");
	bed_stop(&bed);
}
END_TEST

/* ---- schedules ------------------------------------------------------------------------------- */

static const char *const schedules[] = {
    "step:every=2,gamma=0.5",
    "warmup:steps=3,from=0.25+multistep:at=5/9,gamma=0.5",
    "polynomial:steps=8,end=0.125",
    "cosine:steps=10,end=0.01",
};
enum { SCHEDULES = sizeof(schedules) / sizeof(schedules[0]), STEPS = 14 };

/* What w -= rate·1 leaves after one more update. */
static float updated(float w, const char *text, double lr, uint64_t clock)
{
	struct schedule s;

	ok(schedule_parse(text, &s));
	return w - (float)schedule_rate(&s, lr, clock);
}

struct worker {
	struct two *two;
	int which;
	pthread_t thread;
};

/* "v" is pushed in every third step only, by the second trainer. */
static void *make_steps(void *arg)
{
	struct worker *k = arg;
	struct two *two = k->two;

	for (int i = 0; i < STEPS; i++) {
		ok(gs_push(two->t[k->which], two->w[k->which], ones));
		if (i % 3 == 2 && k->which == 1)
			ok(gs_push(two->t[1], two->v[1], ones));
		ok(gs_step_end(two->t[k->which]));
	}
	return NULL;
}

/* One step is one unit, of two trainers, four blocks, and for who was not pushed. */
START_TEST(counts_steps_in_sync_mode)
{
	const char *text = schedules[_i % SCHEDULES];
	struct two two;
	struct worker k[2];
	float w = 0, v = 0;

	two_open(&two, SRV_SYNC, text, (uint32_t)_i / SCHEDULES);
	for (int i = 0; i < 2; i++) {
		k[i] = (struct worker){.two = &two, .which = i};
		pthread_create(&k[i].thread, NULL, make_steps, &k[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(k[i].thread, NULL);
	for (uint64_t i = 0; i < STEPS; i++) {
		w = updated(w, text, 1, i);
		if (i % 3 == 2)
			v = updated(v, text, 1, i);
	}
	check_weights(two.t[0], two.w[0], w);
	check_weights(two.t[0], two.v[0], v);
	two_close(&two);
}
END_TEST

/* One push is one unit, whoever's; four blocks are no four. */
START_TEST(counts_updates_elsewhere)
{
	const char *text = schedules[_i % SCHEDULES];
	struct two two;
	float w = 0, v = 0;

	two_open(&two, _i % 2 ? SRV_SSP : SRV_ASYNC, text, (uint32_t)_i / SCHEDULES);
	for (uint64_t i = 0; i < STEPS; i++) {
		int who = i % 3 == 1;

		ok(gs_push(two.t[who], two.w[who], ones));
		w = updated(w, text, 1, i);
		check_weights(two.t[who], two.w[who], w);
		if (i % 4 == 3) {
			ok(gs_push(two.t[who], two.v[who], ones));
			v = updated(v, text, 1, i / 4);
			check_weights(two.t[who], two.v[who], v);
		}
		if (_i % 2)
			ok(gs_step_end(two.t[who]));
	}
	two_close(&two);
}
END_TEST

/* The clock goes on; what the rate is multiplied with changes. */
START_TEST(goes_on_from_what_was_set)
{
	const char *text = schedules[_i];
	struct two two;
	float w = 0;

	two_open(&two, SRV_ASYNC, text, 1);
	for (uint64_t i = 0; i < STEPS; i++) {
		if (i == 4)
			ok(gs_set_lr(two.t[1], two.w[1], 0.5));
		ok(gs_push(two.t[0], two.w[0], ones));
		w = updated(w, text, i < 4 ? 1 : 0.5, i);
		check_weights(two.t[0], two.w[0], w);
	}
	two_close(&two);
}
END_TEST

START_TEST(a_bad_schedule_is_refused)
{
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct bed bed;
	gs_trainer *t;

	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	declare_w(t, "w", 1, "step:every=0", false);
	fails(gs_start(t), EINVAL, "\"w\"", "every", "0");
	gs_close(t);
	bed_stop(&bed);
}
END_TEST

TCase *rates_case(void)
{
	TCase *t = e2e_case("rates");

	tcase_add_loop_test(t, set_in_its_place, 0, 6);
	tcase_add_loop_test(t, holds_for_the_whole_step, 0, 3);
	tcase_add_test(t, set_at_once);
	tcase_add_test(t, what_the_library_refuses);
	tcase_add_test(t, data_behind_a_rate);
	tcase_add_loop_test(t, is_told_and_let_go, 0, ACTS);
	tcase_add_test(t, two_under_way);
	tcase_add_test(t, a_bye_ends_it_all_the_same);
	tcase_add_loop_test(t, counts_steps_in_sync_mode, 0, 3 * SCHEDULES);
	tcase_add_loop_test(t, counts_updates_elsewhere, 0, 3 * SCHEDULES);
	tcase_add_loop_test(t, goes_on_from_what_was_set, 0, SCHEDULES);
	tcase_add_test(t, a_bad_schedule_is_refused);
	return t;
}

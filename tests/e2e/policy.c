/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows a loss, and a straggler: bare trainers, one thread, each case by itself. All push ones to
 * raw_lines (sgd, lr 1, the mean), so every step takes 1 off what anybody pushed.
 */
#include "cases.h"
#include "raw.h"

enum { SOON_MS = 300, LATER_MS = 1500 /* when a busy machine, too, is in time to look */ };

static struct srv_options waiting(uint32_t trainers, uint32_t wait_ms)
{
	struct srv_options opt = bed_options(trainers, SRV_SYNC);

	opt.on_loss = SRV_LOSS_WAIT;
	opt.loss_wait_ms = wait_ms;
	opt.block_kib = 1;
	return opt;
}

static void join_all(struct raw *r, uint32_t n, const char *uri)
{
	for (uint32_t i = 0; i < n; i++)
		raw_join(&r[i], uri, (int32_t)i);
	for (uint32_t i = 0; i < n; i++)
		raw_wait_start(&r[i]);
}

static void push_a(struct raw *r, uint32_t from, uint32_t to, float value)
{
	for (uint32_t b = from; b < to; b++)
		raw_gradient(r, 0, b, r->step % r->slots, value, false);
}

static void push_all(struct raw *r, float value)
{
	push_a(r, 0, 4, value);
	raw_gradient(r, 1, 0, r->step % r->slots, value, false);
}

/* It must not be over yet: the server has had the time to make a mistake. */
static void still_waits(struct raw *r, uint64_t step)
{
	for (int i = 0; i < 20; i++) {
		raw_poll(r);
		nap_us(1000);
	}
	must(raw_released(r) < step, "step %llu is over", (unsigned long long)step);
}

/* Dies, and the server has heard of it. */
static void dies(struct raw *r, struct bed *bed, uint64_t losses)
{
	raw_free(r);
	bed_wait_lost(bed, losses);
}

/* Control counts it, which may be a moment behind what the round does about it. */
static bool is_given_up(void *bed)
{
	return bed_stats(bed).given_up > 0;
}

static void resume(struct raw *r, const char *uri, int32_t rank, const struct raw *old)
{
	struct wire_welcome was = old->welcome;

	raw_connect(r, uri, 0);
	raw_hello_again(r, rank, was.session);
	r->welcome = raw_expect(r, WIRE_WELCOME).welcome;
	must(r->welcome.resumed, "not resumed");
	must(r->welcome.server == was.server, "another server");
	must(memcmp(r->welcome.session, was.session, WIRE_SESSION_LEN), "the same session");
	raw_declare(r, raw_lines, 2);
	raw_take_grant(r);
	raw_attach(r, 0);
	raw_expect(r, WIRE_READY);
}

static void ends(struct raw *r, uint64_t step)
{
	raw_wait_release(r, step);
	r->step = step + 1;
}

/* What a trainer that reads the weights sees of the first element of each block of "a". */
static void sees(const char *uri, const float want[4])
{
	gs_trainer *t = connect_as(uri, -1);
	gs_param *a = declare_line(t, "a", RAW_A_ELEMS, 1, 0);
	float w[RAW_A_ELEMS];

	declare_line(t, "b", RAW_B_ELEMS, 1, 0);
	ok(gs_start(t));
	ok(gs_pull(t, a, GS_ORDERED, w));
	for (int b = 0; b < 4; b++)
		must(w[256 * b] == want[b], "block %d is %g instead of %g", b, (double)w[256 * b],
		     (double)want[b]);
	leave(t);
}

/* ---- continue and wait ------------------------------------------------------------------------- */

START_TEST(continue_goes_on_at_once)
{
	struct srv_options opt = waiting(2, 300000);
	struct srv_stats s;
	struct raw r[2];
	struct bed bed;

	opt.on_loss = SRV_LOSS_CONTINUE;
	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	push_all(&r[0], 1);
	raw_barrier(&r[0], 1);
	dies(&r[1], &bed, 1);
	ends(&r[0], 1);
	wait_until(is_given_up, &bed, "giving up");
	s = bed_stats(&bed);
	must(s.given_up == 1 && s.rejoined == 0, "given up");
	/* Its rank comes back at the next step, with no place to go on from. */
	raw_connect(&r[1], bed.uri, 0);
	raw_hello_again(&r[1], 1, r[1].welcome.session);
	must(!raw_expect(&r[1], WIRE_WELCOME).welcome.resumed, "resumed");
	raw_close(&r[1]);
	raw_bye(&r[0]);
	bed_stop(&bed);
}
END_TEST

/* The step waits for the lost one until its time is over; the mean is over those that delivered. */
START_TEST(wait_then_give_up)
{
	struct srv_options opt = waiting(2, LATER_MS);
	struct raw r[2];
	uint64_t begin;
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	push_a(&r[0], 0, 4, 2);
	push_a(&r[1], 1, 3, 4); /* two blocks, and dies */
	raw_barrier(&r[0], 1);
	nap_us(20000);
	begin = clock_ns();
	dies(&r[1], &bed, 1);
	still_waits(&r[0], 1);
	must(bed_stats(&bed).given_up == 0, "given up at once");
	ends(&r[0], 1);
	must(clock_ns() - begin >= LATER_MS * NS_PER_MS, "given up too early");
	must(bed_stats(&bed).given_up == 1, "given up");
	/* The next is made without it, at once. */
	push_a(&r[0], 0, 4, 2);
	raw_barrier(&r[0], 2);
	ends(&r[0], 2);
	raw_bye(&r[0]);
	sees(bed.uri, (const float[]){-4, -5, -5, -4});
	bed_stop(&bed);
}
END_TEST

/* The last one there is lost, with a gradient in the step: given up, the step ends all the same. */
START_TEST(the_only_one_is_given_up)
{
	struct srv_options opt = waiting(1, SOON_MS);
	struct bed bed;
	struct raw r;

	bed_start(&bed, &opt);
	join_all(&r, 1, bed.uri);
	push_a(&r, 0, 2, 3);
	nap_us(20000);
	dies(&r, &bed, 1);
	bed_wait_step(&bed, 1);
	sees(bed.uri, (const float[]){-3, -3, 0, 0});
	bed_stop(&bed);
}
END_TEST

static void two_are_lost(bool given_up)
{
	struct srv_options opt = waiting(3, given_up ? SOON_MS : 300000);
	struct raw r[3], back[2];
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 3, bed.uri);
	push_all(&r[0], 3);
	push_a(&r[1], 0, 2, 6);
	raw_barrier(&r[0], 1);
	nap_us(20000);
	dies(&r[1], &bed, 1);
	dies(&r[2], &bed, 2);
	if (given_up) {
		ends(&r[0], 1);
		must(bed_stats(&bed).given_up == 2, "given up");
	} else {
		still_waits(&r[0], 1);
		resume(&back[1], bed.uri, 2, &r[2]);
		raw_wait_start(&back[1]);
		raw_barrier(&back[1], 1); /* it pushes nothing */
		still_waits(&r[0], 1);
		resume(&back[0], bed.uri, 1, &r[1]);
		raw_wait_start(&back[0]);
		must(back[0].step == 1 && back[1].step == 1, "the step that is being made");
		for (uint32_t b = 0; b < 4; b++)
			must(raw_kept(&back[0], b) == (b < 2), "kept word of block %u", b);
		raw_barrier(&back[0], 1);
		for (int i = 0; i < 2; i++) {
			ends(&back[i], 1);
			raw_bye(&back[i]);
		}
		ends(&r[0], 1);
		must(bed_stats(&bed).rejoined == 2, "rejoined");
	}
	raw_bye(&r[0]);
	sees(bed.uri, (const float[]){-4.5f, -4.5f, -3, -3});
	bed_stop(&bed);
}

START_TEST(two_lost_at_once)
{
	two_are_lost(_i);
}
END_TEST

/* It had ended the step: nobody waits for it in this one, the next one does. */
START_TEST(lost_behind_its_barrier)
{
	struct srv_options opt = waiting(2, 300000);
	struct raw r[2], back;
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	push_all(&r[1], 3);
	raw_barrier(&r[1], 1);
	nap_us(20000);
	dies(&r[1], &bed, 1);
	if (_i) { /* back while the step is being made: it starts with the next */
		resume(&back, bed.uri, 1, &r[1]);
		for (int i = 0; i < 20; i++, nap_us(1000))
			raw_poll(&back);
		must(back.first == back.last, "started in a step that it had ended");
	}
	push_all(&r[0], 1);
	raw_barrier(&r[0], 1);
	ends(&r[0], 1);
	push_all(&r[0], 1);
	raw_barrier(&r[0], 2);
	still_waits(&r[0], 2);
	if (!_i)
		resume(&back, bed.uri, 1, &r[1]);
	raw_wait_start(&back);
	must(back.step == 2, "step %llu", (unsigned long long)back.step);
	push_all(&back, 3);
	raw_barrier(&back, 2);
	ends(&r[0], 2);
	ends(&back, 2);
	raw_bye(&r[0]);
	raw_bye(&back);
	sees(bed.uri, (const float[]){-4, -4, -4, -4});
	bed_stop(&bed);
}
END_TEST

/* Nobody waits for one that was in no step. */
START_TEST(lost_before_the_first_step)
{
	struct srv_options opt = waiting(2, 300000);
	struct raw r[2];
	struct bed bed;

	bed_start(&bed, &opt);
	raw_join(&r[0], bed.uri, 0);
	dies(&r[0], &bed, 1);
	must(bed_stats(&bed).given_up == 0, "given up, and it had no place");
	join_all(r, 2, bed.uri);
	for (int i = 0; i < 2; i++) {
		must(r[i].step == 1, "step");
		raw_barrier(&r[i], 1);
	}
	ends(&r[0], 1);
	raw_bye(&r[0]);
	raw_bye(&r[1]);
	bed_stop(&bed);
}
END_TEST

/* Who gives the initial weights is lost half way: another is asked, and its rank is free. */
START_TEST(lost_while_it_gave_initial_weights)
{
	struct srv_options opt = waiting(2, 300000);
	struct wire_param p = raw_lines[0];
	struct raw r[2];
	struct bed bed;

	opt.mode = _i ? SRV_ASYNC : SRV_SYNC;
	p.init = WIRE_INIT_TRAINER;
	bed_start(&bed, &opt);
	raw_enter(&r[0], bed.uri, 0, &p, 1);
	must(raw_expect(&r[0], WIRE_READY).ready.init, "not asked");
	raw_write(&r[0], r[0].place[0].slots_off, 1024, imm_block(IMM_INIT, 0, 0, false));
	raw_free(&r[0]);
	bed_wait_connected(&bed, 0);
	for (int i = 0; i < 2; i++)
		raw_enter(&r[i], bed.uri, i, &p, 1);
	must(raw_expect(&r[0], WIRE_READY).ready.init, "not asked");
	for (uint32_t b = 0; b < 4; b++)
		must(raw_kept(&r[0], b) == 0 && raw_credit(&r[0], b) == 0, "words");
	for (uint32_t b = 0; b < 4; b++)
		raw_write(&r[0], r[0].place[0].slots_off + 1024 * b, b < 3 ? 1024 : 28,
			  imm_block(IMM_INIT, b, 0, true));
	for (uint32_t b = 0; b < 4; b++)
		raw_wait_credit(&r[0], b, 1);
	raw_send(&r[0], &(struct wire_msg){.kind = WIRE_INIT_DONE});
	raw_expect(&r[1], WIRE_READY);
	raw_wait_start(&r[0]);
	raw_wait_start(&r[1]);
	must(bed_stats(&bed).lost == 0, "it had no place to lose");
	raw_bye(&r[0]);
	raw_bye(&r[1]);
	bed_stop(&bed);
}
END_TEST

/* Each life of it delivers a block and is lost: the memory of each stays until the step is over, as far
 * as the server may have so much; then it is refused. One that delivers nothing is buried at once. */
START_TEST(dies_over_and_over_in_one_step)
{
	enum { MIB = 1 << 20, BLOCK = 256 << 10, MOST = 5 };
	struct wire_param p = raw_lines[0];
	struct srv_options opt = waiting(2, scaled(3000, 12000));
	struct raw r[2], back;
	uint64_t lost = 0, one, two;
	struct bed bed;
	uint32_t lives;

	opt.on_loss = SRV_LOSS_WAIT;
	p.dim[0] = 2 * MIB; /* 8 MiB of weights, and 16 for the slots of each session */
	opt.block_kib = BLOCK >> 10;
	opt.max_memory = (8 + MOST * 16 + 8) * MIB;
	bed_start(&bed, &opt);
	raw_join_with(&r[0], bed.uri, 0, &p, 1);
	one = bed_stats(&bed).memory;
	raw_join_with(&r[1], bed.uri, 1, &p, 1);
	two = bed_stats(&bed).memory;
	must(two - one >= 16 * MIB, "memory of a session %llu", (unsigned long long)(two - one));
	raw_wait_start(&r[0]);
	raw_wait_start(&r[1]);
	raw_barrier(&r[0], 1);
	dies(&r[1], &bed, ++lost);
	for (int i = 0; i < 8; i++) { /* they deliver nothing */
		raw_join_with(&back, bed.uri, 1, &p, 1);
		raw_wait_start(&back);
		dies(&back, &bed, ++lost);
		bed_wait_connected(&bed, 1);
	}
	for (lives = 1; lives <= MOST; lives++) {
		raw_connect(&back, bed.uri, 0);
		raw_hello(&back, 1);
		raw_expect(&back, WIRE_WELCOME);
		raw_declare(&back, &p, 1);
		if (lives == MOST)
			break;
		raw_take_grant(&back);
		raw_attach(&back, 0);
		raw_expect(&back, WIRE_READY);
		raw_wait_start(&back);
		raw_write(&back, back.place[0].slots_off + lives * BLOCK, BLOCK,
			  imm_block(IMM_GRAD, back.place[0].first_block + lives, 0, false));
		nap_us(20000);
		dies(&back, &bed, ++lost);
		bed_wait_connected(&bed, 1);
		must(bed_stats(&bed).memory == one + lives * (two - one), "after %u lives %llu", lives,
		     (unsigned long long)bed_stats(&bed).memory);
	}
	RAW_ENDS(&back, WIRE_E_MEMORY, "5 sessions", "--max-memory", "step is over");
	/* Its rank is given up, the step ends, and there is room again. */
	ends(&r[0], 1);
	must(bed_stats(&bed).given_up == 1, "given up");
	raw_join_with(&back, bed.uri, 1, &p, 1);
	must(bed_stats(&bed).memory == two, "memory %llu, not %llu",
	     (unsigned long long)bed_stats(&bed).memory, (unsigned long long)two);
	raw_bye(&r[0]);
	raw_close(&back);
	bed_stop(&bed);
}
END_TEST

/* ---- whose rank -------------------------------------------------------------------------------- */

START_TEST(takeover_by_token)
{
	struct srv_options opt = waiting(2, 300000);
	struct raw r[2], back, thief;
	uint8_t wrong[WIRE_SESSION_LEN] = {1};
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	push_a(&r[1], 0, 2, 5);
	nap_us(20000);
	raw_connect(&thief, bed.uri, 0);
	raw_hello_again(&thief, 1, wrong);
	raw_expect(&thief, WIRE_ERROR);
	raw_free(&thief);
	resume(&back, bed.uri, 1, &r[1]);
	RAW_ENDS(&r[1], WIRE_E_RANK, "connected anew");
	raw_wait_start(&back);
	must(back.step == 1, "step");
	push_a(&back, 2, 4, 5);
	raw_barrier(&back, 1);
	raw_barrier(&r[0], 1);
	ends(&r[0], 1);
	ends(&back, 1);
	raw_bye(&r[0]);
	raw_bye(&back);
	must(bed_stats(&bed).violations == 0, "a violation");
	sees(bed.uri, (const float[]){-5, -5, -5, -5});
	bed_stop(&bed);
}
END_TEST

/* Welcomes that never reach it: what it shows is the token of the last one that did, each time, be it
 * of the session that it lost or of one that got no further. The server notices the ends of those
 * connections, or it does not. */
START_TEST(welcomes_get_lost)
{
	struct srv_options opt = waiting(2, 300000);
	struct raw r[2], unheard[3], back, *heard = &r[1];
	bool noticed = _i & 1;
	struct bed bed;

	opt.mode = _i & 2 ? SRV_ASYNC : SRV_SYNC;
	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	push_a(&r[1], 0, 2, 5);
	nap_us(20000);
	dies(&r[1], &bed, 1);
	for (int i = 0; i < 3; i++) {
		raw_connect(&unheard[i], bed.uri, 0);
		raw_hello_again(&unheard[i], 1, heard->welcome.session);
		unheard[i].welcome = raw_expect(&unheard[i], WIRE_WELCOME).welcome;
		must(unheard[i].welcome.resumed, "not resumed");
		if (_i & 4 && i == 0)
			heard = &unheard[0];
		if (noticed) {
			raw_close(&unheard[i]);
			bed_wait_connected(&bed, 1);
		}
	}
	resume(&back, bed.uri, 1, heard);
	for (int i = 0; i < 3 && !noticed; i++)
		RAW_ENDS(&unheard[i], WIRE_E_RANK, "connected anew");
	raw_wait_start(&back);
	for (uint32_t b = 0; b < 4; b++)
		must(raw_kept(&back, b) == (b < 2), "kept word of block %u", b);
	/* It takes part: now the old one is worth nothing. */
	struct wire_welcome old = heard->welcome;

	raw_connect(&unheard[0], bed.uri, 0);
	raw_hello_again(&unheard[0], 1, old.session);
	RAW_ENDS(&unheard[0], WIRE_E_FULL, "2 trainers are connected");
	raw_bye(&back);
	raw_bye(&r[0]);
	bed_stop(&bed);
}
END_TEST

START_TEST(a_live_rank_is_held)
{
	struct srv_options opt = waiting(3, 300000);
	struct raw r[2], other;
	struct bed bed;

	opt.mode = (enum srv_mode)(1 + _i);
	opt.staleness = opt.mode == SRV_SSP;
	bed_start(&bed, &opt);
	raw_join(&r[0], bed.uri, 0);
	raw_join(&r[1], bed.uri, 1);
	raw_connect(&other, bed.uri, 0);
	raw_hello(&other, 1);
	RAW_ENDS(&other, WIRE_E_RANK, "rank 1", "alive");
	/* Another rank's session is no key to it. */
	raw_connect(&other, bed.uri, 0);
	raw_hello_again(&other, 1, r[0].welcome.session);
	RAW_ENDS(&other, WIRE_E_RANK, "rank 1", "alive");
	raw_close(&r[0]);
	raw_close(&r[1]);
	bed_stop(&bed);
}
END_TEST

START_TEST(any_rank_is_first_one_that_nobody_is_waited_for_with)
{
	struct srv_options opt = waiting(3, 300000);
	struct raw r[3], other[3];
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 3, bed.uri);
	raw_bye(&r[2]);
	dies(&r[0], &bed, 1);
	raw_connect(&other[0], bed.uri, 0);
	raw_hello(&other[0], -1);
	must(raw_expect(&other[0], WIRE_WELCOME).welcome.rank == 2, "it is not the free one");
	raw_connect(&other[1], bed.uri, 0);
	raw_hello(&other[1], -1);
	must(raw_expect(&other[1], WIRE_WELCOME).welcome.rank == 0, "there is no other");
	raw_connect(&other[2], bed.uri, 0);
	raw_hello(&other[2], -1);
	RAW_ENDS(&other[2], WIRE_E_FULL, "3 trainers");
	raw_close(&other[0]);
	raw_close(&other[1]);
	raw_close(&r[1]);
	bed_stop(&bed);
}
END_TEST

/* Its own trainer is in the talk when its time is over: it was told that it has its place. */
START_TEST(on_its_way_it_is_not_given_up)
{
	struct srv_options opt = waiting(2, SOON_MS);
	struct raw r[2], back;
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	raw_barrier(&r[0], 1);
	dies(&r[1], &bed, 1);
	raw_connect(&back, bed.uri, 0);
	raw_hello_again(&back, 1, r[1].welcome.session);
	must(raw_expect(&back, WIRE_WELCOME).welcome.resumed, "not resumed");
	nap_us(3 * SOON_MS * 1000);
	must(bed_stats(&bed).given_up == 0, "given up");
	still_waits(&r[0], 1);
	raw_close(&back);
	ends(&r[0], 1); /* now it is */
	must(bed_stats(&bed).given_up == 1, "given up");
	raw_bye(&r[0]);
	bed_stop(&bed);
}
END_TEST

/* ---- what is sent twice ------------------------------------------------------------------------ */

START_TEST(a_gradient_that_is_kept_is_not_taken_again)
{
	struct srv_options opt = waiting(2, 300000);
	struct raw r[2], back;
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	push_a(&r[1], 1, 2, 4);
	nap_us(20000);
	dies(&r[1], &bed, 1);
	raw_join(&back, bed.uri, 1); /* with no token */
	must(!back.welcome.resumed, "resumed");
	must(raw_kept(&back, 1) == 1 && raw_kept(&back, 0) == 0, "kept words");
	raw_wait_start(&back);
	push_a(&back, 1, 2, 4);
	RAW_ENDS(&back, WIRE_E_PROTOCOL, "block 1", "second gradient in step 1");
	raw_close(&r[0]);
	bed_stop(&bed);
}
END_TEST

static void push_row(struct raw *r)
{
	struct layout_push_head head = {.rows = 1};
	int64_t *ids = tp_arena_base(r->source);

	memset(ids, 0, 64);
	raw_head(r, 0, 0, &head);
	raw_write(r, r->place[0].slots_off, layout_slot_bytes(1, 4 * sizeof(float)),
		  imm_block(IMM_GRAD, r->place[0].first_block, 0, false));
}

START_TEST(rows_that_are_kept_are_not_taken_again)
{
	static const struct wire_param table = {
	    .name = "t", .ndim = 2, .dim = {8, 4}, .rule = "sgd", .n_settings = 1,
	    .setting = {{"lr", 1}}, .init = WIRE_INIT_CONSTANT, .storage = WIRE_TABLE,
	    .slot_rows = 2, .push_rows = 4, .pull_rows = 8};
	struct srv_options opt = waiting(2, 300000);
	struct raw r[2], back;
	struct bed bed;

	bed_start(&bed, &opt);
	for (int i = 0; i < 2; i++)
		raw_join_with(&r[i], bed.uri, i, &table, 1);
	for (int i = 0; i < 2; i++)
		raw_wait_start(&r[i]);
	push_row(&r[1]);
	raw_wait_credit(&r[1], 0, 1);
	dies(&r[1], &bed, 1);
	raw_join_with(&back, bed.uri, 1, &table, 1);
	must(raw_kept(&back, 0) == 1, "kept word");
	raw_wait_start(&back);
	push_row(&back);
	RAW_ENDS(&back, WIRE_E_PROTOCOL, "table \"t\"", "second push in step 1");
	raw_close(&r[0]);
	bed_stop(&bed);
}
END_TEST

/* Part of a whole gradient is worth nothing; another comes, its last block first. */
START_TEST(part_of_a_whole_gradient_gives_way)
{
	struct srv_options opt = waiting(2, 300000);
	struct wire_param p = raw_lines[0];
	struct raw r[2], back;
	struct bed bed;
	float w[RAW_A_ELEMS];
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_trainer *t;
	gs_param *a;

	opt.workers = (uint32_t)_i % 2;
	p.setting[p.n_settings++] = (struct wire_setting){"clip_norm", 1e9};
	bed_start(&bed, &opt);
	for (int i = 0; i < 2; i++)
		raw_join_with(&r[i], bed.uri, i, &p, 1);
	for (int i = 0; i < 2; i++)
		raw_wait_start(&r[i]);
	push_a(&r[0], 0, 4, 2);
	push_a(&r[1], 0, 3, 100);
	nap_us(20000);
	dies(&r[1], &bed, 1);
	raw_join_with(&back, bed.uri, 1, &p, 1);
	for (uint32_t b = 0; b < 4; b++)
		must(raw_kept(&back, b) == 0, "kept word of block %u", b);
	raw_wait_start(&back);
	if (_i >= 2)
		push_a(&back, 0, 4, 6);
	for (uint32_t b = 4; _i < 2 && b--;)
		push_a(&back, b, b + 1, 6);
	raw_barrier(&back, 1);
	raw_barrier(&r[0], 1);
	ends(&r[0], 1);
	ends(&back, 1);
	raw_bye(&back);
	/* Nothing of it is left in the next step. */
	push_a(&r[0], 0, 4, 2);
	raw_barrier(&r[0], 2);
	ends(&r[0], 2);
	raw_bye(&r[0]);
	t = connect_as(bed.uri, 0);
	d.name = "a";
	d.ndim = 1;
	d.shape[0] = RAW_A_ELEMS;
	gs_setting(&d, "lr", 1);
	gs_setting(&d, "clip_norm", 1e9);
	ok(gs_declare(t, &d, &a));
	ok(gs_start(t));
	ok(gs_pull(t, a, GS_ORDERED, w));
	for (int i = 0; i < RAW_A_ELEMS; i++)
		must(w[i] == -6, "element %d is %g", i, (double)w[i]);
	leave(t);
	bed_stop(&bed);
}
END_TEST

/* One that came back and leaves with a bye leaves what its lives had delivered. */
START_TEST(bye_after_a_return)
{
	struct srv_options opt = waiting(1, 300000);
	struct raw r, back;
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(&r, 1, bed.uri);
	push_a(&r, 0, 1, 7);
	nap_us(20000);
	dies(&r, &bed, 1);
	resume(&back, bed.uri, 0, &r);
	raw_wait_start(&back);
	raw_bye(&back);
	bed_wait_step(&bed, 1);
	/* With the bye its place and its words are gone. */
	raw_connect(&r, bed.uri, 0);
	raw_hello_again(&r, 0, back.welcome.session);
	must(!raw_expect(&r, WIRE_WELCOME).welcome.resumed, "resumed behind a bye");
	raw_close(&r);
	bed_wait_connected(&bed, 0);
	raw_join(&r, bed.uri, 0);
	must(raw_kept(&r, 0) == 0, "kept word behind a bye");
	raw_close(&r);
	sees(bed.uri, (const float[]){-7, 0, 0, 0});
	bed_stop(&bed);
}
END_TEST

/* ---- stop, and stragglers ---------------------------------------------------------------------- */

START_TEST(stop_ends_the_server)
{
	struct srv_options opt = waiting(2, 300000);
	struct raw r[2];
	struct bed bed;

	opt.on_loss = SRV_LOSS_STOP;
	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	raw_barrier(&r[0], 1);
	dies(&r[1], &bed, 1);
	RAW_ENDS(&r[0], WIRE_E_SHUTDOWN, "stopping");
	BED_FAILS(&bed, ECONNRESET, "trainer 1", "step 1", "barrier is missing");
}
END_TEST

static struct srv_options straggling(enum srv_straggler policy)
{
	struct srv_options opt = waiting(2, 300000);

	opt.straggler_ms = SOON_MS;
	opt.on_straggler = policy;
	return opt;
}

struct told {
	struct bed *bed;
	uint64_t n;
};

static bool was_told(void *arg)
{
	struct told *t = arg;

	return bed_stats(t->bed).stragglers >= t->n;
}

static void wait_told(struct bed *bed, uint64_t n)
{
	struct told t = {bed, n};

	wait_until(was_told, &t, "a straggler");
}

START_TEST(a_straggler_is_told_of)
{
	struct srv_options opt = straggling(SRV_STRAGGLER_WAIT);
	struct raw r[2];
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	nap_us(2 * SOON_MS * 1000);
	must(bed_stats(&bed).stragglers == 0, "with no barrier there is no straggler");
	for (uint64_t step = 1; step <= 2; step++) {
		push_a(&r[1], 0, 2, 1);
		raw_barrier(&r[0], step);
		wait_told(&bed, step);
		nap_us(2 * SOON_MS * 1000);
		must(bed_stats(&bed).stragglers == step, "told of twice");
		still_waits(&r[0], step);
		raw_barrier(&r[1], step);
		ends(&r[0], step);
		ends(&r[1], step);
	}
	raw_bye(&r[0]);
	raw_bye(&r[1]);
	bed_stop(&bed);
}
END_TEST

/* It is not waited for either, though losses are. */
START_TEST(a_straggler_is_dropped)
{
	struct srv_options opt = straggling(SRV_STRAGGLER_DROP);
	struct srv_stats s;
	struct raw r[2];
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	push_a(&r[0], 0, 4, 2);
	push_a(&r[1], 0, 2, 4);
	raw_barrier(&r[0], 1);
	RAW_ENDS(&r[1], WIRE_E_SHUTDOWN, "straggler", "step 1");
	ends(&r[0], 1);
	wait_until(is_given_up, &bed, "giving up");
	s = bed_stats(&bed);
	must(s.stragglers == 1 && s.lost == 1 && s.given_up == 1 && s.violations == 0, "stats");
	raw_bye(&r[0]);
	sees(bed.uri, (const float[]){-3, -3, -2, -2});
	bed_stop(&bed);
}
END_TEST

START_TEST(a_straggler_stops_the_server)
{
	struct srv_options opt = straggling(SRV_STRAGGLER_STOP);
	struct raw r[2];
	struct bed bed;

	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	push_a(&r[1], 0, 4, 4);
	raw_barrier(&r[0], 1);
	RAW_ENDS(&r[0], WIRE_E_SHUTDOWN, "stopping");
	BED_FAILS(&bed, ETIME, "trainer 1", "straggler", "step 1", "no gradient yet of \"b\"");
	raw_free(&r[1]);
}
END_TEST

/* One that was lost and comes back late in the step has its time from then on. */
START_TEST(who_comes_back_is_no_straggler_yet)
{
	struct srv_options opt = straggling(SRV_STRAGGLER_DROP);
	struct raw r[2], back;
	struct bed bed;

	opt.straggler_ms = scaled(1000, 4000);
	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	raw_barrier(&r[0], 1);
	dies(&r[1], &bed, 1);
	nap_us(opt.straggler_ms * 1500);
	must(bed_stats(&bed).stragglers == 0, "a lost one is no straggler");
	resume(&back, bed.uri, 1, &r[1]);
	raw_wait_start(&back);
	still_waits(&r[0], 1);
	nap_us(150000); /* a tick or two */
	must(bed_stats(&bed).stragglers == 0, "dropped as it came");
	raw_barrier(&back, 1);
	ends(&back, 1);
	ends(&r[0], 1);
	raw_bye(&r[0]);
	raw_bye(&back);
	bed_stop(&bed);
}
END_TEST

/* ---- the end, and keepalive -------------------------------------------------------------------- */

/* It does not exit while one is waited for. */
START_TEST(exit_when_done_waits_for_the_lost)
{
	struct srv_options opt = waiting(1, 300000);
	struct raw r, back;
	struct bed bed;

	opt.exit_when_done = true;
	bed_start(&bed, &opt);
	join_all(&r, 1, bed.uri);
	dies(&r, &bed, 1);
	bed_wait_connected(&bed, 0);
	nap_us(250000);
	resume(&back, bed.uri, 0, &r);
	raw_wait_start(&back);
	raw_bye(&back);
	bed_done(&bed);
}
END_TEST

/* The server is stopped while its step waits for a lost one, and has gradients of dead sessions: all of
 * them are buried, with what they held. */
START_TEST(a_stop_waits_for_nobody)
{
	struct srv_options opt = waiting(2, 300000);
	uint64_t one, two;
	struct raw r[2], back;
	struct bed bed;

	opt.on_loss = _i == 3 ? SRV_LOSS_STOP : SRV_LOSS_WAIT;
	bed_start(&bed, &opt);
	raw_join(&r[0], bed.uri, 0);
	one = bed_stats(&bed).memory;
	raw_join(&r[1], bed.uri, 1);
	two = bed_stats(&bed).memory;
	raw_wait_start(&r[0]);
	raw_wait_start(&r[1]);
	push_a(&r[0], 0, 4, 2);
	push_a(&r[1], 1, 3, 4);
	nap_us(20000);
	if (_i < 3)
		dies(&r[1], &bed, 1);
	if (_i == 1) { /* it is on its way back */
		raw_connect(&back, bed.uri, 0);
		raw_hello_again(&back, 1, r[1].welcome.session);
		must(raw_expect(&back, WIRE_WELCOME).welcome.resumed, "not resumed");
	} else if (_i == 2) { /* it came back, delivered more, and was lost again */
		resume(&back, bed.uri, 1, &r[1]);
		raw_wait_start(&back);
		push_a(&back, 0, 1, 4);
		nap_us(20000);
		dies(&back, &bed, 2);
	}
	uint64_t begin = clock_ns();

	srv_stop(bed.srv);
	pthread_join(bed.thread, NULL);
	must(bed.rc == 0, "srv_run: %d", bed.rc);
	must(clock_ns() - begin < scaled(1500, 6000) * NS_PER_MS, "it took %llu ms",
	     (unsigned long long)((clock_ns() - begin) / NS_PER_MS));
	must(bed_stats(&bed).memory == one - (two - one), "sessions are left: %llu bytes, not %llu",
	     (unsigned long long)bed_stats(&bed).memory, (unsigned long long)(one - (two - one)));
	srv_destroy(bed.srv);
	raw_free(&r[0]);
	if (_i == 3)
		raw_free(&r[1]);
	if (_i == 1)
		raw_free(&back);
}
END_TEST

/* One that is lost before it trained has not trained. */
START_TEST(exit_when_done_counts_trainers)
{
	struct srv_options opt = waiting(2, 300000);
	struct raw r[2];
	struct bed bed;

	opt.exit_when_done = true;
	bed_start(&bed, &opt);
	raw_join(&r[0], bed.uri, 0);
	dies(&r[0], &bed, 1);
	join_all(r, 2, bed.uri);
	raw_bye(&r[1]);
	raw_bye(&r[0]);
	bed_done(&bed);
}
END_TEST

/* Whoever is connected and has said nothing may not hold it up. */
START_TEST(exit_when_done_waits_for_no_stranger)
{
	struct srv_options opt = waiting(1, 300000);
	struct raw r, stranger;
	struct bed bed;

	opt.mode = _i ? SRV_ASYNC : SRV_SYNC;
	opt.exit_when_done = true;
	opt.talk_ms = 600000;
	bed_start(&bed, &opt);
	raw_connect(&stranger, bed.uri, 0);
	bed_wait_connected(&bed, 1);
	raw_join(&r, bed.uri, 0);
	raw_wait_start(&r);
	raw_bye(&r);
	pthread_join(bed.thread, NULL);
	must(bed.rc == 0, "srv_run: %d", bed.rc);
	RAW_ENDS(&stranger, WIRE_E_SHUTDOWN, "stopping");
	srv_destroy(bed.srv);
}
END_TEST

/* In async mode the same rank that comes twice is one trainer, not two. */
START_TEST(exit_when_done_counts_ranks)
{
	struct srv_options opt = waiting(2, 300000);
	struct raw r;
	struct bed bed;

	opt.mode = SRV_ASYNC;
	opt.exit_when_done = true;
	bed_start(&bed, &opt);
	raw_join(&r, bed.uri, 0);
	raw_wait_start(&r);
	dies(&r, &bed, 1);
	raw_join(&r, bed.uri, 0);
	raw_wait_start(&r);
	raw_bye(&r);
	bed_wait_connected(&bed, 0);
	nap_us(250000); /* a tick or two */
	raw_join(&r, bed.uri, 1);
	raw_wait_start(&r);
	raw_bye(&r);
	bed_done(&bed);
}
END_TEST

/* A trainer that has nothing to do is not silent: its machine answers. */
START_TEST(idle_is_not_silent)
{
	struct srv_options opt = waiting(2, 300000);
	struct raw r[2];
	struct bed bed;

	opt.mode = _i ? SRV_ASYNC : SRV_SYNC;
	opt.keepalive_ms = SOON_MS;
	bed_start(&bed, &opt);
	join_all(r, 2, bed.uri);
	for (int i = 0; i < 100; i++) {
		raw_poll(&r[0]); /* the other does not even look */
		nap_us(10 * SOON_MS);
	}
	nap_us(3 * SOON_MS * 1000);
	must(bed_stats(&bed).silent == 0 && bed_stats(&bed).connected == 2, "silent");
	raw_bye(&r[0]);
	raw_bye(&r[1]);
	bed_stop(&bed);
}
END_TEST

TCase *policy_case(void)
{
	TCase *t = e2e_case("policy");

	tcase_add_test(t, continue_goes_on_at_once);
	tcase_add_test(t, wait_then_give_up);
	tcase_add_test(t, the_only_one_is_given_up);
	tcase_add_loop_test(t, two_lost_at_once, 0, 2);
	tcase_add_loop_test(t, lost_behind_its_barrier, 0, 2);
	tcase_add_test(t, lost_before_the_first_step);
	tcase_add_loop_test(t, lost_while_it_gave_initial_weights, 0, 2);
	tcase_add_test(t, dies_over_and_over_in_one_step);
	tcase_add_test(t, takeover_by_token);
	tcase_add_loop_test(t, welcomes_get_lost, 0, 8);
	tcase_add_loop_test(t, a_live_rank_is_held, 0, 3);
	tcase_add_test(t, any_rank_is_first_one_that_nobody_is_waited_for_with);
	tcase_add_test(t, on_its_way_it_is_not_given_up);
	tcase_add_test(t, a_gradient_that_is_kept_is_not_taken_again);
	tcase_add_test(t, rows_that_are_kept_are_not_taken_again);
	tcase_add_loop_test(t, part_of_a_whole_gradient_gives_way, 0, 4);
	tcase_add_test(t, bye_after_a_return);
	tcase_add_test(t, stop_ends_the_server);
	tcase_add_test(t, a_straggler_is_told_of);
	tcase_add_test(t, a_straggler_is_dropped);
	tcase_add_test(t, a_straggler_stops_the_server);
	tcase_add_test(t, who_comes_back_is_no_straggler_yet);
	tcase_add_loop_test(t, a_stop_waits_for_nobody, 0, 4);
	tcase_add_test(t, exit_when_done_waits_for_the_lost);
	tcase_add_test(t, exit_when_done_counts_trainers);
	tcase_add_loop_test(t, exit_when_done_waits_for_no_stranger, 0, 2);
	tcase_add_test(t, exit_when_done_counts_ranks);
	tcase_add_loop_test(t, idle_is_not_silent, 0, 2);
	return t;
}

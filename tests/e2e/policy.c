/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows a loss: the step goes on, or waits, and for how long. Bare trainers, one thread,
 * each case by itself.
 */
#include "cases.h"
#include "losses.h"

START_TEST(continue_goes_on_at_once)
{
	struct srv_options opt = loss_options(2, 300000);
	struct srv_stats s;
	struct raw r[2];
	struct bed bed;

	opt.on_loss = SRV_LOSS_CONTINUE;
	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	loss_push_all(&r[0], 1);
	raw_barrier(&r[0], 1);
	loss_of(&r[1], &bed, 1);
	loss_ends(&r[0], 1);
	wait_until(loss_is_given_up, &bed, "giving up");
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
	struct srv_options opt = loss_options(2, LOSS_LATER_MS);
	struct raw r[2];
	uint64_t begin;
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	loss_push(&r[0], 0, 4, 2);
	loss_push(&r[1], 1, 3, 4); /* two blocks, and dies */
	raw_barrier(&r[0], 1);
	nap_us(20000);
	begin = clock_ns();
	loss_of(&r[1], &bed, 1);
	loss_still_waits(&r[0], 1);
	must(bed_stats(&bed).given_up == 0, "given up at once");
	loss_ends(&r[0], 1);
	must(clock_ns() - begin >= LOSS_LATER_MS * NS_PER_MS, "given up too early");
	must(bed_stats(&bed).given_up == 1, "given up");
	/* The next is made without it, at once. */
	loss_push(&r[0], 0, 4, 2);
	raw_barrier(&r[0], 2);
	loss_ends(&r[0], 2);
	raw_bye(&r[0]);
	loss_sees(bed.uri, (const float[]){-4, -5, -5, -4});
	bed_stop(&bed);
}
END_TEST

/* The last one there is lost, with a gradient in the step: given up, the step ends all the same. */
START_TEST(the_only_one_is_given_up)
{
	struct srv_options opt = loss_options(1, LOSS_SOON_MS);
	struct bed bed;
	struct raw r;

	bed_start(&bed, &opt);
	loss_join(&r, 1, bed.uri);
	loss_push(&r, 0, 2, 3);
	nap_us(20000);
	loss_of(&r, &bed, 1);
	bed_wait_step(&bed, 1);
	loss_sees(bed.uri, (const float[]){-3, -3, 0, 0});
	bed_stop(&bed);
}
END_TEST

static void two_are_lost(bool given_up)
{
	struct srv_options opt = loss_options(3, given_up ? LOSS_SOON_MS : 300000);
	struct raw r[3], back[2];
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 3, bed.uri);
	loss_push_all(&r[0], 3);
	loss_push(&r[1], 0, 2, 6);
	raw_barrier(&r[0], 1);
	nap_us(20000);
	loss_of(&r[1], &bed, 1);
	loss_of(&r[2], &bed, 2);
	if (given_up) {
		loss_ends(&r[0], 1);
		must(bed_stats(&bed).given_up == 2, "given up");
	} else {
		loss_still_waits(&r[0], 1);
		loss_resume(&back[1], bed.uri, 2, &r[2]);
		raw_wait_start(&back[1]);
		raw_barrier(&back[1], 1); /* it pushes nothing */
		loss_still_waits(&r[0], 1);
		loss_resume(&back[0], bed.uri, 1, &r[1]);
		raw_wait_start(&back[0]);
		must(back[0].step == 1 && back[1].step == 1, "the step that is being made");
		for (uint32_t b = 0; b < 4; b++)
			must(raw_kept(&back[0], b) == (b < 2), "kept word of block %u", b);
		raw_barrier(&back[0], 1);
		for (int i = 0; i < 2; i++) {
			loss_ends(&back[i], 1);
			raw_bye(&back[i]);
		}
		loss_ends(&r[0], 1);
		must(bed_stats(&bed).rejoined == 2, "rejoined");
	}
	raw_bye(&r[0]);
	loss_sees(bed.uri, (const float[]){-4.5f, -4.5f, -3, -3});
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
	struct srv_options opt = loss_options(2, 300000);
	struct raw r[2], back;
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	loss_push_all(&r[1], 3);
	raw_barrier(&r[1], 1);
	nap_us(20000);
	loss_of(&r[1], &bed, 1);
	if (_i) { /* back while the step is being made: it starts with the next */
		loss_resume(&back, bed.uri, 1, &r[1]);
		for (int i = 0; i < 20; i++, nap_us(1000))
			raw_poll(&back);
		must(back.first == back.last, "started in a step that it had ended");
	}
	loss_push_all(&r[0], 1);
	raw_barrier(&r[0], 1);
	loss_ends(&r[0], 1);
	loss_push_all(&r[0], 1);
	raw_barrier(&r[0], 2);
	loss_still_waits(&r[0], 2);
	if (!_i)
		loss_resume(&back, bed.uri, 1, &r[1]);
	raw_wait_start(&back);
	must(back.step == 2, "step %llu", (unsigned long long)back.step);
	loss_push_all(&back, 3);
	raw_barrier(&back, 2);
	loss_ends(&r[0], 2);
	loss_ends(&back, 2);
	raw_bye(&r[0]);
	raw_bye(&back);
	loss_sees(bed.uri, (const float[]){-4, -4, -4, -4});
	bed_stop(&bed);
}
END_TEST

/* Nobody waits for one that was in no step. */
START_TEST(lost_before_the_first_step)
{
	struct srv_options opt = loss_options(2, 300000);
	struct raw r[2];
	struct bed bed;

	bed_start(&bed, &opt);
	raw_join(&r[0], bed.uri, 0);
	loss_of(&r[0], &bed, 1);
	must(bed_stats(&bed).given_up == 0, "given up, and it had no place");
	loss_join(r, 2, bed.uri);
	for (int i = 0; i < 2; i++) {
		must(r[i].step == 1, "step");
		raw_barrier(&r[i], 1);
	}
	loss_ends(&r[0], 1);
	raw_bye(&r[0]);
	raw_bye(&r[1]);
	bed_stop(&bed);
}
END_TEST

/* Who gives the initial weights is lost half way: another is asked, and its rank is free. */
START_TEST(lost_while_it_gave_initial_weights)
{
	struct srv_options opt = loss_options(2, 300000);
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

/* Each life of it delivers a block and is lost: the memory of each stays until the step is over, as
 * far as the server may have so much; then it is refused. One that delivers nothing is buried at
 * once. */
START_TEST(dies_over_and_over_in_one_step)
{
	enum { MIB = 1 << 20, BLOCK = 256 << 10, MOST = 5 };
	struct wire_param p = raw_lines[0];
	struct srv_options opt = loss_options(2, scaled(3000, 12000));
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
	loss_of(&r[1], &bed, ++lost);
	for (int i = 0; i < 8; i++) { /* they deliver nothing */
		raw_join_with(&back, bed.uri, 1, &p, 1);
		raw_wait_start(&back);
		loss_of(&back, &bed, ++lost);
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
		loss_of(&back, &bed, ++lost);
		bed_wait_connected(&bed, 1);
		must(bed_stats(&bed).memory == one + lives * (two - one), "after %u lives %llu",
		     lives, (unsigned long long)bed_stats(&bed).memory);
	}
	RAW_ENDS(&back, WIRE_E_MEMORY, "5 sessions", "--max-memory", "step is over");
	/* Its rank is given up, the step ends, and there is room again. */
	loss_ends(&r[0], 1);
	must(bed_stats(&bed).given_up == 1, "given up");
	raw_join_with(&back, bed.uri, 1, &p, 1);
	must(bed_stats(&bed).memory == two, "memory %llu, not %llu",
	     (unsigned long long)bed_stats(&bed).memory, (unsigned long long)two);
	raw_bye(&r[0]);
	raw_close(&back);
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
	return t;
}

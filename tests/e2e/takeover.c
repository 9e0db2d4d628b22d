/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gets the rank of one that was lost, and what of its gradients counts when it is back.
 */
#include "cases.h"
#include "losses.h"

START_TEST(takeover_by_token)
{
	struct srv_options opt = loss_options(2, 300000);
	struct raw r[2], back, thief;
	uint8_t wrong[WIRE_SESSION_LEN] = {1};
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	loss_push(&r[1], 0, 2, 5);
	nap_us(20000);
	raw_connect(&thief, bed.uri, 0);
	raw_hello_again(&thief, 1, wrong);
	raw_expect(&thief, WIRE_ERROR);
	raw_free(&thief);
	loss_resume(&back, bed.uri, 1, &r[1]);
	RAW_ENDS(&r[1], WIRE_E_RANK, "connected anew");
	raw_wait_start(&back);
	must(back.step == 1, "step");
	loss_push(&back, 2, 4, 5);
	raw_barrier(&back, 1);
	raw_barrier(&r[0], 1);
	loss_ends(&r[0], 1);
	loss_ends(&back, 1);
	raw_bye(&r[0]);
	raw_bye(&back);
	must(bed_stats(&bed).violations == 0, "a violation");
	loss_sees(bed.uri, (const float[]){-5, -5, -5, -5});
	bed_stop(&bed);
}
END_TEST

/* Welcomes that never reach it: what it shows is the token of the last one that did, each time, be
 * it of the session that it lost or of one that got no further. The server notices the ends of
 * those connections, or it does not. */
START_TEST(welcomes_get_lost)
{
	struct srv_options opt = loss_options(2, 300000);
	struct raw r[2], unheard[3], back, *heard = &r[1];
	bool noticed = _i & 1;
	struct bed bed;

	opt.mode = _i & 2 ? SRV_ASYNC : SRV_SYNC;
	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	loss_push(&r[1], 0, 2, 5);
	nap_us(20000);
	loss_of(&r[1], &bed, 1);
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
	loss_resume(&back, bed.uri, 1, heard);
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
	struct srv_options opt = loss_options(3, 300000);
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
	struct srv_options opt = loss_options(3, 300000);
	struct raw r[3], other[3];
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 3, bed.uri);
	raw_bye(&r[2]);
	loss_of(&r[0], &bed, 1);
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
	struct srv_options opt = loss_options(2, LOSS_SOON_MS);
	struct raw r[2], back;
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	raw_barrier(&r[0], 1);
	loss_of(&r[1], &bed, 1);
	raw_connect(&back, bed.uri, 0);
	raw_hello_again(&back, 1, r[1].welcome.session);
	must(raw_expect(&back, WIRE_WELCOME).welcome.resumed, "not resumed");
	nap_us(3 * LOSS_SOON_MS * 1000);
	must(bed_stats(&bed).given_up == 0, "given up");
	loss_still_waits(&r[0], 1);
	raw_close(&back);
	loss_ends(&r[0], 1); /* now it is */
	must(bed_stats(&bed).given_up == 1, "given up");
	raw_bye(&r[0]);
	bed_stop(&bed);
}
END_TEST

/* ---- what is sent twice ------------------------------------------------------------------------
 */

START_TEST(a_gradient_that_is_kept_is_not_taken_again)
{
	struct srv_options opt = loss_options(2, 300000);
	struct raw r[2], back;
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	loss_push(&r[1], 1, 2, 4);
	nap_us(20000);
	loss_of(&r[1], &bed, 1);
	raw_join(&back, bed.uri, 1); /* with no token */
	must(!back.welcome.resumed, "resumed");
	must(raw_kept(&back, 1) == 1 && raw_kept(&back, 0) == 0, "kept words");
	raw_wait_start(&back);
	loss_push(&back, 1, 2, 4);
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
	static const struct wire_param table = {.name = "t",
						.ndim = 2,
						.dim = {8, 4},
						.rule = "sgd",
						.n_settings = 1,
						.setting = {{"lr", 1}},
						.init = WIRE_INIT_CONSTANT,
						.storage = WIRE_TABLE,
						.slot_rows = 2,
						.push_rows = 4,
						.pull_rows = 8};
	struct srv_options opt = loss_options(2, 300000);
	struct raw r[2], back;
	struct bed bed;

	bed_start(&bed, &opt);
	for (int i = 0; i < 2; i++)
		raw_join_with(&r[i], bed.uri, i, &table, 1);
	for (int i = 0; i < 2; i++)
		raw_wait_start(&r[i]);
	push_row(&r[1]);
	raw_wait_credit(&r[1], 0, 1);
	loss_of(&r[1], &bed, 1);
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
	struct srv_options opt = loss_options(2, 300000);
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
	loss_push(&r[0], 0, 4, 2);
	loss_push(&r[1], 0, 3, 100);
	nap_us(20000);
	loss_of(&r[1], &bed, 1);
	raw_join_with(&back, bed.uri, 1, &p, 1);
	for (uint32_t b = 0; b < 4; b++)
		must(raw_kept(&back, b) == 0, "kept word of block %u", b);
	raw_wait_start(&back);
	if (_i >= 2)
		loss_push(&back, 0, 4, 6);
	for (uint32_t b = 4; _i < 2 && b--;)
		loss_push(&back, b, b + 1, 6);
	raw_barrier(&back, 1);
	raw_barrier(&r[0], 1);
	loss_ends(&r[0], 1);
	loss_ends(&back, 1);
	raw_bye(&back);
	/* Nothing of it is left in the next step. */
	loss_push(&r[0], 0, 4, 2);
	raw_barrier(&r[0], 2);
	loss_ends(&r[0], 2);
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
	struct srv_options opt = loss_options(1, 300000);
	struct raw r, back;
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(&r, 1, bed.uri);
	loss_push(&r, 0, 1, 7);
	nap_us(20000);
	loss_of(&r, &bed, 1);
	loss_resume(&back, bed.uri, 0, &r);
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
	loss_sees(bed.uri, (const float[]){-7, 0, 0, 0});
	bed_stop(&bed);
}
END_TEST

TCase *takeover_case(void)
{
	TCase *t = e2e_case("takeover");

	tcase_add_test(t, takeover_by_token);
	tcase_add_loop_test(t, welcomes_get_lost, 0, 8);
	tcase_add_loop_test(t, a_live_rank_is_held, 0, 3);
	tcase_add_test(t, any_rank_is_first_one_that_nobody_is_waited_for_with);
	tcase_add_test(t, on_its_way_it_is_not_given_up);
	tcase_add_test(t, a_gradient_that_is_kept_is_not_taken_again);
	tcase_add_test(t, rows_that_are_kept_are_not_taken_again);
	tcase_add_loop_test(t, part_of_a_whole_gradient_gives_way, 0, 4);
	tcase_add_test(t, bye_after_a_return);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Every optimizer in sync mode: the weights are those of one trainer that pushes the merged
 * gradient, bit for bit, whoever and whatever makes the step.
 */
#include "cases.h"
#include "play.h"

/* All dense ones as they are, of an odd shape each. */
static void add_plain(struct play *play)
{
	const char *name;

	for (unsigned i = 0; (name = kern_opt_at(i)); i++) {
		struct kern_setting lr = {"lr", 1};
		struct kern_opt opt;

		ok(kern_opt_parse(name, &lr, 1, &opt));
		if (kern_opt_dense(&opt))
			play_add(play, name, name, 1 + 61 * i, 7);
	}
}

/* With what else they take. */
static void add_varied(struct play *play)
{
	struct gs_param_desc *d = play_add(play, "sgd decay", "sgd", 3, 257);

	gs_setting(d, "weight_decay", 0.1);
	d = play_add(play, "sgd shrunk", "sgd", 771, 1);
	gs_setting(d, "weight_decay", 0.1);
	gs_setting(d, "decoupled", 1);
	d = play_add(play, "momentum damped", "momentum", 9, 83);
	gs_setting(d, "dampening", 0.25);
	gs_setting(d, "l1", 0.01);
	d = play_add(play, "rmsprop all", "rmsprop", 5, 201);
	gs_setting(d, "momentum", 0.5);
	gs_setting(d, "centered", 1);
	d = play_add(play, "adam max", "adam", 1, 1031);
	gs_setting(d, "amsgrad", 1);
	gs_setting(d, "clip_value", 0.25);
	d = play_add(play, "lars wide", "lars", 2, 1500);
	gs_setting(d, "trust", 0.1);
	d = play_add(play, "lamb clipped", "lamb", 2, 1500);
	gs_setting(d, "clip_norm", 2);
	d = play_add(play, "adamw global", "adamw", 40, 37);
	gs_setting(d, "clip_global_norm", 3);
}

static const uint32_t ranks_of[] = {1, 2, 4}, workers_of[] = {0, 1, 2};

START_TEST(all_of_them)
{
	uint32_t ranks = ranks_of[_i / 3];
	struct play *play;

	if (left_out(_i, 4))
		return;
	play = play_create(5, ranks, scaled(6, 5));
	add_plain(play);
	add_varied(play);
	play_foresee(play);
	for (uint32_t k = 0; k < scaled(3, 1); k++) {
		struct srv_options opt = bed_options(ranks, SRV_SYNC);

		opt.workers = workers_of[_i % 3];
		opt.pollers = 1 + k % 2;
		opt.slots = 1 + k;
		opt.block_kib = k == 0 ? 1 : k == 1 ? 3 : 256;
		play_run(play, &opt);
	}
	play_free(play);
}
END_TEST

TCase *optimizers_case(void)
{
	TCase *t = e2e_case("optimizers");

	tcase_add_loop_test(t, all_of_them, 0, 9);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Number formats: 16-bit gradients take half the bytes, initial weights come over whole all the
 * same, and trainers see the server's float32 weights rounded.
 */
#include "cases.h"
#include "play.h"
#include "raw.h"

/* Any finite float: every bit counts. */
static float *any_floats(uint64_t seed, uint64_t n)
{
	float *x = malloc(n * sizeof(float));

	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits = (uint32_t)(mix64(seed + i) >> 32);

		if ((bits >> 23 & 0xff) > 0xf0)
			bits &= ~(1u << 30);
		memcpy(&x[i], &bits, sizeof(bits));
	}
	return x;
}

static const char *const names[3][3] = {{"f32 f32", "f32 bf16", "f32 f16"},
					{"bf16 f32", "bf16 bf16", "bf16 f16"},
					{"f16 f32", "f16 bf16", "f16 f16"}};
static const char *const more[3][3] = {{"f32 f32 more", "f32 bf16 more", "f32 f16 more"},
				       {"bf16 f32 more", "bf16 bf16 more", "bf16 f16 more"},
				       {"f16 f32 more", "f16 bf16 more", "f16 f16 more"}};

/* Rows of 257: with blocks of 1 KiB every second one begins at an odd element. */
static void add_pairs(struct play *play, float *const *data)
{
	for (int g = 0; g < 3; g++)
		for (int w = 0; w < 3; w++) {
			struct gs_param_desc *d = play_add(play, names[g][w], "momentum", 3, 257);

			d->grad_dtype = (enum gs_dtype)g;
			d->weight_dtype = (enum gs_dtype)w;
			d->init = GS_INIT_DATA;
			d->init_data = data[g];
			d = play_add(play, more[g][w], w == 1 ? "lamb" : "adam", w == 2 ? 1 : 1031,
				     1);
			d->grad_dtype = (enum gs_dtype)g;
			d->weight_dtype = (enum gs_dtype)w;
			if (w == 0)
				gs_setting(d, "clip_norm", 0.5);
		}
}

START_TEST(every_pair)
{
	struct srv_options opt = bed_options(3, SRV_SYNC);
	struct play *play = play_create(31, 3, 5);
	float *data[3];

	if (left_out(_i, 3))
		return;
	for (int g = 0; g < 3; g++)
		data[g] = any_floats(1000 * (uint64_t)g, 3 * 257);
	add_pairs(play, data);
	play_foresee(play);
	opt.workers = (uint32_t)_i % 3;
	opt.block_kib = _i < 3 ? 1 : 256;
	opt.slots = 1 + (uint32_t)_i % 2; /* with one, initial weights wait for their slot */
	play_run(play, &opt);
	play_free(play);
	for (int g = 0; g < 3; g++)
		free(data[g]);
}
END_TEST

START_TEST(half_the_bytes)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct wire_param p[2] = {raw_lines[0], raw_lines[0]};
	uint64_t elems = RAW_A_ELEMS;
	struct bed bed;
	struct raw r;

	snprintf(p[1].name, sizeof(p[1].name), "b");
	p[_i].grad_type = WIRE_BF16;
	p[_i].weight_type = WIRE_F16;
	bed_start(&bed, &opt);
	raw_join_with(&r, bed.uri, 0, p, 2);
	/* The two are a pack. */
	uint64_t size[2] = {layout_align((_i ? 4 : 2) * elems, LAYOUT_ALIGN),
			    layout_align((_i ? 2 : 4) * elems, LAYOUT_ALIGN)};
	must(r.place[0].slots_stride == size[0] + size[1], "of both");
	must(r.place[1].slots_off - r.place[0].slots_off == size[0], "of the first");
	if (_i == 0) {
		must(r.place[1].weights_off - r.place[0].weights_off ==
			 layout_align(2 * elems, LAYOUT_ALIGN),
		     "weights");
		must(r.place[1].landing_off - r.place[0].landing_off ==
			 layout_align(2 * elems, LAYOUT_ALIGN),
		     "landing");
	}
	raw_wait_start(&r);
	/* As long as if it were of floats. */
	raw_write(&r, r.place[_i].slots_off, 4 * elems,
		  imm_block(IMM_GRAD, r.place[_i].first_block, 0, false));
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "3100 bytes", "1550");
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
}
END_TEST

static bool is_alone(void *arg)
{
	return bed_stats(arg).connected == 1;
}

/* The first gives the upper halves of all blocks, and the lower ones of some; then another is
 * asked, and all that counts is its. */
START_TEST(who_gives_halves_dies)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct wire_param p = raw_lines[0];
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	float *data = any_floats(77, RAW_A_ELEMS), w[RAW_A_ELEMS];
	struct bed bed;
	struct raw r;
	gs_trainer *t;
	gs_param *a;

	opt.block_kib = 1;
	p.init = WIRE_INIT_TRAINER;
	p.grad_type = WIRE_F16;
	bed_start(&bed, &opt);
	raw_enter(&r, bed.uri, 0, &p, 1);
	must(raw_expect(&r, WIRE_READY).ready.init, "not asked");
	memset(tp_arena_base(r.source), 0x55, 512);
	for (uint32_t i = 0; i < 4 + (uint32_t)_i; i++)
		raw_write(&r, r.place[0].slots_off + i / 4 * r.place[0].slots_stride + i % 4 * 512,
			  i % 4 == 3 ? 14 : 512, imm_block(IMM_INIT, i % 4, i / 4, false));
	for (uint32_t b = 0; b < 4; b++)
		raw_wait_credit(&r, b, b < (uint32_t)_i ? 2 : 1);
	t = connect_as(bed.uri, 1);
	d.name = "a";
	d.ndim = 1;
	d.shape[0] = RAW_A_ELEMS;
	d.grad_dtype = GS_F16;
	d.init = GS_INIT_DATA;
	d.init_data = data;
	gs_setting(&d, "lr", 1);
	ok(gs_declare(t, &d, &a));
	raw_close(&r);
	wait_until(is_alone, &bed, "the first to be gone");
	ok(gs_start(t));
	ok(gs_pull(t, a, GS_CONSISTENT, w));
	must(memcmp(w, data, sizeof(w)) == 0, "other weights");
	leave(t);
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
	free(data);
}
END_TEST

/* Upper halves alone are no weights. */
START_TEST(half_is_not_done)
{
	struct wire_msg done = {.kind = WIRE_INIT_DONE};
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct wire_param p = raw_lines[1];
	struct bed bed;
	struct raw r;

	p.init = WIRE_INIT_TRAINER;
	p.grad_type = WIRE_BF16;
	bed_start(&bed, &opt);
	raw_enter(&r, bed.uri, 0, &p, 1);
	must(raw_expect(&r, WIRE_READY).ready.init, "not asked");
	raw_write(&r, r.place[0].slots_off, 2 * RAW_B_ELEMS, imm_block(IMM_INIT, 0, 0, false));
	raw_wait_credit(&r, 0, 1);
	raw_send(&r, &done);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "init_done", "1 block");
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
}
END_TEST

TCase *formats_case(void)
{
	TCase *t = e2e_case("formats");

	tcase_add_loop_test(t, every_pair, 0, 6);
	tcase_add_loop_test(t, half_the_bytes, 0, 2);
	tcase_add_loop_test(t, who_gives_halves_dies, 0, 4);
	tcase_add_test(t, half_is_not_done);
	return t;
}

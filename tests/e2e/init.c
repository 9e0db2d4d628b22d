/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial weights: from a trainer, from a seed, a constant; and a trainer that dies giving them.
 */
#include "cases.h"
#include "child.h"
#include "kernels/kern.h"
#include "raw.h"

enum { ELEMS = 3000, TRAINERS = 3 };

struct giver {
	const char *uri;
	int32_t rank;
	float *seen;
	pthread_t thread;
};

static gs_param *declare_data(gs_trainer *t, const char *name, const float *data)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;

	d.name = name;
	d.ndim = 2;
	d.shape[0] = ELEMS / 30;
	d.shape[1] = 30;
	gs_setting(&d, "lr", 1);
	d.init = GS_INIT_DATA;
	d.init_data = data;
	ok(gs_declare(t, &d, &p));
	return p;
}

/* Each gives other data; what all see must be one trainer's, whole. */
static void *give(void *arg)
{
	struct giver *g = arg;
	gs_trainer *t = connect_as(g->uri, g->rank);
	float *data = malloc(ELEMS * sizeof(float));
	uint64_t version;
	gs_param *p;

	for (int i = 0; i < ELEMS; i++)
		data[i] = (float)(i + 10000 * (g->rank + 1));
	p = declare_data(t, "given", data);
	declare_line(t, "beside", 100, 1, 0.5);
	ok(gs_start(t));
	g->seen = malloc(ELEMS * sizeof(float));
	ok(gs_pull(t, p, GS_RELAXED, g->seen));
	ok(gs_block_version(t, p, 0, &version));
	must(version == 0, "initial weights are no update");
	leave(t);
	free(data);
	return NULL;
}

START_TEST(the_first_trainers_data)
{
	struct srv_options opt = bed_options(TRAINERS, _i % 2 ? SRV_SYNC : SRV_ASYNC);
	struct giver g[TRAINERS];
	struct bed bed;

	if (left_out(_i, 2))
		return;
	opt.workers = (uint32_t)_i / 2;
	opt.block_kib = 1;
	bed_start(&bed, &opt);
	for (int i = 0; i < TRAINERS; i++) {
		g[i] = (struct giver){.uri = bed.uri, .rank = i};
		pthread_create(&g[i].thread, NULL, give, &g[i]);
	}
	for (int i = 0; i < TRAINERS; i++)
		pthread_join(g[i].thread, NULL);
	for (int i = 0; i < TRAINERS; i++) {
		for (int e = 0; e < ELEMS; e++)
			must(g[i].seen[e] == g[0].seen[0] + (float)e, "element %d", e);
		must((int)g[i].seen[0] % 10000 == 0 && g[i].seen[0] > 0, "nobody's data");
	}
	for (int i = 0; i < TRAINERS; i++)
		free(g[i].seen);
	bed_stop(&bed);
}
END_TEST

START_TEST(seeded_and_constant)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	static const enum gs_init kinds[] = {GS_INIT_CONSTANT, GS_INIT_UNIFORM, GS_INIT_NORMAL};
	static const enum kern_init kern[] = {KERN_INIT_CONSTANT, KERN_INIT_UNIFORM,
					      KERN_INIT_NORMAL};
	float *w = malloc(ELEMS * sizeof(float)), *want = malloc(ELEMS * sizeof(float));
	gs_param *p[3];
	gs_trainer *t;
	struct bed bed;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	for (int i = 0; i < 3; i++) {
		struct gs_param_desc d = GS_PARAM_DESC_INIT;

		d.name = (const char *[]){"c", "u", "n"}[i];
		d.ndim = 1;
		d.shape[0] = ELEMS;
		gs_setting(&d, "lr", 1);
		d.init = kinds[i];
		d.init_a = 0.25;
		d.init_b = 0.75;
		d.init_seed = 99;
		ok(gs_declare(t, &d, &p[i]));
	}
	ok(gs_start(t));
	for (int i = 0; i < 3; i++) {
		ok(gs_pull(t, p[i], GS_RELAXED, w));
		kern_init_fill(kern[i], 99, 0.25, 0.75, 0, want, ELEMS);
		must(memcmp(w, want, ELEMS * sizeof(float)) == 0, "kind %d", i);
	}
	leave(t);
	free(w);
	free(want);
	bed_stop(&bed);
}
END_TEST

/* ---- the initialiser dies
 * ------------------------------------------------------------------------ */

static struct wire_param given(void)
{
	struct wire_param p = raw_lines[0];

	p.init = WIRE_INIT_TRAINER;
	return p;
}

/* As far as READY; true if the server asked it for the weights. */
static void raw_join_init(struct raw *r, const char *uri, int32_t rank)
{
	struct wire_param p = given();

	raw_enter(r, uri, rank, &p, 1);
}

static void raw_give(struct raw *r, uint32_t blocks, float value)
{
	const struct wire_place *place = &r->place[0];
	float *source = tp_arena_base(r->source);

	for (uint32_t i = 0; i < 256; i++)
		source[i] = value;
	for (uint32_t b = 0; b < blocks; b++) {
		uint64_t left = 4 * (place->elems - b * place->block_elems);

		raw_write(r, place->slots_off + 4 * b * place->block_elems,
			  left < 1024 ? left : 1024, imm_block(IMM_INIT, b, 0, true));
	}
	for (uint32_t b = 0; b < blocks; b++)
		raw_wait_credit(r, b, 1);
}

START_TEST(another_is_asked)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct wire_msg done = {.kind = WIRE_INIT_DONE};
	struct raw a, b;
	struct bed bed;

	if (left_out(_i, 2))
		return;
	opt.block_kib = 1;
	bed_start(&bed, &opt);
	raw_join_init(&a, bed.uri, 0);
	must(raw_expect(&a, WIRE_READY).ready.init, "nobody is asked");
	raw_join_init(&b, bed.uri, 1);
	/* Part of it, all of it, or nothing; by a bye, or without one. */
	raw_give(&a, (const uint32_t[]){0, 2, 4}[_i % 3], 5);
	if (_i / 3)
		raw_send(&a, &(struct wire_msg){.kind = WIRE_BYE});
	raw_close(&a);
	must(raw_expect(&b, WIRE_READY).ready.init, "the next one is not asked");
	raw_give(&b, 4, 6);
	raw_send(&b, &done);
	raw_wait_start(&b);
	raw_join_init(&a, bed.uri, 0);
	must(!raw_expect(&a, WIRE_READY).ready.init, "asked though they are there");
	raw_wait_start(&a);
	raw_write(&a, 0, 8, imm_block(IMM_PULL, 3, 0, false));
	while (!a.imms)
		raw_poll(&a);
	float *landed = (float *)(void *)((uint8_t *)tp_arena_base(a.mailbox) +
					  a.place[0].landing_off);
	must(landed[3 * 256] == 6, "weights of the dead: %g", (double)landed[3 * 256]);
	raw_close(&a);
	raw_close(&b);
	bed_stop(&bed);
}
END_TEST

START_TEST(done_too_early)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct wire_msg done = {.kind = WIRE_INIT_DONE};
	struct raw a;
	struct bed bed;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	raw_join_init(&a, bed.uri, 0);
	must(raw_expect(&a, WIRE_READY).ready.init, "nobody is asked");
	raw_give(&a, 3, 1);
	raw_send(&a, &done);
	RAW_ENDS(&a, WIRE_E_PROTOCOL, "init_done", "1 block");
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
}
END_TEST

/* Initial weights of a 16-bit gradient's parameter come in two halves. It gives so many, of all
 * blocks in turn, and dies: what the next one gives is all that counts. */
START_TEST(dies_between_the_halves)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct wire_param line = raw_lines[0];
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	float data[RAW_A_ELEMS], w[RAW_A_ELEMS];
	struct raw r;
	struct bed bed;
	gs_trainer *t;
	gs_param *p;

	line.init = WIRE_INIT_TRAINER;
	line.grad_type = WIRE_BF16;
	opt.block_kib = 1;
	bed_start(&bed, &opt);
	raw_connect(&r, bed.uri, 0);
	raw_hello(&r, 0);
	raw_expect(&r, WIRE_WELCOME);
	raw_declare(&r, &line, 1);
	raw_take_grant(&r);
	raw_attach(&r, 0);
	must(raw_expect(&r, WIRE_READY).ready.init, "not asked");
	memset(tp_arena_base(r.source), 0xff, 512);
	for (uint32_t i = 0; i < (uint32_t)_i; i++) {
		uint32_t b = i % r.blocks;
		uint64_t len = b + 1 < r.blocks ? 512 : 2 * (RAW_A_ELEMS % 256);

		raw_write(&r, r.place[0].slots_off + 512 * b, len, imm_block(IMM_INIT, b, 0, false));
		raw_wait_credit(&r, b, i / r.blocks + 1);
	}
	raw_close(&r);
	t = connect_as(bed.uri, 1);
	d.name = "a";
	d.ndim = 1;
	d.shape[0] = RAW_A_ELEMS;
	d.grad_dtype = GS_BF16;
	gs_setting(&d, "lr", 1);
	d.init = GS_INIT_DATA;
	d.init_data = data;
	for (int i = 0; i < RAW_A_ELEMS; i++)
		data[i] = (float)i + 1.0f / 3;
	ok(gs_declare(t, &d, &p));
	ok(gs_start(t));
	ok(gs_pull(t, p, GS_ORDERED, w));
	must(memcmp(w, data, sizeof(w)) == 0, "its own data");
	leave(t);
	bed_stop(&bed);
}
END_TEST

TCase *init_case(void)
{
	TCase *t = e2e_case("init");

	tcase_add_loop_test(t, the_first_trainers_data, 0, 4);
	tcase_add_test(t, seeded_and_constant);
	tcase_add_loop_test(t, another_is_asked, 0, 6);
	tcase_add_test(t, done_too_early);
	tcase_add_loop_test(t, dies_between_the_halves, 1, 12);
	return t;
}

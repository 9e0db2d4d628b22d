/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of parameters (server/table.h): what is declared, where it is put, what it begins with,
 * and how a difference is told.
 */
#include "server/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/layout.h"
#include "server/internal.h"
#include "server/rows.h"
#include "suite.h"
#include "transport/transport.h"

static struct srv *srv;

static void setup(void)
{
	srv = aligned_alloc(64, (sizeof(*srv) + 63) / 64 * 64);
	memset(srv, 0, sizeof(*srv));
	srv->opt = srv_options_default();
	srv->opt.trainers = 3;
	srv->opt.block_kib = 1;
}

static void teardown(void)
{
	free(srv);
}

static struct wire_param sgd(const char *name, uint64_t rows, uint64_t columns)
{
	struct wire_param p = {
	    .ndim = columns ? 2 : 1,
	    .dim = {rows, columns},
	    .rule = "sgd",
	    .n_settings = 1,
	    .setting = {{"lr", 0.1}},
	    .init = WIRE_INIT_UNIFORM,
	    .init_a = -1,
	    .init_b = 1,
	    .init_seed = 42,
	};

	snprintf(p.name, sizeof(p.name), "%s", name);
	return p;
}

static struct wire_param momentum(const char *name, uint64_t rows, uint64_t columns)
{
	struct wire_param p = sgd(name, rows, columns);

	snprintf(p.rule, sizeof(p.rule), "momentum");
	p.setting[p.n_settings++] = (struct wire_setting){"momentum", 0.5};
	return p;
}

/* ---- declaring ------------------------------------------------------------------------------- */

static void refused(struct wire_param *decl, uint32_t n, const char *word, const char *name)
{
	struct table *t = NULL;

	ck_assert_int_eq(table_create(srv, decl, n, &t), -EINVAL);
	EXPECT_TEXT(word, name);
	ck_assert_ptr_null(t);
}

START_TEST(refuses_bad_declarations)
{
	struct wire_param decl[3] = {sgd("a", 7, 0), sgd("b", 7, 0), sgd("a", 9, 0)};

	refused(decl, 3, "twice", "\"a\"");
	snprintf(decl[1].rule, sizeof(decl[1].rule), "adamantium");
	refused(decl, 2, "adamantium", "\"b\"");
	decl[1] = sgd("b", 7, 0);
	decl[1].n_settings = 0;
	refused(decl, 2, "lr", "\"b\"");
	decl[1] = sgd("b", 7, 0);
	decl[1].setting[0].value = -1;
	refused(decl, 2, "-1", "\"b\"");
	decl[1] = momentum("b", 7, 0);
	decl[1].setting[1].value = 1.5;
	refused(decl, 2, "1.5", "\"b\"");
	decl[1] = sgd("b", 7, 0);
	snprintf(decl[1].rule, sizeof(decl[1].rule), "rowwise_adagrad");
	refused(decl, 2, "is for tables", "\"b\"");
	decl[1] = sgd("b", 2, GEOMETRY_MAX_BLOCK_BYTES);
	refused(decl, 2, "row", "\"b\"");
	decl[1] = sgd("b", 1ULL << 39, 0);
	refused(decl, 2, "blocks", "\"b\"");
}
END_TEST

/* ---- delay compensation ---------------------------------------------------------------------- */

/* Each trainer's copies of the weights of those that ask for it, in the plan and its text. */
START_TEST(backups_are_planned)
{
	struct wire_param decl[] = {sgd("a", 1000, 0), sgd("b", 300, 0), sgd("c", 5, 0)};
	char text[256];
	struct table *t;

	srv->opt.mode = SRV_ASYNC;
	ck_assert_int_eq(table_create(srv, decl, 3, &t), 0);
	ck_assert_uint_eq(t->plan.backups, 0);
	table_destroy(t);
	for (int i = 0; i < 3; i += 2)
		decl[i].setting[decl[i].n_settings++] = (struct wire_setting){"dc_lambda", 0.1};
	ck_assert_int_eq(table_create(srv, decl, 3, &t), 0);
	ck_assert_uint_eq(t->plan.backups, layout_align(4000, 64) + 64);
	ck_assert_uint_eq(t->backups_len, t->plan.backups);
	ck_assert_uint_eq(t->param[2].backup_off, layout_align(4000, 64));
	memory_describe(&t->plan, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "backups 4.0 KiB"));
	table_destroy(t);
	/* Nothing is delayed in sync mode. */
	srv->opt.mode = SRV_SYNC;
	refused(decl, 3, "dc_lambda is 0.1", "\"a\"");
}
END_TEST

/* ---- placing --------------------------------------------------------------------------------- */

struct span {
	uint64_t from, to;
};

static int by_start(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return (x->from > y->from) - (x->from < y->from);
}

static void no_overlap(struct span *span, size_t n, uint64_t begin, uint64_t end)
{
	qsort(span, n, sizeof(*span), by_start);
	ck_assert_uint_ge(span[0].from, begin);
	for (size_t i = 1; i < n; i++)
		ck_assert_uint_ge(span[i].from, span[i - 1].to);
	ck_assert_uint_le(span[n - 1].to, end);
}

static struct table *odd_table(uint32_t slots, uint32_t block_kib)
{
	struct wire_param decl[] = {sgd("one", 1, 0),        momentum("seven", 7, 0),
				    sgd("small", 3, 5),      momentum("rows", 1000, 37),
				    sgd("long", 4, 5000),    sgd("line", 10001, 0),
				    momentum("last", 16, 16)};
	struct table *t;

	srv->opt.slots = slots;
	srv->opt.block_kib = block_kib;
	ck_assert_int_eq(table_create(srv, decl, sizeof(decl) / sizeof(decl[0]), &t), 0);
	return t;
}

START_TEST(places_are_aligned_and_apart)
{
	uint32_t slots = (uint32_t)_i;
	struct table *t = odd_table(slots, 1);
	struct span weights[8], ring[8 * 8];
	uint32_t n = 0, blocks = 0;

	for (uint32_t i = 0; i < t->params; i++) {
		const struct wire_place *p = &t->param[i].place;

		ck_assert_uint_eq(p->weights_off % LAYOUT_ALIGN, 0);
		ck_assert_uint_eq(p->slots_off % LAYOUT_ALIGN, 0);
		ck_assert_uint_eq(p->slots_stride % LAYOUT_ALIGN, 0);
		if (!p->pack)
			ck_assert(layout_heads_lead(p->heads_off, p->heads_stride, p->slots_off,
						    p->slots_stride));
		ck_assert_uint_eq(p->first_block, blocks);
		blocks += p->blocks;
		weights[i] = (struct span){p->weights_off, p->weights_off + 4 * p->elems};
		for (uint32_t s = 0; s < slots; s++, n++) {
			ring[n].from = p->slots_off + s * p->slots_stride;
			ring[n].to = ring[n].from + 4 * p->elems;
			if (!p->pack) /* its head, too */
				ring[n].from = p->heads_off + s * p->heads_stride;
		}
	}
	ck_assert_uint_eq(blocks, t->blocks);
	no_overlap(weights, t->params, layout_weights_start(t->blocks), t->plan.weights);
	no_overlap(ring, n, sizeof(struct layout_slots_head), t->slots_len);
	ck_assert_uint_eq(t->plan.slots, t->slots_len);
	ck_assert_uint_eq(t->plan.trainers, 3);
	table_destroy(t);
}
END_TEST

/* Small neighbours: slot by slot, heads too. */
START_TEST(packs_lie_together)
{
	uint32_t slots = (uint32_t)_i;
	struct wire_param decl[] = {sgd("big", 300, 0), sgd("one", 1, 0),  momentum("two", 16, 0),
				    sgd("three", 17, 0), sgd("large", 257, 0), sgd("alone", 5, 0)};
	struct table *t;

	decl[2].grad_type = WIRE_BF16;
	srv->opt.slots = slots;
	srv->opt.block_kib = 1;
	ck_assert_int_eq(table_create(srv, decl, 6, &t), 0);
	const struct wire_place *p[6];
	for (int i = 0; i < 6; i++)
		p[i] = &t->param[i].place;
	ck_assert_uint_eq(t->packs, 1);
	for (int i = 0; i < 6; i++)
		ck_assert_uint_eq(p[i]->pack, i >= 1 && i <= 3);
	ck_assert_uint_eq(t->pack[0].param, 1);
	ck_assert_uint_eq(t->pack[0].block, p[1]->first_block);
	ck_assert_uint_eq(t->pack[0].n, 3);
	ck_assert_uint_eq(t->pack[0].bytes, 64 + 64 + 4 * 17);
	for (int i = 1; i <= 3; i++) {
		ck_assert_uint_eq(p[i]->slots_stride, 64 + 64 + 128);
		ck_assert_uint_eq(p[i]->heads_stride, 3 * 64);
		ck_assert_uint_eq(p[i]->heads_off, p[1]->heads_off + 64 * (uint64_t)(i - 1));
		ck_assert_uint_eq(p[i]->slots_off, p[1]->slots_off + 64 * (uint64_t)(i - 1));
	}
	ck_assert_uint_eq(p[1]->heads_off, p[0]->heads_off + slots * p[0]->slots_stride);
	ck_assert_uint_eq(p[1]->slots_off, p[1]->heads_off + slots * 3 * 64);
	ck_assert_uint_eq(p[4]->heads_off, p[1]->slots_off + slots * p[1]->slots_stride);
	ck_assert_uint_eq(p[4]->heads_stride, 64 + 17 * 64);
	ck_assert_uint_eq(p[5]->heads_stride, 64 + 64);
	ck_assert_uint_eq(p[5]->slots_stride, 64 + 64);
	table_destroy(t);
}
END_TEST

START_TEST(blocks_cover_their_parameter)
{
	struct table *t = odd_table(2, 1);

	ck_assert_int_eq(table_allocate(t), 0);
	for (uint32_t b = 0; b < t->blocks; b++) {
		const struct block *x = &t->block[b];

		ck_assert_uint_eq(x->id, b);
		ck_assert_uint_eq(x->first,
				  (b - x->param->place.first_block) * x->param->cut.block_elems);
		ck_assert_uint_le(x->first + x->elems, x->param->cut.elems);
		ck_assert_uint_le(block_weight_bytes(x), t->max_block_bytes);
		ck_assert_uint_eq(*x->version, 0);
		if (b + 1 == x->param->place.first_block + x->param->place.blocks)
			ck_assert_uint_eq(x->first + x->elems, x->param->cut.elems);
	}
	ck_assert_uint_eq(t->max_block_bytes, 4 * 5000);
	ck_assert_uint_ge(tp_arena_size(t->weights), t->plan.weights);
	ck_assert_uint_ge(tp_arena_size(t->state), t->plan.state);
	ck_assert_ptr_null(t->param[0].state[0]);
	ck_assert_ptr_nonnull(t->param[1].state[0]);
	table_destroy(t);
}
END_TEST

START_TEST(initial_values_do_not_depend_on_the_cut)
{
	struct table *fine = odd_table(1, 1), *coarse = odd_table(8, 4096);

	ck_assert_int_eq(table_allocate(fine), 0);
	ck_assert_int_eq(table_allocate(coarse), 0);
	ck_assert_uint_ne(fine->blocks, coarse->blocks);
	for (uint32_t i = 0; i < fine->params; i++) {
		const struct param *p = &fine->param[i];

		ck_assert_mem_eq(p->weights, coarse->param[i].weights, 4 * p->cut.elems);
		for (uint64_t e = 0; e < p->cut.elems; e++)
			ck_assert(p->weights[e] >= -1 && p->weights[e] <= 1);
	}
	ck_assert_float_ne(fine->param[5].weights[0], fine->param[5].weights[10000]);
	table_destroy(fine);
	table_destroy(coarse);
}
END_TEST

START_TEST(blocks_of_a_trainer_are_counted)
{
	struct wire_param decl[] = {sgd("mine", 1000, 0), sgd("yours", 1000, 0)};
	struct table *t;

	decl[1].init = WIRE_INIT_TRAINER;
	ck_assert_int_eq(table_create(srv, decl, 2, &t), 0);
	ck_assert_uint_eq(t->init_left, 4);
	ck_assert_int_eq(table_allocate(t), 0);
	ck_assert_float_eq(t->param[1].weights[999], 0);
	table_destroy(t);
}
END_TEST

/* ---- tables of rows -------------------------------------------------------------------------- */

static struct wire_param rows_of(const char *name, uint64_t rows, uint64_t dim)
{
	struct wire_param p = sgd(name, rows, dim);

	p.storage = WIRE_TABLE;
	p.slot_rows = 10;
	p.push_rows = 100;
	p.pull_rows = 7;
	return p;
}

/* Tensors only, and only where there is a network. */
START_TEST(cut_finer_for_a_network)
{
	static const char *const uris[] = {"shm:x", "rdma://10.0.0.1:1"};
	struct wire_param decl[] = {sgd("some", 32 << 10, 0), rows_of("rows", 32 << 10, 1)};
	struct table *t;

	srv->opt.block_kib = 256;
	srv->opt.n_listen = 1 + (uint32_t)_i;
	memcpy(srv->opt.listen, uris, sizeof(uris));
	ck_assert_int_eq(table_create(srv, decl, 2, &t), 0);
	ck_assert_uint_eq(t->param[0].place.blocks, _i ? 4 : 1);
	ck_assert_uint_eq(t->param[1].place.blocks, 1);
	table_destroy(t);
}
END_TEST

START_TEST(tables_are_placed)
{
	struct wire_param decl[] = {rows_of("t", 1000, 30), sgd("line", 10, 0),
				    rows_of("short", 5, 1)};
	struct table *t;

	strcpy(decl[0].rule, "rowwise_adagrad");
	decl[0].grad_type = decl[2].weight_type = WIRE_BF16;
	ck_assert_int_eq(table_create(srv, decl, 3, &t), 0);
	const struct wire_place *p = &t->param[0].place, *next = &t->param[1].place;
	ck_assert_uint_eq(p->block_elems, 8 * 30); /* whole rows within 1 KiB */
	ck_assert_uint_eq(p->slots_stride, layout_align(10 * (8 + 30 * 2), LAYOUT_ALIGN));
	ck_assert_uint_eq(p->request_off, p->heads_off + layout_align(64 * t->slots, LAYOUT_ALIGN));
	ck_assert_uint_eq(p->slots_off, p->request_off + layout_align(64 + 7 * 8, LAYOUT_ALIGN));
	ck_assert_uint_eq(next->heads_off, p->slots_off + t->slots * p->slots_stride);
	ck_assert_uint_eq(next->landing_off,
			  p->landing_off + layout_align(7 * 30 * 4, LAYOUT_ALIGN));
	ck_assert_uint_eq(next->request_off, 0);
	/* A pull of one short row has room for the key of a refusal. */
	ck_assert_uint_eq(t->mailbox_len, t->param[2].place.landing_off + LAYOUT_ALIGN);
	ck_assert_uint_eq(t->units, 3);
	/* A float for each row is the state; the other table's own weights are private. */
	ck_assert_uint_eq(t->plan.state, layout_align(1000 * 4, LAYOUT_ALIGN) + LAYOUT_ALIGN);
	ck_assert_int_eq(table_allocate(t), 0);
	table_destroy(t);
}
END_TEST

/* Merging is charged for what can be pushed: by a trainer, and by all in a step. */
START_TEST(tables_are_charged)
{
	struct wire_param small = rows_of("t", 150, 4), hashed = rows_of("h", 1000, 4);
	struct table *t, *u;

	ck_assert_int_eq(table_create(srv, &small, 1, &t), 0);
	ck_assert_uint_eq(t->plan.parts, rowset_bytes(100, 4));
	ck_assert_uint_ge(t->plan.tables, rowset_bytes(150, 4));
	ck_assert_uint_lt(t->plan.tables, rowset_bytes(300, 4));
	hashed.storage = WIRE_HASHED;
	hashed.admit_after = 2;
	ck_assert_int_eq(table_create(srv, &hashed, 1, &u), 0);
	ck_assert_uint_ge(u->plan.tables, rowset_bytes(300, 4) + keymap_bytes(1000, 2));
	table_destroy(t);
	table_destroy(u);
}
END_TEST

START_TEST(tables_that_differ)
{
	struct wire_param ours = rows_of("t", 150, 4), theirs = ours;
	struct table *t;

	ck_assert_int_eq(table_create(srv, &ours, 1, &t), 0);
	theirs.setting[theirs.n_settings++] = (struct wire_setting){"lazy", 1};
	ck_assert_int_eq(table_compare(t, &theirs, 1), 0);
	theirs.setting[1].value = 0;
	ck_assert_int_eq(table_compare(t, &theirs, 1), -EINVAL);
	EXPECT_TEXT("\"t\"", "lazy=0");
	theirs = ours;
	theirs.push_rows = 101;
	ck_assert_int_eq(table_compare(t, &theirs, 1), -EINVAL);
	EXPECT_TEXT("\"t\"", "push_rows 101", "push_rows 100");
	table_destroy(t);
}
END_TEST

START_TEST(tables_that_are_refused)
{
	struct wire_param p = rows_of("t", 150, 1 << 20);
	struct table *t;

	p.slot_rows = p.push_rows = 300;
	ck_assert_int_eq(table_create(srv, &p, 1, &t), -EINVAL);
	EXPECT_TEXT("\"t\"", "slot_rows is 300", "1073741824");
	p.slot_rows = 1;
	p.pull_rows = 300;
	ck_assert_int_eq(table_create(srv, &p, 1, &t), -EINVAL);
	EXPECT_TEXT("\"t\"", "pull_rows is 300", "1073741824");
	p = rows_of("t", 150, 4);
	strcpy(p.rule, "lars");
	ck_assert_int_eq(table_create(srv, &p, 1, &t), -EINVAL);
	EXPECT_TEXT("\"t\"", "\"lars\"", "by rows");
	p = rows_of("t", 150, 4);
	p.setting[p.n_settings++] = (struct wire_setting){"lazy", 1};
	p.setting[p.n_settings++] = (struct wire_setting){"lazy", 0};
	ck_assert_int_eq(table_create(srv, &p, 1, &t), -EINVAL);
	EXPECT_TEXT("\"t\"", "lazy is given twice");
	p = sgd("d", 150, 4);
	strcpy(p.rule, "rowwise_adagrad");
	ck_assert_int_eq(table_create(srv, &p, 1, &t), -EINVAL);
	EXPECT_TEXT("\"d\"", "rowwise_adagrad is for tables");
	srv->opt.mode = SRV_ASYNC;
	p = rows_of("t", 150, 4);
	p.setting[p.n_settings++] = (struct wire_setting){"dc_lambda", 0.1};
	ck_assert_int_eq(table_create(srv, &p, 1, &t), -EINVAL);
	EXPECT_TEXT("\"t\"", "dc_lambda is 0.1", "in tables");
	p = rows_of("t", 150, 4);
	p.storage = WIRE_HASHED;
	p.push_rows = 1 << 26;
	srv->opt.trainers = 64;
	ck_assert_int_eq(table_create(srv, &p, 1, &t), -EINVAL);
	EXPECT_TEXT("\"t\"", "push_rows is 67108864", "64 trainers", "1073741824");
}
END_TEST

/* ---- comparing ------------------------------------------------------------------------------- */

static struct table *pair(void)
{
	struct wire_param decl[] = {sgd("a", 4, 3), momentum("b", 5, 0)};
	struct table *t;

	ck_assert_int_eq(table_create(srv, decl, 2, &t), 0);
	return t;
}

START_TEST(the_same_in_other_words)
{
	struct wire_param decl[] = {sgd("a", 4, 3), momentum("b", 5, 0)};
	struct table *t = pair();

	ck_assert_int_eq(table_compare(t, decl, 2), 0);
	/* Another order, and a default that is said. */
	decl[1].setting[0] = (struct wire_setting){"dampening", 0};
	decl[1].setting[1] = (struct wire_setting){"momentum", 0.5};
	decl[1].setting[2] = (struct wire_setting){"lr", 0.1};
	decl[1].n_settings = 3;
	ck_assert_int_eq(table_compare(t, decl, 2), 0);
	table_destroy(t);
}
END_TEST

#define DIFFERS(change, n, ...)                                                                   \
	do {                                                                                      \
		struct wire_param decl[] = {sgd("a", 4, 3), momentum("b", 5, 0), sgd("c", 1, 0)}; \
		change;                                                                           \
		ck_assert_int_eq(table_compare(t, decl, n), -EINVAL);                             \
		EXPECT_TEXT(__VA_ARGS__);                                                         \
	} while (0)

START_TEST(differences_name_both_sides)
{
	struct table *t = pair();

	DIFFERS(strcpy(decl[0].name, "x"), 2, "\"x\"", "\"a\"");
	DIFFERS(decl[0].dim[1] = 4, 2, "shape", "[4, 4] here", "[4, 3] at the server");
	DIFFERS(decl[1].ndim = 2; decl[1].dim[1] = 1, 2, "[5, 1] here", "[5] at the server");
	DIFFERS(strcpy(decl[0].rule, "nesterov"), 2, "nesterov(lr=0.1) here", "sgd(lr=0.1) at");
	DIFFERS(decl[0].setting[0].value = 0.2, 2, "lr=0.2", "lr=0.1");
	DIFFERS(decl[0].setting[0].value = 0.1000001, 2, "lr=0.1000001", "lr=0.1)");
	DIFFERS(decl[1].setting[1].value = 0.9, 2, "momentum=0.9", "momentum=0.5");
	DIFFERS(decl[0].init = WIRE_INIT_NORMAL, 2, "normal(-1, 1, seed 42)", "uniform");
	DIFFERS(decl[0].init = WIRE_INIT_TRAINER, 2, "data of the first trainer here", "uniform");
	DIFFERS(decl[0].init_seed = 43, 2, "seed 43", "seed 42");
	DIFFERS(decl[0].setting[decl[0].n_settings++] = ((struct wire_setting){"clip_norm", 2}), 2,
		"clip_norm=2", "sgd(lr=0.1) at");
	DIFFERS(strcpy(decl[0].schedule, "cosine:steps=10"), 2, "schedule cosine:steps=10 here",
		"constant at");
	DIFFERS(decl[0].grad_type = WIRE_F16, 2, "gradients f16", "gradients f32");
	DIFFERS(decl[0].weight_type = WIRE_BF16, 2, "weights bf16", "weights f32");
	DIFFERS(decl[0].reduce = WIRE_WEIGHTED, 2, "weighted mean", ", mean");
	DIFFERS(decl[0].nonfinite = WIRE_NONFINITE_SKIP, 2, "ones skipped here", "ones applied at");
	DIFFERS(decl[0].storage = WIRE_TABLE, 2, "storage table", "dense at");
	DIFFERS((void)decl, 1, "1 parameters", "2 at the server");
	DIFFERS((void)decl, 3, "3 parameters", "2 at the server");
	table_destroy(t);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("table");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, refuses_bad_declarations);
	tcase_add_test(t, backups_are_planned);
	tcase_add_loop_test(t, places_are_aligned_and_apart, 1, 9);
	tcase_add_loop_test(t, packs_lie_together, 1, 9);
	tcase_add_loop_test(t, cut_finer_for_a_network, 0, 2);
	tcase_add_test(t, blocks_cover_their_parameter);
	tcase_add_test(t, initial_values_do_not_depend_on_the_cut);
	tcase_add_test(t, blocks_of_a_trainer_are_counted);
	tcase_add_test(t, tables_are_placed);
	tcase_add_test(t, tables_are_charged);
	tcase_add_test(t, tables_that_differ);
	tcase_add_test(t, tables_that_are_refused);
	tcase_add_test(t, the_same_in_other_words);
	tcase_add_test(t, differences_name_both_sides);
	return run_suite("table", t);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables and trainers that do not keep to the protocol, or die: nothing of theirs is applied in
 * part, and the others go on.
 *
 * The table has 200 rows of 2 floats, zero, sgd with lr 1. The bad one (rank 1) speaks the protocol
 * itself; the good one (rank 0) is the library's.
 */
#include "cases.h"
#include "raw.h"

enum { ROWS = 200, DIM = 2, SLOT_ROWS = 4, PUSH_ROWS = 10, PULL_ROWS = 8, SLOTS = 2 };

static const struct wire_param table = {
    .name = "t",
    .ndim = 2,
    .dim = {ROWS, DIM},
    .rule = "sgd",
    .n_settings = 1,
    .setting = {{"lr", 1}},
    .init = WIRE_INIT_CONSTANT,
    .storage = WIRE_TABLE,
    .reduce = WIRE_SUM,
    .slot_rows = SLOT_ROWS,
    .push_rows = PUSH_ROWS,
    .pull_rows = PULL_ROWS,
};

struct scene {
	struct bed bed;
	enum srv_mode mode;
	struct raw bad;
	uint32_t pieces; /* that the bad one sent */
	gs_trainer *good;
	gs_param *p;
	pthread_t thread;
};

static void *start_good(void *arg)
{
	struct scene *s = arg;

	ok(gs_start(s->good));
	return NULL;
}

static void scene_open(struct scene *s, enum srv_mode mode)
{
	struct srv_options opt = bed_options(2, mode);
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	*s = (struct scene){.mode = mode};
	opt.slots = SLOTS;
	if (mode == SRV_SSP)
		opt.staleness = 8;
	opt.block_kib = 1;
	d.name = "t";
	d.ndim = 2;
	d.shape[0] = ROWS;
	d.shape[1] = DIM;
	d.kind = GS_TABLE;
	d.reduce = GS_SUM;
	gs_setting(&d, "lr", 1);
	d.slot_rows = SLOT_ROWS;
	d.push_rows = PUSH_ROWS;
	d.pull_rows = PULL_ROWS;
	bed_start(&s->bed, &opt);
	s->good = connect_as(s->bed.uri, 0);
	ok(gs_declare(s->good, &d, &s->p));
	must(pthread_create(&s->thread, NULL, start_good, s) == 0, "thread");
	raw_join_with(&s->bad, s->bed.uri, 1, &table, 1);
	raw_wait_start(&s->bad);
	pthread_join(s->thread, NULL);
}

/* One piece: ids from `first` on, all values 1; the head says `rows` and `flags`, `len` bytes go.
 */
static void piece_of(struct scene *s, int64_t first, uint32_t rows, uint32_t flags, uint64_t len)
{
	const struct wire_place *place = &s->bad.place[0];
	uint32_t slot = s->pieces % SLOTS;
	uint8_t *source = tp_arena_base(s->bad.source);
	struct layout_push_head head = {.rows = rows, .flags = flags};
	int64_t *id = (int64_t *)(void *)(source + 64);
	float *v = (float *)(void *)(id + rows);

	/* The piece before was merged: its slot and its source are free. */
	if (s->pieces)
		raw_wait_credit(&s->bad, 0, s->pieces);
	memcpy(source, &head, sizeof(head));
	for (uint32_t i = 0; i < rows && i < 64; i++) {
		id[i] = first + i;
		v[2 * i] = v[2 * i + 1] = 1;
	}
	raw_write_from(&s->bad, 0, place->heads_off + slot * sizeof(head), sizeof(head), 0, 0);
	raw_write_from(&s->bad, 64, place->slots_off + slot * place->slots_stride, len, TP_F_IMM,
		       imm_block(IMM_GRAD, place->first_block, slot, true));
	s->pieces++;
}

static void piece(struct scene *s, int64_t first, uint32_t rows, bool more)
{
	piece_of(s, first, rows, more ? LAYOUT_MORE_ROWS : 0, layout_slot_bytes(rows, DIM * 4));
}

static void request_of(struct scene *s, int64_t first, uint32_t said, uint64_t len)
{
	uint8_t *source = tp_arena_base(s->bad.source);
	struct layout_request_head head = {.rows = said};
	int64_t *id = (int64_t *)(void *)(source + sizeof(head));

	memcpy(source, &head, sizeof(head));
	for (uint32_t i = 0; i < PULL_ROWS; i++)
		id[i] = first + i;
	raw_write(&s->bad, s->bad.place[0].request_off, len,
		  imm_block(IMM_PULL, s->bad.place[0].first_block, 0, false));
}

/* ---- what ends a session -----------------------------------------------------------------------
 */

static void id_too_large(struct scene *s)
{
	piece(s, 0, 4, true);
	piece(s, ROWS - 1, 2, false);
}

static void id_negative(struct scene *s)
{
	piece(s, -1, 3, false);
}

/* Both are under way before the first is looked at. */
static void id_bad_then_a_good_end(struct scene *s)
{
	const struct wire_place *place = &s->bad.place[0];
	uint8_t *source = tp_arena_base(s->bad.source);

	for (uint32_t slot = 0; slot < 2; slot++) {
		struct layout_push_head head = {.rows = 1, .flags = slot ? 0 : LAYOUT_MORE_ROWS};
		int64_t id[2] = {slot ? 0 : ROWS};

		memcpy(source + 256 * slot, &head, sizeof(head));
		memcpy(source + 256 * slot + 64, id, sizeof(id));
		raw_write_from(&s->bad, 256 * slot, place->heads_off + slot * sizeof(head),
			       sizeof(head), 0, 0);
		raw_write_from(&s->bad, 256 * slot + 64,
			       place->slots_off + slot * place->slots_stride, 16, TP_F_IMM,
			       imm_block(IMM_GRAD, place->first_block, slot, true));
	}
}

static void id_bad_in_the_midst(struct scene *s)
{
	piece(s, 0, 4, true);
	piece(s, ROWS - 3, 4, true);
}

static void too_many_in_a_slot(struct scene *s)
{
	piece(s, 0, SLOT_ROWS + 1, false);
}

static void too_many_in_a_push(struct scene *s)
{
	piece(s, 0, 4, true);
	piece(s, 4, 4, true);
	piece(s, 8, 3, false);
}

static void wrong_length(struct scene *s)
{
	piece_of(s, 0, 3, 0, layout_slot_bytes(2, DIM * 4));
}

static void nothing_too_long(struct scene *s)
{
	piece_of(s, 0, 0, 0, 16);
}

static void unknown_flag(struct scene *s)
{
	piece_of(s, 0, 2, 2, layout_slot_bytes(2, DIM * 4));
}

static void another_block(struct scene *s)
{
	raw_write(&s->bad, s->bad.place[0].slots_off, 24, imm_block(IMM_GRAD, 1, 0, false));
}

static void pull_of_another_block(struct scene *s)
{
	raw_write(&s->bad, s->bad.place[0].request_off, 72, imm_block(IMM_PULL, 1, 0, false));
}

static void pull_of_none(struct scene *s)
{
	request_of(s, 0, 0, layout_request_bytes(0));
}

static void pull_of_too_many(struct scene *s)
{
	request_of(s, 0, PULL_ROWS + 1, layout_request_bytes(PULL_ROWS + 1));
}

static void pull_of_another_length(struct scene *s)
{
	request_of(s, 0, 3, layout_request_bytes(2));
}

static void pull_of_a_bad_row(struct scene *s)
{
	request_of(s, ROWS - 2, 3, layout_request_bytes(3));
}

static void pull_of_a_negative_row(struct scene *s)
{
	request_of(s, -2, 3, layout_request_bytes(3));
}

static void twice_in_a_step(struct scene *s)
{
	piece(s, 0, 0, false);
	piece(s, 0, 1, false);
}

static const struct offence {
	void (*commit)(struct scene *s);
	bool sync_only;
	const char *words[4];
} offences[] = {
    {id_too_large, false, {"\"t\"", "row 200", "200 rows"}},
    {id_negative, false, {"\"t\"", "row -1", "200 rows"}},
    {id_bad_then_a_good_end, false, {"\"t\"", "row 200"}},
    {id_bad_in_the_midst, false, {"\"t\"", "row 200", "200 rows"}},
    {too_many_in_a_slot, false, {"\"t\"", "5 rows", "slot_rows, 4"}},
    {too_many_in_a_push, false, {"\"t\"", "3 rows behind 8", "push_rows, 10"}},
    {wrong_length, false, {"block 0", "32 bytes", "48"}},
    {nothing_too_long, false, {"block 0", "16 bytes", "8"}},
    {unknown_flag, false, {"\"t\"", "0x2", "0x1"}},
    {another_block, false, {"block 1", "\"t\"", "block 0"}},
    {pull_of_another_block, false, {"block 1", "\"t\"", "block 0"}},
    {pull_of_none, false, {"\"t\"", "0 rows"}},
    {pull_of_too_many, false, {"\"t\"", "9 rows", "8"}},
    {pull_of_another_length, false, {"80 bytes", "88"}},
    {pull_of_a_bad_row, false, {"\"t\"", "row 200", "200 rows"}},
    {pull_of_a_negative_row, false, {"\"t\"", "row -2", "200 rows"}},
    {twice_in_a_step, true, {"\"t\"", "second push", "step 1"}},
};
enum { OFFENCES = sizeof(offences) / sizeof(offences[0]) };

/* Every row is `value`, but those from `first` to `last`, which are `other`. */
static void expect_rows(struct scene *s, float value, int64_t first, int64_t last, float other)
{
	float w[ROWS][DIM];
	int64_t id[ROWS];

	for (int64_t i = 0; i < ROWS; i++)
		id[i] = i;
	ok(gs_pull_rows(s->good, s->p, id, ROWS, GS_ROWS_GATHER, w));
	for (int64_t i = 0; i < ROWS; i++)
		must(w[i][0] == w[i][1] && w[i][0] == (i >= first && i <= last ? other : value),
		     "row %lld is %g, %g", (long long)i, (double)w[i][0], (double)w[i][1]);
}

/* The good one pushes rows 0 .. 9, and ends the step. */
static void good_pushes(struct scene *s)
{
	static const int64_t id[PUSH_ROWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
	static const float v[PUSH_ROWS][DIM] = {[0 ... PUSH_ROWS - 1] = {1, 1}};

	ok(gs_push_rows(s->good, s->p, id, v, PUSH_ROWS));
	if (s->mode == SRV_SYNC)
		ok(gs_step_end(s->good));
	else
		ok(gs_wait_applied(s->good, s->p));
}

static void scene_close(struct scene *s, uint64_t violations)
{
	bed_wait_connected(&s->bed, 1);
	good_pushes(s);
	good_pushes(s);
	expect_rows(s, 0, 0, 9, -2);
	must(bed_stats(&s->bed).violations == violations, "violations");
	leave(s->good);
	bed_stop(&s->bed);
}

START_TEST(offences_end_the_session)
{
	const struct offence *o = &offences[_i / 2];
	struct scene s;

	if ((_i % 2 && o->sync_only) || left_out(_i, 4))
		return;
	scene_open(&s, _i % 2 ? SRV_ASYNC : SRV_SYNC);
	o->commit(&s);
	raw_expect_error(&s.bad, WIRE_E_PROTOCOL, o->words);
	scene_close(&s, 1);
}
END_TEST

/* ---- what does not ------------------------------------------------------------------------------
 */

/* It dies with a piece of its push there and the rest to come: nothing of it counts. */
START_TEST(dies_in_the_midst_of_a_push)
{
	struct scene s;

	scene_open(&s, _i ? SRV_ASYNC : SRV_SYNC);
	piece(&s, 0, 4, true);
	raw_wait_credit(&s.bad, 0, 1);
	raw_close(&s.bad);
	scene_close(&s, 0);
}
END_TEST

/* It dies with a whole push there: that counts. */
START_TEST(dies_behind_a_push)
{
	struct scene s;

	scene_open(&s, _i ? SRV_ASYNC : SRV_SYNC);
	piece(&s, 50, 4, true);
	piece(&s, 54, 1, false);
	raw_wait_credit(&s.bad, 0, 2);
	raw_close(&s.bad);
	bed_wait_connected(&s.bed, 1);
	good_pushes(&s);
	float w[5][DIM];
	const int64_t id[5] = {50, 51, 52, 53, 54};
	ok(gs_pull_rows(s.good, s.p, id, 5, GS_ROWS_READ, w));
	for (int i = 0; i < 5; i++)
		must(w[i][0] == -1 && w[i][1] == -1, "row %d", 50 + i);
	leave(s.good);
	bed_stop(&s.bed);
}
END_TEST

/* The barrier comes with a push half sent: it is left out, and the next step's begins anew. */
START_TEST(a_push_that_is_not_ended)
{
	struct scene s;

	scene_open(&s, SRV_SYNC);
	piece(&s, 0, 4, true);
	raw_barrier(&s.bad, 1);
	good_pushes(&s);
	raw_wait_release(&s.bad, 1);
	expect_rows(&s, 0, 0, 9, -1);
	/* A whole push's worth of rows: what came before does not count against it. */
	piece(&s, 50, 4, true);
	piece(&s, 54, 4, true);
	piece(&s, 58, 2, false);
	raw_barrier(&s.bad, 2);
	ok(gs_step_end(s.good));
	raw_wait_release(&s.bad, 2);
	float w[ROWS][DIM];
	for (int64_t i = 0; i < ROWS; i++)
		ok(gs_pull_rows(s.good, s.p, &i, 1, GS_ROWS_READ, w[i]));
	for (int i = 0; i < ROWS; i++)
		must(w[i][0] == (i < 10 || (i >= 50 && i < 60) ? -1 : 0), "row %d is %g", i,
		     (double)w[i][0]);
	raw_barrier(&s.bad, 3); /* it can't bar the others */
	raw_close(&s.bad);
	bed_wait_connected(&s.bed, 1);
	leave(s.good);
	bed_stop(&s.bed);
}
END_TEST

/* Ssp: barriers do not end a push, nor what it may come to. */
START_TEST(a_push_over_barriers)
{
	struct scene s;

	scene_open(&s, SRV_SSP);
	piece(&s, 50, 4, true);
	raw_barrier(&s.bad, 1);
	raw_wait_release(&s.bad, 1);
	piece(&s, 54, 4, true);
	raw_barrier(&s.bad, 2);
	raw_wait_release(&s.bad, 2);
	piece(&s, 58, 4, true);
	raw_expect_error(&s.bad, WIRE_E_PROTOCOL,
			 (const char *const[]){"4 rows behind 8", "push_rows, 10", NULL});
	scene_close(&s, 1);
}
END_TEST

/* Longer than all its slots, with pieces of no rows in between. */
START_TEST(pieces_flow)
{
	struct scene s;

	scene_open(&s, _i ? SRV_ASYNC : SRV_SYNC);
	for (int64_t i = 0; i < PUSH_ROWS; i++) {
		piece(&s, 60 + i, 1, true);
		piece(&s, 0, 0, true);
	}
	piece(&s, 0, 0, false);
	raw_wait_credit(&s.bad, 0, 2 * PUSH_ROWS + 1);
	if (!_i) {
		expect_rows(&s, 0, 1, 0, 0);
		raw_barrier(&s.bad, 1);
		ok(gs_step_end(s.good));
	}
	expect_rows(&s, 0, 60, 69, -1);
	raw_close(&s.bad);
	bed_wait_connected(&s.bed, 1);
	leave(s.good);
	bed_stop(&s.bed);
}
END_TEST

TCase *rows_bad_case(void)
{
	TCase *t = e2e_case("rows_bad");

	tcase_add_loop_test(t, offences_end_the_session, 0, 2 * OFFENCES);
	tcase_add_loop_test(t, dies_in_the_midst_of_a_push, 0, 2);
	tcase_add_loop_test(t, dies_behind_a_push, 0, 2);
	tcase_add_test(t, a_push_that_is_not_ended);
	tcase_add_test(t, a_push_over_barriers);
	tcase_add_loop_test(t, pieces_flow, 0, 2);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Lives of a rank.
 */
#include "life.h"

enum { PARAMS = LIFE_PARAMS, TABLE = LIFE_P_TABLE, PUSH_SPACE = 4096 };

#define ADDED(line_name)                                                           \
	.name = line_name, .rule = "add", .n_settings = 1, .setting = {{"lr", 1}}, \
	.init = WIRE_INIT_CONSTANT, .reduce = WIRE_SUM

static const struct wire_param params[PARAMS] = {
    {ADDED("dense"), .ndim = 1, .dim = {LIFE_DENSE}},
    {ADDED("whole"), .ndim = 1, .dim = {LIFE_WHOLE}, .nonfinite = WIRE_NONFINITE_REJECT},
    {ADDED("table"), .ndim = 2, .dim = {LIFE_ROWS, LIFE_DIM}, .storage = WIRE_TABLE,
     .slot_rows = LIFE_SLOT_ROWS, .push_rows = LIFE_PUSH, .pull_rows = LIFE_ROWS},
};

float life_value(uint32_t rank, uint64_t push, uint32_t p)
{
	return (float)(1 + (rank * 7 + push * 3 + p) % 5);
}

void life_rows(uint64_t push, int64_t ids[LIFE_PUSH])
{
	for (uint32_t i = 0; i < LIFE_PUSH; i++)
		ids[i] = (int64_t)((push * 5 + i) % LIFE_ROWS);
}

/* ---- dying ------------------------------------------------------------------------------------- */

/* A point at which it may die: true, its connection is gone then, with no bye. */
static bool dies(struct life *l, struct raw *r)
{
	if (!l->odds || !l->deaths || rnd(&l->rng, l->odds))
		return false;
	l->deaths--;
	l->died++;
	/* One who takes his mailbox back while the server attaches it looks like a liar. */
	if (!r->step)
		tp_conn_close(r->conn);
	raw_free(r);
	return true;
}

/* Waits until a word is what it must be, or it dies. */
static bool outlives(struct life *l, struct raw *r, uint64_t (*word)(struct raw *, uint32_t),
		     uint32_t block, uint64_t at_least)
{
	uint64_t deadline = clock_ns() + scaled(30, 90) * NS_PER_S;

	while (raw_poll(r), word(r, block) < at_least) {
		must(clock_ns() < deadline, "rank %u waited in vain for %llu", l->rank,
		     (unsigned long long)at_least);
		must(!r->closed, "rank %u: closed: %s", l->rank, tp_conn_reason(r->conn));
		tp_cq_wait(r->cq, 5);
	}
	return !dies(l, r);
}

static uint64_t released(struct raw *r, uint32_t unused)
{
	(void)unused;
	return raw_released(r);
}

/* ---- pushing ----------------------------------------------------------------------------------- */

/* Each block's pushes leave from memory of its own, so that none is overwritten under way. */
static float *source(struct raw *r, uint32_t block, uint32_t slot, uint64_t *at)
{
	*at = ((uint64_t)block * r->slots + slot) * PUSH_SPACE;
	return (float *)(void *)((uint8_t *)tp_arena_base(r->source) + *at);
}

static void push_block(struct raw *r, uint32_t p, uint32_t b, uint32_t slot, float value)
{
	const struct wire_place *place = &r->place[p];
	uint64_t first = b * place->block_elems, n = place->elems - first, at;
	float *from = source(r, place->first_block + b, slot, &at);

	n = n < place->block_elems ? n : place->block_elems;
	for (uint64_t i = 0; i < n; i++)
		from[i] = value;
	raw_write_from(r, at, place->slots_off + slot * place->slots_stride + 4 * first, 4 * n,
		       TP_F_IMM, imm_block(IMM_GRAD, place->first_block + b, slot, true));
}

static void push_piece(struct raw *r, uint64_t push, uint32_t piece, uint32_t slot, float value)
{
	const struct wire_place *place = &r->place[TABLE];
	uint32_t rows = piece ? LIFE_PUSH - LIFE_SLOT_ROWS : LIFE_SLOT_ROWS;
	uint64_t at, size = layout_slot_bytes(rows, LIFE_DIM * sizeof(float));
	int64_t *ids = (int64_t *)(void *)source(r, place->first_block, slot, &at);
	float *values = (float *)(void *)(ids + rows);
	struct layout_push_head *head = (void *)((uint8_t *)ids + PUSH_SPACE / 2);
	int64_t all[LIFE_PUSH];

	life_rows(push, all);
	memcpy(ids, all + piece * LIFE_SLOT_ROWS, rows * sizeof(*ids));
	for (uint32_t i = 0; i < rows * LIFE_DIM; i++)
		values[i] = value;
	*head = (struct layout_push_head){.rows = rows, .flags = piece ? 0 : LAYOUT_MORE_ROWS};
	raw_write_from(r, at + PUSH_SPACE / 2, place->heads_off + slot * sizeof(*head),
		       sizeof(*head), 0, 0);
	raw_write_from(r, at, place->slots_off + slot * place->slots_stride, size, TP_F_IMM,
		       imm_block(IMM_GRAD, place->first_block, slot, true));
}

/* ---- sync -------------------------------------------------------------------------------------- */

/* What the server has of the step it began in is not sent again. */
static bool push_step(struct life *l, struct raw *r, uint64_t step, uint64_t pieces)
{
	for (uint32_t p = 0; p < TABLE; p++)
		for (uint32_t b = 0; b < r->place[p].blocks; b++) {
			if (raw_kept(r, r->place[p].first_block + b) == step)
				continue;
			push_block(r, p, b, step % r->slots, life_value(l->rank, step, p));
			if (dies(l, r))
				return false;
		}
	for (uint32_t i = 0; i < 2 && raw_kept(r, r->place[TABLE].first_block) != step; i++) {
		uint32_t first = r->place[TABLE].first_block;

		if (pieces + i >= r->slots &&
		    !outlives(l, r, raw_credit, first, pieces + i + 1 - r->slots))
			return false;
		push_piece(r, step, i, (uint32_t)((pieces + i) % r->slots),
			   life_value(l->rank, step, TABLE));
		if (dies(l, r))
			return false;
	}
	return true;
}

static bool ends_step(struct life *l, struct raw *r, uint64_t step)
{
	raw_barrier(r, step);
	return !dies(l, r) && outlives(l, r, released, 0, step);
}

static bool make_steps(struct life *l, struct raw *r)
{
	uint64_t first = r->place[TABLE].first_block, pieces = 0;

	for (uint64_t step = r->step; step <= l->steps; step++) {
		bool has_rows = raw_kept(r, (uint32_t)first) == step;

		nap_us(l->pause_us);
		if (!push_step(l, r, step, pieces))
			return false;
		pieces += has_rows ? 0 : 2;
		if (!ends_step(l, r, step))
			return false;
	}
	return true;
}

/* ---- async ------------------------------------------------------------------------------------- */

static uint64_t least_kept(struct raw *r, uint32_t p)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t b = 0; b < r->place[p].blocks; b++) {
		uint64_t kept = raw_kept(r, r->place[p].first_block + b);

		least = kept < least ? kept : least;
	}
	return least;
}

static bool push_dense(struct life *l, struct raw *r, uint32_t p, uint64_t push, uint64_t base)
{
	for (uint32_t b = 0; b < r->place[p].blocks; b++) {
		uint32_t block = r->place[p].first_block + b;

		if (raw_kept(r, block) >= push)
			continue;
		if (push > base + r->slots &&
		    !outlives(l, r, raw_credit, block, push - base - r->slots))
			return false;
		push_block(r, p, b, (uint32_t)((push - base) % r->slots), life_value(l->rank, push, p));
		if (dies(l, r))
			return false;
	}
	return true;
}

static bool push_rows(struct life *l, struct raw *r, uint64_t push, uint64_t base)
{
	uint32_t first = r->place[TABLE].first_block;

	for (uint32_t i = 0; i < 2; i++) {
		uint64_t piece = 2 * (push - base - 1) + i;

		if (piece >= r->slots && !outlives(l, r, raw_credit, first, piece + 1 - r->slots))
			return false;
		push_piece(r, push, i, (uint32_t)(piece % r->slots), life_value(l->rank, push, TABLE));
		if (dies(l, r))
			return false;
	}
	return true;
}

static bool make_pushes(struct life *l, struct raw *r)
{
	uint64_t base[PARAMS], push = UINT64_MAX;

	for (uint32_t p = 0; p < PARAMS; p++) {
		base[p] = least_kept(r, p);
		push = base[p] < push ? base[p] : push;
		for (uint32_t b = 0; p != TABLE && b < r->place[p].blocks; b++) {
			uint32_t block = r->place[p].first_block + b;

			must(raw_credit(r, block) == raw_kept(r, block) - base[p], "block %u: credit",
			     block);
		}
	}
	for (uint64_t step = r->step; ++push <= l->steps; step++) {
		nap_us(l->pause_us);
		for (uint32_t p = 0; p < TABLE; p++)
			if (push > base[p] && !push_dense(l, r, p, push, base[p]))
				return false;
		if (push > base[TABLE] && !push_rows(l, r, push, base[TABLE]))
			return false;
		if (l->mode == SRV_SSP && !ends_step(l, r, step))
			return false;
	}
	for (uint32_t p = 0; p < PARAMS; p++)
		for (uint32_t b = 0; b < (p == TABLE ? 1 : r->place[p].blocks); b++)
			if (!outlives(l, r, raw_credit, r->place[p].first_block + b,
				      (l->steps - base[p]) * (p == TABLE ? 2 : 1)))
				return false;
	return true;
}

/* ---- a life ------------------------------------------------------------------------------------ */

static void keep_token(struct life *l, struct raw *r)
{
	memcpy(l->token, r->welcome.session, sizeof(l->token));
	l->has_token = true;
}

/* Its rank may still be held by the life before, of which the server has not heard that it ended. */
static bool get_welcome(struct life *l, struct raw *r)
{
	uint64_t deadline = clock_ns() + scaled(20, 60) * NS_PER_S;
	bool shows = l->has_token && rnd(&l->rng, 2);

	l->has_token = shows; /* else it is another process, with nothing to show */
	for (;;) {
		struct wire_error error;

		raw_connect(r, l->uri, 0);
		raw_hello_again(r, (int32_t)l->rank, shows ? l->token : NULL);
		while (raw_poll(r), r->first == r->last && !r->closed)
			tp_cq_wait(r->cq, 5);
		must(r->first != r->last, "rank %u: closed: %s", l->rank, tp_conn_reason(r->conn));
		if (r->inbox[r->first % 16].kind == WIRE_WELCOME)
			break;
		error = raw_expect(r, WIRE_ERROR).error;
		must(!shows && (error.code == WIRE_E_RANK || error.code == WIRE_E_FULL), "rank %u: %s",
		     l->rank, error.text);
		must(clock_ns() < deadline, "rank %u is never free", l->rank);
		raw_free(r);
		nap_us(2000);
	}
	r->welcome = raw_expect(r, WIRE_WELCOME).welcome;
	must(r->welcome.server, "no server id");
	must(!r->welcome.resumed || shows, "resumed, and no token was shown");
	must(r->welcome.resumed || !shows || !l->started, "rank %u: its place was not kept", l->rank);
	l->resumed += r->welcome.resumed;
	if (dies(l, r)) /* as if the welcome had never come */
		return false;
	if (shows)
		keep_token(l, r);
	return true;
}

static bool enters(struct life *l, struct raw *r)
{
	if (!get_welcome(l, r) || dies(l, r))
		return false;
	for (uint32_t p = 0; p < PARAMS; p++) {
		struct wire_msg msg = {.kind = WIRE_DECLARE,
				       .declare = {.last = p == PARAMS - 1, .n = 1}};

		msg.declare.param[0] = params[p];
		raw_send(r, &msg);
	}
	raw_take_grant(r);
	if (dies(l, r))
		return false;
	raw_attach(r, 0);
	if (dies(l, r))
		return false;
	raw_expect(r, WIRE_READY);
	keep_token(l, r); /* a new process has something to go on with from here on */
	if (dies(l, r))
		return false;
	raw_wait_start(r);
	l->started = true;
	return !dies(l, r);
}

void life_run(struct life *l)
{
	struct raw r;
	bool whole;

	do {
		whole = enters(l, &r) &&
			(l->mode == SRV_SYNC ? make_steps(l, &r) : make_pushes(l, &r));
	} while (!whole);
	raw_bye(&r);
}

/* ---- the sum ----------------------------------------------------------------------------------- */

static gs_param *declare(gs_trainer *t, const struct wire_param *p)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *out;

	d.name = p->name;
	d.ndim = p->ndim;
	for (uint32_t i = 0; i < p->ndim; i++)
		d.shape[i] = p->dim[i];
	d.optimizer = "add";
	gs_setting(&d, "lr", 1);
	d.reduce = GS_SUM;
	d.nonfinite = p->nonfinite == WIRE_NONFINITE_REJECT ? GS_NONFINITE_REJECT
							    : GS_NONFINITE_APPLY;
	if (p->storage == WIRE_TABLE) {
		d.kind = GS_TABLE;
		d.slot_rows = p->slot_rows;
		d.push_rows = p->push_rows;
		d.pull_rows = p->pull_rows;
	}
	ok(gs_declare(t, &d, &out));
	return out;
}

void life_declare(gs_trainer *t, gs_param *out[LIFE_PARAMS])
{
	for (uint32_t i = 0; i < PARAMS; i++)
		out[i] = declare(t, &params[i]);
}

double life_sum(uint32_t ranks, uint64_t steps, uint32_t p)
{
	double sum = 0;

	for (uint32_t r = 0; r < ranks; r++)
		for (uint64_t k = 1; k <= steps; k++)
			sum += (double)life_value(r, k, p);
	return sum;
}

void life_verify(const char *uri, uint32_t ranks, uint64_t steps)
{
	gs_trainer *t = connect_as(uri, -1);
	float w[LIFE_DENSE];
	gs_param *p[PARAMS];
	int64_t ids[LIFE_ROWS];
	double all = 0;

	life_declare(t, p);
	ok(gs_start(t));
	for (uint32_t i = 0; i < TABLE; i++) {
		ok(gs_pull(t, p[i], GS_ORDERED, w));
		for (uint64_t e = 0; e < params[i].dim[0]; e++)
			must((double)w[e] == life_sum(ranks, steps, i),
			     "element %llu of \"%s\" is %g instead of %g", (unsigned long long)e,
			     params[i].name, (double)w[e], life_sum(ranks, steps, i));
	}
	for (int64_t i = 0; i < LIFE_ROWS; i++)
		ids[i] = i;
	ok(gs_pull_rows(t, p[TABLE], ids, LIFE_ROWS, GS_ROWS_GATHER, w));
	for (uint32_t e = 0; e < LIFE_ROWS * LIFE_DIM; e++)
		all += (double)w[e];
	must(all == LIFE_PUSH * LIFE_DIM * life_sum(ranks, steps, TABLE),
	     "the table comes to %g instead of %g", all,
	     LIFE_PUSH * LIFE_DIM * life_sum(ranks, steps, TABLE));
	leave(t);
}

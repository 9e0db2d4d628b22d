/* SPDX-License-Identifier: Apache-2.0
 *
 * Chance against the server: parameters of all kinds in every mode, trainers of the library that
 * must never fail, and beside them processes that push, pull, end steps and set rates, break the
 * protocol now and then, write what the server reads while it reads it, and are killed anywhere.
 * Afterwards the server has what it had before.
 *
 * HOSTILE_SEED and HOSTILE_ROUNDS, EXTREME_SEED and EXTREME_ROUNDS take the place of the suite's
 * few rounds.
 */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cases.h"
#include "child.h"
#include "kernels/kern.h"
#include "raw.h"

enum { TRAINERS = 4, GOOD = 2, PARAMS_MAX = 5, CAPACITY = 40 };

/* ---- what is trained ---------------------------------------------------------------------------
 */

struct model {
	struct wire_param p[PARAMS_MAX];
	uint32_t n;
	struct srv_options opt;
};

static bool chance(uint64_t *rng, uint32_t one_in)
{
	return rnd(rng, one_in) == 0;
}

/* Adds the setting if the optimizer takes it. */
static void offer(struct wire_param *p, const char *name, double value)
{
	struct kern_setting s[WIRE_SETTINGS_MAX];
	struct wire_setting *last = &p->setting[p->n_settings];
	struct kern_opt opt;

	snprintf(last->name, sizeof(last->name), "%s", name);
	last->value = value;
	for (uint32_t i = 0; i <= p->n_settings; i++) {
		memcpy(s[i].name, p->setting[i].name, sizeof(s[i].name));
		s[i].value = p->setting[i].value;
	}
	if (kern_opt_parse(p->rule, s, p->n_settings + 1, &opt) == 0)
		p->n_settings++;
	else
		memset(last, 0, sizeof(*last));
}

/* Any of the optimizer's settings, at its limits or near them. */
static void offer_odd(struct wire_param *p, uint64_t *rng)
{
	static const double odd[] = {0,     1,    0.5,    0.999999999, 0.9999999, 1e-45,
				     1e-30, 1e-8, 3.4e38, 1e10,        -1,        -0.5};
	const struct kern_setting lr = {"lr", 0.01};
	struct kern_opt opt;
	const char *name;
	double value;

	ok(kern_opt_parse(p->rule, &lr, 1, &opt));
	for (uint32_t i = 0; kern_opt_setting(&opt, i, &name, &value); i++)
		if (strncmp(name, "clip_global", 11) != 0 && strcmp(name, "dc_lambda") != 0 &&
		    p->n_settings < WIRE_SETTINGS_MAX - 6 && chance(rng, 3))
			offer(p, name, odd[rnd(rng, 12)]);
}

static void pick_rule(struct wire_param *p, uint64_t *rng)
{
	const struct kern_setting lr = {"lr", 0.01};
	struct kern_opt opt;
	uint32_t rules = 0;

	while (kern_opt_at(rules))
		rules++;
	do
		snprintf(p->rule, sizeof(p->rule), "%s", kern_opt_at(rnd(rng, rules)));
	while (kern_opt_parse(p->rule, &lr, 1, &opt) ||
	       !(p->storage == WIRE_DENSE ? kern_opt_dense(&opt) : kern_opt_by_rows(&opt)));
	p->n_settings = 0;
	if (chance(rng, 3))
		offer_odd(p, rng);
	offer(p, "lr", 0.01);
}

static void pick_settings(struct wire_param *p, uint64_t *rng, enum srv_mode mode)
{
	if (chance(rng, 3))
		offer(p, "clip_norm", 0.5);
	if (mode == SRV_SYNC && chance(rng, 2))
		offer(p, "clip_global_norm", 0.5);
	if (mode != SRV_SYNC && p->storage == WIRE_DENSE && chance(rng, 2))
		offer(p, "dc_lambda", 0.1);
	if (chance(rng, 4))
		offer(p, "clip_value", 1);
	if (chance(rng, 4))
		offer(p, "weight_decay", 0.01);
	if (p->storage != WIRE_DENSE && chance(rng, 3)) {
		snprintf(p->setting[p->n_settings].name, sizeof(p->setting[0].name), "lazy");
		p->setting[p->n_settings++].value = 0;
	}
}

static void pick_dense(struct wire_param *p, uint64_t *rng)
{
	static const uint64_t lines[] = {1, 7, 255, 256, 257, 775, 1300};

	p->storage = WIRE_DENSE;
	p->ndim = 1 + rnd(rng, 3);
	p->dim[0] = lines[rnd(rng, 7)];
	if (p->ndim > 1)
		p->dim[0] = 1 + rnd(rng, 40);
	for (uint32_t i = 1; i < p->ndim; i++)
		p->dim[i] = 1 + rnd(rng, 9);
}

static void pick_table(struct wire_param *p, uint64_t *rng)
{
	p->storage = chance(rng, 2) ? WIRE_HASHED : WIRE_TABLE;
	p->ndim = 2;
	p->dim[0] = 1 + rnd(rng, CAPACITY);
	p->dim[1] = 1 + rnd(rng, chance(rng, 4) ? 300 : 9);
	p->slot_rows = 1 + rnd(rng, 8);
	if (chance(rng, 8)) { /* longer than what the kernels work on at once */
		p->dim[1] = 1000 + rnd(rng, 1500);
		p->slot_rows = 1 + rnd(rng, 4);
	}
	p->push_rows = p->slot_rows + rnd(rng, 20);
	p->pull_rows = 1 + rnd(rng, 12);
	if (p->storage == WIRE_HASHED) {
		p->admit_after = rnd(rng, 4);
		p->evict_after = rnd(rng, 6);
	}
}

static void pick_model(struct model *m, uint64_t seed)
{
	static const char *const schedules[] = {"", "cosine:steps=9,cycle=1,mult=3",
						"warmup:steps=5+step:every=3,gamma=0.9"};
	uint64_t rng = seed;

	memset(m, 0, sizeof(*m));
	m->opt = bed_options(TRAINERS, (enum srv_mode)(1 + rnd(&rng, 3)));
	if (m->opt.mode == SRV_SSP)
		m->opt.staleness = 1 + rnd(&rng, 3);
	m->opt.block_kib = 1;
	m->opt.workers = rnd(&rng, 3);
	m->opt.pollers = 1 + rnd(&rng, 2);
	m->opt.slots = 1 + rnd(&rng, 4);
	m->n = 1 + rnd(&rng, PARAMS_MAX);
	for (uint32_t i = 0; i < m->n; i++) {
		struct wire_param *p = &m->p[i];

		snprintf(p->name, sizeof(p->name), "p%u", i);
		(chance(&rng, 2) ? pick_dense : pick_table)(p, &rng);
		pick_rule(p, &rng);
		pick_settings(p, &rng, m->opt.mode);
		p->init = WIRE_INIT_CONSTANT + rnd(&rng, 3);
		p->init_a = 0;
		p->init_b = p->init == WIRE_INIT_CONSTANT ? 0 : 0.1;
		snprintf(p->schedule, sizeof(p->schedule), "%s", schedules[rnd(&rng, 3)]);
		p->grad_type = (enum wire_dtype)rnd(&rng, 3);
		p->weight_type = (enum wire_dtype)rnd(&rng, 3);
		p->reduce = (enum wire_reduce)rnd(&rng, 3);
		p->nonfinite = (enum wire_nonfinite)rnd(&rng, 3);
	}
}

static size_t grad_size(const struct wire_param *p)
{
	return p->grad_type == WIRE_F32 ? 4 : 2;
}

/* ---- good trainers -----------------------------------------------------------------------------
 */

struct good {
	const struct model *model;
	const char *uri;
	uint32_t rank;
	uint64_t leave_at; /* steps; 0: when `end` says so */
	_Atomic bool *end;
	_Atomic uint64_t made;
	gs_trainer *t;
	gs_param *p[PARAMS_MAX];
	uint64_t rng;
	pthread_t thread;
};

static void declare(struct good *g, uint32_t i)
{
	const struct wire_param *w = &g->model->p[i];
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = w->name;
	d.ndim = w->ndim;
	memcpy(d.shape, w->dim, sizeof(w->dim));
	d.optimizer = w->rule;
	for (uint32_t k = 0; k < w->n_settings; k++)
		gs_setting(&d, w->setting[k].name, w->setting[k].value);
	d.init = (enum gs_init)(GS_INIT_CONSTANT + w->init - WIRE_INIT_CONSTANT);
	d.init_a = w->init_a;
	d.init_b = w->init_b;
	d.schedule = w->schedule;
	d.grad_dtype = (enum gs_dtype)w->grad_type;
	d.weight_dtype = (enum gs_dtype)w->weight_type;
	d.reduce = (enum gs_reduce)w->reduce;
	d.nonfinite = (enum gs_nonfinite)w->nonfinite;
	d.kind = (enum gs_kind)w->storage;
	d.slot_rows = w->slot_rows;
	d.push_rows = w->push_rows;
	d.pull_rows = w->pull_rows;
	d.admit_after = w->admit_after;
	d.evict_after = w->evict_after;
	ok(gs_declare(g->t, &d, &g->p[i]));
}

/* A full table refuses, and nothing else goes wrong. */
static void fine(const struct good *g, int rc, const char *what)
{
	if (e2e_in_role && (rc == -ESHUTDOWN || rc == -ECONNRESET))
		_exit(3); /* the test knows whether the server is ending */
	must(rc == 0 || rc == -ENOSPC, "%s of trainer %u: %d: %s", what, g->rank, rc, err_text());
}

static void some_ids(const struct wire_param *p, uint64_t *rng, int64_t *id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		id[i] = rnd(rng, p->storage == WIRE_HASHED ? 3 * CAPACITY : (uint32_t)p->dim[0]);
}

static void good_part(struct good *g, uint32_t i, bool pushes)
{
	static const float zeros[1 << 17];
	static const enum gs_rows_way ways[] = {GS_ROWS_AUTO, GS_ROWS_GATHER, GS_ROWS_READ};
	static _Thread_local float w[1 << 17];
	const struct wire_param *p = &g->model->p[i];
	int64_t id[64];
	uint32_t n;

	if (p->storage == WIRE_DENSE) {
		fine(g, gs_pull(g->t, g->p[i], (enum gs_consistency)rnd(&g->rng, 3), w), "pull");
		if (pushes)
			fine(g, gs_push(g->t, g->p[i], zeros), "push");
		return;
	}
	n = 1 + rnd(&g->rng, 30);
	some_ids(p, &g->rng, id, n);
	fine(g,
	     gs_pull_rows(g->t, g->p[i], id, n,
			  ways[rnd(&g->rng, p->storage == WIRE_HASHED ? 2 : 3)], w),
	     "pull of rows");
	n = rnd(&g->rng, p->push_rows + 1);
	some_ids(p, &g->rng, id, n);
	if (pushes)
		fine(g, gs_push_rows(g->t, g->p[i], id, zeros, n), "push of rows");
}

static void good_step(struct good *g)
{
	for (uint32_t i = 0; i < g->model->n; i++) {
		if (chance(&g->rng, 16))
			fine(g, gs_set_lr(g->t, g->p[i], 0.001 * rnd(&g->rng, 100)), "rate");
		good_part(g, i, !chance(&g->rng, 8));
	}
	if (g->model->opt.mode != SRV_ASYNC)
		fine(g, gs_step_end(g->t), "end of a step");
	g->made++;
}

static void *good_main(void *arg)
{
	struct good *g = arg;

	g->t = connect_as(g->uri, (int32_t)g->rank);
	for (uint32_t i = 0; i < g->model->n; i++)
		declare(g, i);
	ok(gs_start(g->t));
	while (g->leave_at ? g->made < g->leave_at : !*g->end)
		good_step(g);
	leave(g->t);
	return NULL;
}

/* ---- bad ones, in processes of their own -------------------------------------------------------
 */

struct bad {
	struct model model;
	struct raw r;
	uint64_t rng;
	uint32_t evil; /* one deed in so many breaks the protocol; 0: none */
	uint8_t *mem;  /* the slots, mapped; NULL: over a network */
	uint64_t pushes[PARAMS_MAX];
	uint64_t step;
	uint64_t scribbles; /* chance of the thread that scribbles */
};

static bool over(struct bad *b)
{
	raw_poll(&b->r);
	b->r.first = b->r.last;
	return b->r.closed;
}

/* Waits for a message of the kind; false: it is over. */
static bool next(struct bad *b, enum wire_kind kind, struct wire_msg *msg)
{
	for (;;) {
		raw_poll(&b->r);
		while (b->r.first != b->r.last) {
			*msg = b->r.inbox[b->r.first++ % 16];
			if (msg->kind == kind)
				return true;
			if (msg->kind == WIRE_ERROR)
				return false;
		}
		if (b->r.closed)
			return false;
		tp_cq_wait(b->r.cq, 5);
	}
}

static bool bad_join(struct bad *b, const char *uri)
{
	struct raw *r = &b->r;
	struct wire_msg msg;

	raw_connect(r, uri, 0);
	r->deaf = true;
	raw_hello(r, -1);
	if (!next(b, WIRE_WELCOME, &msg))
		return false;
	for (uint32_t i = 0; i < b->model.n; i += WIRE_PARAMS_MAX) {
		struct wire_msg d = {.kind = WIRE_DECLARE};

		for (; d.declare.n < WIRE_PARAMS_MAX && i + d.declare.n < b->model.n; d.declare.n++)
			d.declare.param[d.declare.n] = b->model.p[i + d.declare.n];
		d.declare.last = i + d.declare.n == b->model.n;
		raw_send(r, &d);
	}
	do {
		if (!next(b, WIRE_GRANT, &msg))
			return false;
		r->grant = msg.grant;
		memcpy(r->place + r->n_places, msg.grant.place, msg.grant.n * sizeof(r->place[0]));
		r->n_places += msg.grant.n;
	} while (!msg.grant.last);
	r->slots = r->grant.slots;
	r->blocks = r->grant.blocks;
	/* As long as any landing area is. */
	r->place[r->n_places - 1].elems += 65536;
	raw_attach(r, 0);
	r->place[r->n_places - 1].elems -= 65536;
	if (!next(b, WIRE_READY, &msg) || !next(b, WIRE_START, &msg))
		return false;
	b->step = msg.start.step;
	b->mem = tp_remote_map(r->slot_mem);
	return true;
}

static uint32_t odd_count(uint64_t *rng, uint32_t limit)
{
	const uint32_t n[] = {0, 1, limit, limit + 1, UINT32_MAX, UINT32_MAX / 2 + 1, limit / 2};

	return n[rnd(rng, 7)];
}

static int64_t odd_id(uint64_t *rng, const struct wire_param *p)
{
	const int64_t id[] = {0,         -1,        (int64_t)p->dim[0], (int64_t)p->dim[0] - 1,
			      INT64_MIN, INT64_MAX, (int64_t)1 << 40};

	return id[rnd(rng, 7)];
}

/* Over shm: changes something that the server may be about to read, or be reading. (Races are
 * meant: ThreadSanitizer is not told.) */
__attribute__((no_sanitize("thread"))) static void scribble(struct bad *b, uint64_t *rng,
							    bool mildly)
{
	static const float odd[] = {0, 1, -1, 3e38f, 1e-38f, 0x1p60f, 0x1p-60f, __builtin_nanf("")};
	uint32_t i = rnd(rng, b->model.n), slot = rnd(rng, b->r.slots);
	const struct wire_place *place = &b->r.place[i];
	const struct wire_param *p = &b->model.p[i];
	struct layout_push_head *head =
	    (void *)(b->mem + place->heads_off + slot * place->heads_stride);
	uint8_t *data = b->mem + place->slots_off + slot * place->slots_stride;
	bool table = p->storage != WIRE_DENSE;
	struct layout_request_head *request =
	    (struct layout_request_head *)(void *)(b->mem + place->request_off);

	switch (rnd(rng, table ? 8 : 4)) {
	case 0:
		__atomic_store_n(&head->seen, (uint64_t)rnd(rng, 5) - 2, __ATOMIC_RELAXED);
		break;
	case 1:
		*(volatile float *)&head->weight = odd[mildly ? rnd(rng, 2) : rnd(rng, 8)];
		break;
	case 2:
		*(volatile float *)&head->scale = odd[mildly ? rnd(rng, 2) : rnd(rng, 8)];
		break;
	case 3:
		((volatile uint16_t *)(void *)data)[rnd(rng, (uint32_t)place->slots_stride / 2)] =
		    (uint16_t)(chance(rng, 2) ? 0xffff : rnd(rng, 65536));
		break;
	case 4:
		__atomic_store_n(&head->rows, odd_count(rng, p->slot_rows), __ATOMIC_RELAXED);
		break;
	case 5:
		__atomic_store_n(&head->flags, rnd(rng, mildly ? 2 : 4), __ATOMIC_RELAXED);
		break;
	case 6:
		__atomic_store_n(&request->rows, odd_count(rng, p->pull_rows), __ATOMIC_RELAXED);
		break;
	default:
		__atomic_store_n(
		    (int64_t *)(void *)(chance(rng, 2) ? data : (uint8_t *)(request + 1)) +
			rnd(rng, 8) % p->pull_rows % p->slot_rows,
		    odd_id(rng, p), __ATOMIC_RELAXED);
		break;
	}
}

static void *scribble_main(void *arg)
{
	struct bad *b = arg;
	uint64_t rng = b->scribbles;
	bool mildly = rnd(&rng, 2);

	for (;;) {
		scribble(b, &rng, mildly);
		if (chance(&rng, 64))
			nap_us(rnd(&rng, 300));
	}
	return NULL;
}

static uint64_t credit(struct bad *b, uint32_t block)
{
	uint8_t *base = tp_arena_base(b->r.mailbox);

	return __atomic_load_n((uint64_t *)(void *)(base + layout_credit_off(block)),
			       __ATOMIC_ACQUIRE);
}

/* A slot for the next piece or push of parameter i. */
static bool has_slot(struct bad *b, uint32_t i)
{
	const struct wire_place *place = &b->r.place[i];
	bool table = b->model.p[i].storage != WIRE_DENSE;

	if (!table && b->model.opt.mode == SRV_SYNC)
		return true;
	for (int tries = 0; tries < 40; tries++) {
		uint64_t least = UINT64_MAX;

		for (uint32_t k = 0; k < (table ? 1 : place->blocks); k++) {
			uint64_t c = credit(b, place->first_block + k);

			least = c < least ? c : least;
		}
		if (b->pushes[i] < least + b->r.slots)
			return true;
		if (over(b))
			return false;
		tp_cq_wait(b->r.cq, 1);
	}
	return false;
}

static void fill(struct bad *b, uint64_t at, uint64_t len, size_t size)
{
	uint8_t *source = (uint8_t *)tp_arena_base(b->r.source) + at;

	memset(source, 0, len);
	for (uint64_t k = 0; k + size <= len && !chance(&b->rng, 4);
	     k += size * (1 + rnd(&b->rng, 50)))
		source[k + size - 1] = chance(&b->rng, 50) ? 0x7f : 0x3c;
	if (chance(&b->rng, 10) && len >= 4)
		memset(source, 0xff, 4);
}

static void push_dense(struct bad *b, uint32_t i)
{
	const struct wire_place *place = &b->r.place[i];
	const struct wire_param *p = &b->model.p[i];
	uint64_t push = b->pushes[i], slot = push % b->r.slots;
	uint32_t turn = rnd(&b->rng, place->blocks), missing = chance(&b->rng, 30);

	for (uint32_t k = 0; k + missing < place->blocks && !over(b); k++) {
		uint32_t block = (k + turn) % place->blocks;
		uint64_t first = block * place->block_elems, n = place->elems - first;

		n = (n < place->block_elems ? n : place->block_elems) * grad_size(p);
		fill(b, 0, n, grad_size(p));
		if (b->evil && chance(&b->rng, b->evil))
			slot = rnd(&b->rng, 8);
		raw_write(&b->r,
			  place->slots_off + slot % b->r.slots * place->slots_stride +
			      first * grad_size(p),
			  n,
			  imm_block(IMM_GRAD, place->first_block + block, (uint32_t)slot,
				    chance(&b->rng, 2)));
	}
	b->pushes[i]++;
}

/* False: it could not go on. */
static bool push_piece(struct bad *b, uint32_t i, uint32_t rows, bool more)
{
	const struct wire_place *place = &b->r.place[i];
	const struct wire_param *p = &b->model.p[i];
	struct layout_push_head head = {.flags = more, .rows = rows};
	uint64_t len = layout_slot_bytes(rows, p->dim[1] * grad_size(p));
	uint32_t slot;

	if (!has_slot(b, i))
		return false;
	slot = (uint32_t)(b->pushes[i]++ % b->r.slots);
	fill(b, 8 * rows, len - 8 * (rows ? rows : 1), grad_size(p));
	some_ids(p, &b->rng, tp_arena_base(b->r.source), rows);
	if (b->evil && chance(&b->rng, b->evil) && rows)
		*(int64_t *)tp_arena_base(b->r.source) = odd_id(&b->rng, p);
	if (b->evil && chance(&b->rng, b->evil))
		head.rows = odd_count(&b->rng, p->slot_rows);
	if (chance(&b->rng, 8))
		head.weight = head.scale = (float)(1 + rnd(&b->rng, 9));
	raw_head(&b->r, i, slot, &head);
	return raw_write(&b->r, place->slots_off + slot * place->slots_stride, len,
			 imm_block(IMM_GRAD, place->first_block, slot, chance(&b->rng, 2)));
}

static void push_rows(struct bad *b, uint32_t i)
{
	const struct wire_param *p = &b->model.p[i];
	uint32_t left = rnd(&b->rng, p->push_rows + 1);
	bool ends = !chance(&b->rng, 30);

	for (int pieces = 0; pieces < 40; pieces++) {
		uint32_t most = left < p->slot_rows ? left : p->slot_rows,
			 n = rnd(&b->rng, most + 1);
		bool more = left > n || chance(&b->rng, 3);

		if (!ends && !more)
			return;
		if (!push_piece(b, i, n, more && pieces < 39) || !more)
			return;
		left -= n;
	}
}

static void pull(struct bad *b, uint32_t i)
{
	const struct wire_place *place = &b->r.place[i];
	const struct wire_param *p = &b->model.p[i];
	uint32_t block = place->first_block + rnd(&b->rng, place->blocks);
	struct layout_request_head *head = tp_arena_base(b->r.source);
	uint64_t len = 8;

	if (p->storage != WIRE_DENSE) {
		block = place->first_block;
		memset(head, 0, sizeof(*head));
		head->rows = 1 + rnd(&b->rng, p->pull_rows);
		len = layout_request_bytes(head->rows);
		some_ids(p, &b->rng, (int64_t *)(void *)(head + 1), head->rows);
		if (b->evil && chance(&b->rng, b->evil))
			head->rows = odd_count(&b->rng, p->pull_rows);
		if (b->evil && chance(&b->rng, b->evil))
			*(int64_t *)(void *)(head + 1) = odd_id(&b->rng, p);
	}
	raw_write(&b->r, p->storage != WIRE_DENSE ? place->request_off : 0, len,
		  imm_block(IMM_PULL, block, 0, false));
	if (!chance(&b->rng, 5))
		for (uint32_t n = b->r.imms, tries = 0; n == b->r.imms && tries < 5 && !over(b);
		     tries++)
			tp_cq_wait(b->r.cq, 1);
}

static void deed_of_evil(struct bad *b)
{
	struct wire_msg msg = {.kind = WIRE_SET_RATE, .set_rate = {rnd(&b->rng, 9), 0.1}};
	uint8_t junk[64];

	switch (rnd(&b->rng, 5)) {
	case 0:
		raw_write(&b->r, 0, 8, (uint32_t)mix64(b->rng));
		break;
	case 1:
		for (uint32_t i = 0; i < sizeof(junk); i++)
			junk[i] = (uint8_t)rnd(&b->rng, 256);
		raw_send_bytes(&b->r, junk, 1 + rnd(&b->rng, 63));
		break;
	case 2:
		raw_send(&b->r, &msg);
		raw_send(&b->r, &msg);
		break;
	case 3:
		raw_barrier(&b->r, b->step + rnd(&b->rng, 3) - 1);
		break;
	default:
		msg.kind = chance(&b->rng, 2) ? WIRE_BYE : WIRE_INIT_DONE;
		raw_send(&b->r, &msg);
		break;
	}
}

static void bad_part(struct bad *b, uint32_t i)
{
	struct wire_msg rate = {.kind = WIRE_SET_RATE, .set_rate = {i, 0.001 * rnd(&b->rng, 100)}};
	bool pushed = false;

	for (int deeds = 0; deeds < 3; deeds++) {
		if (over(b))
			return;
		if (b->evil && chance(&b->rng, 4 * b->evil))
			deed_of_evil(b);
		if (chance(&b->rng, 2))
			pull(b, i);
		if (chance(&b->rng, 30))
			raw_send(&b->r, &rate);
		if ((pushed && b->model.opt.mode == SRV_SYNC) || chance(&b->rng, 3))
			continue;
		pushed = true;
		if (b->model.p[i].storage != WIRE_DENSE)
			push_rows(b, i);
		else if (has_slot(b, i))
			push_dense(b, i);
	}
}

static bool wait_step(struct bad *b)
{
	while (raw_released(&b->r) < b->step)
		if (over(b))
			return false;
		else
			tp_cq_wait(b->r.cq, 2);
	b->step++;
	return true;
}

/* One of the library's, which may die anywhere. */
static int mortal(struct good *g, long steps)
{
	g->t = connect_as(g->uri, -1);
	for (uint32_t i = 0; i < g->model->n; i++)
		declare(g, i);
	ok(gs_start(g->t));
	for (long i = 0; i < steps; i++)
		good_step(g);
	if (chance(&g->rng, 2))
		ok(gs_leave(g->t));
	gs_close(g->t);
	return 0;
}

/* URI SEED DEEDS: so many steps of one who is good, bad or hurried; then a bye, or none. */
static int live(char **arg)
{
	static struct bad b;
	uint64_t seed = strtoull(arg[1], NULL, 10);
	pthread_t thread;

	alarm(scaled(30, 90)); /* what it waits for comes, or its end is seen */
	pick_model(&b.model, seed >> 16);
	b.rng = mix64(seed);
	b.scribbles = mix64(b.rng);
	if (chance(&b.rng, 4))
		return mortal(&(struct good){.model = &b.model, .uri = arg[0], .rng = b.rng},
			      atol(arg[2]));
	b.evil = chance(&b.rng, 3) ? 0 : 10 + rnd(&b.rng, 200);
	if (!bad_join(&b, arg[0]))
		return 0;
	if (b.mem && chance(&b.rng, 3))
		pthread_create(&thread, NULL, scribble_main, &b);
	for (long i = 0; i < atol(arg[2]) && !over(&b); i++) {
		for (uint32_t p = 0; p < b.model.n; p++)
			bad_part(&b, p);
		if (b.model.opt.mode == SRV_ASYNC)
			continue;
		raw_barrier(&b.r, b.step);
		if (!wait_step(&b))
			return 0;
	}
	if (chance(&b.rng, 2))
		raw_send(&b.r, &(struct wire_msg){.kind = WIRE_BYE});
	nap_us(1000);
	return 0;
}

int hostile_role(char **arg)
{
	_exit(live(arg)); /* the thread that scribbles goes on meanwhile */
}

/* ---- the play ----------------------------------------------------------------------------------
 */

static uint32_t open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

struct base {
	struct bed *bed;
	uint64_t memory;
	uint32_t files;
};

static bool is_flat(void *arg)
{
	struct base *b = arg;

	return bed_stats(b->bed).memory <= b->memory && open_files() <= b->files;
}

struct makes {
	struct good *good;
	uint64_t n;
};

static bool has_made(void *arg)
{
	struct makes *m = arg;

	return m->good->made >= m->n;
}

static void go_on(struct good *good)
{
	for (int i = 0; i < GOOD; i++)
		wait_until(has_made, &(struct makes){&good[i], good[i].made + 2},
			   "the good ones' steps");
}

struct attacker {
	char uri[64];
	uint64_t seed, rng;
	uint32_t n;
	_Atomic bool *ending; /* the server is: whoever comes now finds nobody */
	pthread_t thread;
};

static void attack(struct attacker *a)
{
	char text[32], deeds[16];
	struct child child;

	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)(a->seed << 16 | rnd(&a->rng, 65536)));
	snprintf(deeds, sizeof(deeds), "%u", 1 + rnd(&a->rng, 60));
	child_start(&child, "hostile", a->uri, text, deeds, NULL);
	if (!chance(&a->rng, 3)) {
		nap_us(20000 + rnd(&a->rng, 150000));
		child_signal(&child, SIGKILL);
	}
	int status = child_end(&child);
	must(status == 0 || status == 128 + SIGKILL || (status == 3 && *a->ending),
	     "seed %llu: the bad one ended with %d", (unsigned long long)a->seed, status);
}

static void *attack_main(void *arg)
{
	struct attacker *a = arg;

	for (uint32_t i = 0; i < a->n && !*a->ending; i++)
		attack(a);
	return NULL;
}

static void end_good(struct good *good, _Atomic bool *end)
{
	*end = true;
	for (uint32_t i = 0; i < GOOD; i++)
		pthread_join(good[i].thread, NULL);
}

/* Every third seed's server stops while it is attacked. */
static void play(uint64_t seed)
{
	struct good good[TRAINERS];
	struct attacker attacker[2];
	_Atomic bool end = false, ending = false;
	bool early = seed % 3 == 2;
	struct base base;
	struct model m;
	struct bed bed;

	pick_model(&m, seed);
	bed_start(&bed, &m.opt);
	for (uint32_t i = 0; i < TRAINERS; i++) {
		good[i] = (struct good){.model = &m,
					.uri = bed.uri,
					.rank = i,
					.end = &end,
					.leave_at = i < GOOD ? 0 : 3,
					.rng = seed + i};
		pthread_create(&good[i].thread, NULL, good_main, &good[i]);
	}
	for (uint32_t i = GOOD; i < TRAINERS; i++)
		pthread_join(good[i].thread, NULL);
	bed_wait_connected(&bed, GOOD);
	go_on(good);
	base = (struct base){&bed, bed_stats(&bed).memory, open_files()};
	for (uint32_t i = 0; i < 2; i++) {
		attacker[i] = (struct attacker){
		    .seed = seed, .rng = mix64(seed + 10 * i), .n = 6, .ending = &ending};
		snprintf(attacker[i].uri, sizeof(attacker[i].uri), "%s", bed.uri);
		pthread_create(&attacker[i].thread, NULL, attack_main, &attacker[i]);
	}
	if (early) {
		uint64_t rng = seed;

		nap_us(rnd(&rng, 500000));
		end_good(good, &end);
		ending = true;
		bed_stop(&bed);
	}
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(attacker[i].thread, NULL);
	if (early)
		return;
	bed_wait_connected(&bed, GOOD);
	go_on(good);
	wait_until(is_flat, &base, "what the bad ones held");
	end_good(good, &end);
	bed_stop(&bed);
}

START_TEST(plays)
{
	const char *seed = getenv("HOSTILE_SEED"), *rounds = getenv("HOSTILE_ROUNDS");
	uint64_t from = seed ? strtoull(seed, NULL, 10) : 100 * (uint64_t)_i;

	/* Where the slots can't be written behind the server's back there is little of chance in
	 * it. */
	if (!over_shm())
		return;
	for (uint64_t i = 0; i < (rounds ? strtoull(rounds, NULL, 10) : scaled(2, 1)); i++) {
		if (rounds)
			fprintf(stderr, "seed %llu\n", (unsigned long long)(from + i));
		play(from + i);
	}
}
END_TEST

/* ---- declarations at their limits --------------------------------------------------------------
 */

/* From 1 to 2^bits, its logarithm by chance; now and then a power of two, or one beside it. */
static uint64_t any_size(uint64_t *rng, uint32_t bits)
{
	uint64_t power = (uint64_t)1 << rnd(rng, bits + 1);

	switch (rnd(rng, 4)) {
	case 0:
		return power;
	case 1:
		return power > 1 ? power - 1 : 1;
	case 2:
		return power + 1;
	default:
		return 1 + mix64(*rng) % power;
	}
}

static void pick_extreme(struct wire_param *p, uint64_t *rng, uint32_t i)
{
	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "%0*u", 1 + (int)rnd(rng, WIRE_NAME_MAX - 10), i);
	p->storage = (enum wire_storage)rnd(rng, 3);
	p->ndim = p->storage == WIRE_DENSE ? 1 + rnd(rng, WIRE_DIMS_MAX) : 2;
	for (uint32_t k = 0; k < p->ndim; k++)
		p->dim[k] = any_size(rng, 40 / p->ndim + rnd(rng, 8));
	if (p->storage != WIRE_DENSE) {
		p->slot_rows = (uint32_t)any_size(rng, 26);
		p->push_rows = (uint32_t)any_size(rng, 26);
		if (chance(rng, 2) && p->push_rows < p->slot_rows)
			p->push_rows = p->slot_rows;
		p->pull_rows = (uint32_t)any_size(rng, 26);
	}
	if (p->storage == WIRE_HASHED) {
		p->admit_after = (uint32_t)any_size(rng, 17) - 1;
		p->evict_after = any_size(rng, 63);
	}
	pick_rule(p, rng);
	for (uint32_t k = 0; k < 2; k++)
		pick_settings(p, rng, (enum srv_mode)(1 + rnd(rng, 2)));
	p->init = (enum wire_init)(WIRE_INIT_TRAINER + rnd(rng, 4));
	p->init_b = 1;
	p->grad_type = (enum wire_dtype)rnd(rng, 3);
	p->weight_type = (enum wire_dtype)rnd(rng, 3);
	p->nonfinite = (enum wire_nonfinite)rnd(rng, 3);
	memset(p->schedule, '9', rnd(rng, 2) * rnd(rng, WIRE_SCHEDULE_MAX));
	if (chance(rng, 4))
		snprintf(p->schedule, sizeof(p->schedule), "cosine:steps=9007199254740992");
	else if (!chance(rng, 8))
		p->schedule[0] = 0;
}

/* True: it was granted. */
static bool declares(struct bed *bed, uint64_t *rng)
{
	struct bad b = {.rng = *rng};
	struct wire_msg msg, d = {.kind = WIRE_DECLARE};
	uint8_t buf[WIRE_MSG_MAX];
	bool granted;

	bed_wait_connected(bed, 0); /* or its rank is still held */
	raw_connect(&b.r, bed->uri, 0);
	raw_hello(&b.r, -1);
	must(next(&b, WIRE_WELCOME, &msg), "no welcome");
	d.declare.n = 1 + rnd(rng, 2);
	d.declare.last = true;
	for (uint32_t i = 0; i < d.declare.n; i++)
		do
			pick_extreme(&d.declare.param[i], rng, i);
		while (wire_encode(&(struct wire_msg){.kind = WIRE_DECLARE,
						      .declare = {true, 1, {d.declare.param[i]}}},
				   buf, sizeof(buf)) < 0);
	raw_send(&b.r, &d);
	granted = next(&b, WIRE_GRANT, &msg);
	must(granted || msg.kind == WIRE_ERROR, "it hung up without a word");
	must(granted || msg.error.code == WIRE_E_MEMORY || msg.error.code == WIRE_E_MISMATCH,
	     "code %d: %s", (int)msg.error.code, msg.error.text);
	if (getenv("EXTREME_SEED"))
		fprintf(stderr, "%s\n", granted ? "granted" : msg.error.text);
	raw_close(&b.r);
	return granted;
}

START_TEST(extreme_declarations)
{
	const char *seed = getenv("EXTREME_SEED"), *rounds = getenv("EXTREME_ROUNDS");
	uint64_t rng = seed ? strtoull(seed, NULL, 10) : 5;

	for (uint64_t i = 0; i < (rounds ? strtoull(rounds, NULL, 10) : scaled(20, 4)); i++) {
		struct srv_options opt = bed_options(1, (enum srv_mode)(1 + rnd(&rng, 2)));
		struct bed bed;

		opt.trainers = chance(&rng, 2) ? SRV_MAX_TRAINERS : 1 + rnd(&rng, 8);
		opt.slots = 1 + rnd(&rng, 8);
		opt.block_kib = 1u << rnd(&rng, 12);
		opt.max_memory = (uint64_t)1 << (20 + rnd(&rng, 7));
		bed_start(&bed, &opt);
		for (int k = 0; k < 20 && !declares(&bed, &rng); k++)
			;
		bed_stop(&bed);
	}
}
END_TEST

TCase *hostile_case(void)
{
	TCase *t = e2e_case("hostile");

	tcase_add_loop_test(t, plays, 0,
			    getenv("HOSTILE_SEED")   ? 1
			    : getenv("EXTREME_SEED") ? 0
						     : 3);
	tcase_add_test(t, extreme_declarations);
	return t;
}

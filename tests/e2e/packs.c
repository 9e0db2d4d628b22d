/* SPDX-License-Identifier: Apache-2.0
 *
 * Many small parameters, which lie in packs and are pushed together: whatever is pushed in which call,
 * the weights are those of one push after the other. And packs that no library would push.
 */
#include <math.h>

#include "cases.h"
#include "raw.h"

/* ---- together, or one by one -------------------------------------------------------------------- */

enum { MANY = 90, LONGEST = 3000, STEPS = 12, RANKS = 2 };

/* How pushes are made. */
enum manner {
	SINGLY,
	TOGETHER,
	TURNED,  /* together, the last declared first */
	IN_PLACE, /* together, out of gs_grad_buffer's */
	MIXED,   /* some singly, the others together */
	APART,   /* by one trainer together, by the other singly */
	MANNERS
};

/* What the parameters are. */
enum model {
	MOTLEY, /* of all kinds: some are used whole, so that hardly a pack is joint */
	ALIKE,  /* runs of the same kind, which lie one behind the other: packs are joint (sync mode) */
	MODELS
};

struct many {
	const char *uri;
	enum srv_mode mode;
	enum manner manner;
	enum model model;
	uint32_t rank;
	gs_trainer *t;
	gs_param *p[MANY];
	uint64_t elems[MANY];
	enum gs_dtype type[MANY];
	float init[LONGEST];
	float grad[MANY][LONGEST]; /* as they travel */
	pthread_t thread;
};

/* Long ones are of several blocks, or too long for a pack; the others make packs of all lengths. */
static uint64_t length(enum model model, uint32_t i)
{
	if (model == ALIKE)
		return i % 23 == 7 ? 17 + i : 32 * (1 + mix64(i) % 4);
	return i % 17 == 5 ? LONGEST - i : 1 + mix64(i) % (i % 3 ? 9 : 300);
}

static bool is_accumulated(const struct many *m, uint32_t i)
{
	return m->model == MOTLEY && i % 29 == 11;
}

/* Which of so many kinds parameter i is: each differs from its neighbours, or rarely. */
static bool is_kind(const struct many *m, uint32_t i, uint32_t kinds, uint32_t kind)
{
	return (m->model == ALIKE ? i / 8 : i) % kinds == kind;
}

static void declare_one(struct many *m, uint32_t i)
{
	static const char *const rules[] = {"sgd", "momentum", "adam"};
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	char name[16];

	snprintf(name, sizeof(name), "p%u", i);
	m->elems[i] = length(m->model, i);
	m->type[i] = is_kind(m, i, 7, 3) ? GS_BF16 : GS_F32;
	d.name = name;
	d.ndim = 1;
	d.shape[0] = m->elems[i];
	for (uint32_t k = 0; k < 3; k++)
		if (is_kind(m, i, 3, k))
			d.optimizer = rules[k];
	gs_setting(&d, "lr", 0.125);
	if (is_kind(m, i, 3, 1))
		gs_setting(&d, "momentum", 0.5);
	if (m->model == MOTLEY && i % 13 == 4)
		gs_setting(&d, "clip_norm", 2); /* used whole */
	d.grad_dtype = m->type[i];
	d.accumulate = is_accumulated(m, i) ? 2 : 0;
	if (i % 5 == 2) {
		d.init = GS_INIT_DATA;
		d.init_data = m->init;
	} else {
		d.init = GS_INIT_UNIFORM;
		d.init_a = -1;
		d.init_b = 1;
		d.init_seed = i;
	}
	ok(gs_declare(m->t, &d, &m->p[i]));
}

static bool is_left_out(uint32_t rank, uint64_t step, uint32_t i)
{
	return step % 3 == 1 && mix64(step * 1000 + i + 7 * rank) % 5 == 0;
}

static void make_gradient(struct many *m, uint64_t step, uint32_t i)
{
	for (uint64_t k = 0; k < m->elems[i]; k++) {
		int64_t x = (int64_t)mix64(step * 7919 + i * 104729 + k * 31 + m->rank) >> 40;
		float g = (float)x * 0x1p-23f;

		if (m->type[i] == GS_F32)
			m->grad[i][k] = g;
		else
			((uint16_t *)(void *)m->grad[i])[k] =
			    (uint16_t)(0x3f00 | (x & 0x7f)); /* 0.5 … 1, as bfloat16 */
	}
}

static void *buffer(struct many *m, uint32_t i)
{
	void *at;

	ok(gs_grad_buffer(m->t, m->p[i], &at));
	memcpy(at, m->grad[i], m->elems[i] * (m->type[i] == GS_F32 ? 4 : 2));
	return at;
}

static void push_all(struct many *m, uint64_t step)
{
	gs_param *list[MANY];
	const void *grad[MANY];
	uint32_t n = 0;

	for (uint32_t k = 0; k < MANY; k++) {
		uint32_t i = m->manner == TURNED ? MANY - 1 - k : k;

		if (is_left_out(m->rank, step, i))
			continue;
		make_gradient(m, step, i);
		if (m->manner == SINGLY || (m->manner == APART && m->rank) ||
		    (m->manner == MIXED && mix64(step + i) % 16 == 0)) {
			ok(gs_push(m->t, m->p[i], m->grad[i]));
			continue;
		}
		list[n] = m->p[i];
		grad[n++] = m->manner == IN_PLACE ? buffer(m, i) : m->grad[i];
	}
	ok(gs_push_many(m->t, list, grad, n));
}

static void *run_many(void *arg)
{
	struct many *m = arg;

	ok(gs_start(m->t));
	for (uint64_t step = 1; step <= STEPS; step++) {
		/* From here on it is no longer like its neighbours. */
		if (m->rank == 0 && step == STEPS / 2)
			ok(gs_set_lr(m->t, m->p[20], 0.25));
		push_all(m, step);
		if (m->mode != SRV_ASYNC)
			ok(gs_step_end(m->t));
		else if (step % 4 == 0)
			ok(gs_wait_applied(m->t, m->p[step]));
	}
	for (uint32_t i = 0; m->mode != SRV_SYNC && i < MANY; i++)
		ok(gs_wait_applied(m->t, m->p[i]));
	return NULL;
}

/* All weights behind one another. */
static uint64_t pull_all(struct many *m, float *out)
{
	void *dst[MANY];
	uint64_t n = 0;

	for (uint32_t i = 0; i < MANY; i++) {
		dst[i] = out + n;
		n += m->elems[i];
	}
	ok(gs_pull_many(m->t, m->p, dst, MANY, GS_CONSISTENT));
	return n;
}

static uint64_t train(enum srv_mode mode, enum model model, enum manner manner, uint32_t workers,
		      float *out)
{
	static struct many m[RANKS];
	uint32_t ranks = mode == SRV_SYNC ? RANKS : 1;
	struct srv_options opt = bed_options(ranks, mode);
	struct bed bed;
	uint64_t n;

	opt.block_kib = 4;
	opt.workers = workers;
	opt.slots = 1 + (manner + workers) % 3;
	opt.staleness = mode == SRV_SSP ? 2 : 0;
	bed_start(&bed, &opt);
	for (uint32_t r = 0; r < ranks; r++) {
		m[r] = (struct many){.uri = bed.uri, .mode = mode, .manner = manner,
				     .model = model, .rank = r};
		for (int i = 0; i < LONGEST; i++)
			m[r].init[i] = (float)i * 0x1p-10f;
		m[r].t = connect_as(bed.uri, (int32_t)r);
		for (uint32_t i = 0; i < MANY; i++)
			declare_one(&m[r], i);
		pthread_create(&m[r].thread, NULL, run_many, &m[r]);
	}
	for (uint32_t r = 0; r < ranks; r++)
		pthread_join(m[r].thread, NULL);
	n = pull_all(&m[0], out);
	must(bed_stats(&bed).violations == 0, "violations");
	for (uint32_t r = 0; r < ranks; r++)
		gs_close(m[r].t);
	bed_stop(&bed);
	return n;
}

START_TEST(the_same_weights)
{
	static float singly[MANY * LONGEST], together[MANY * LONGEST];
	enum srv_mode mode = (enum srv_mode)(1 + _i % 3);
	enum manner manner = (enum manner)(1 + _i / 3 % (MANNERS - 1));
	enum model model = (enum model)(_i / 3 / (MANNERS - 1) % MODELS);
	uint32_t workers = (uint32_t)_i % 2 * 3;

	if (left_out(_i, 5))
		return;
	uint64_t n = train(mode, model, SINGLY, workers, singly);
	must(train(mode, model, manner, workers, together) == n, "length");
	for (uint64_t i = 0; i < n; i++)
		must(memcmp(&singly[i], &together[i], sizeof(float)) == 0,
		     "element %llu of all: %.9g singly, %.9g together", (unsigned long long)i,
		     (double)singly[i], (double)together[i]);
}
END_TEST

/* ---- what a list must not be --------------------------------------------------------------------- */

enum { LIST = 6, LIST_ELEMS = 16 };

struct listed {
	struct bed bed;
	gs_trainer *t;
	gs_param *p[LIST + 1]; /* and the first once more */
	const void *grad[LIST + 1];
	float one[LIST_ELEMS];
};

/* A pack of all of them, and a step that is not the first: then it is looked at as one. `whole`: one's
 * gradients are used whole, so that at the server each counts by itself. */
static void open_list(struct listed *l, bool whole)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	struct srv_options opt = bed_options(1, SRV_SYNC);

	bed_start(&l->bed, &opt);
	l->t = connect_as(l->bed.uri, 0);
	for (int k = 0; k < LIST_ELEMS; k++)
		l->one[k] = 1;
	for (uint32_t i = 0; i < LIST; i++) {
		char name[8];

		snprintf(name, sizeof(name), "p%u", i);
		l->grad[i] = l->one;
		if (i || !whole) {
			l->p[i] = declare_line(l->t, name, LIST_ELEMS, 1, 0);
			continue;
		}
		d.name = name;
		d.ndim = 1;
		d.shape[0] = LIST_ELEMS;
		gs_setting(&d, "lr", 1);
		gs_setting(&d, "clip_norm", 1000); /* never reached */
		ok(gs_declare(l->t, &d, &l->p[i]));
	}
	l->p[LIST] = l->p[0];
	l->grad[LIST] = l->one;
	ok(gs_start(l->t));
	ok(gs_push_many(l->t, l->p, l->grad, LIST));
	ok(gs_step_end(l->t));
}

/* Each refused list has sent nothing: so many steps, a gradient of one each. */
static void close_list(struct listed *l, uint32_t steps)
{
	ok(gs_step_end(l->t));
	for (uint32_t i = 0; i < LIST; i++) {
		float w[LIST_ELEMS];

		ok(gs_pull(l->t, l->p[i], GS_RELAXED, w));
		must(w[0] == -(float)steps, "parameter %u is %g", i, (double)w[0]);
	}
	must(bed_stats(&l->bed).violations == 0, "violations");
	gs_close(l->t);
	bed_stop(&l->bed);
}

START_TEST(one_twice)
{
	gs_param *turned[LIST + 1];
	struct listed l;

	open_list(&l, false);
	must(gs_push_many(l.t, l.p, l.grad, LIST + 1) == -EINVAL, "behind the pack");
	has_words(gs_last_error(), (const char *const[]){"p0", "twice", NULL});
	turned[0] = l.p[2];
	memcpy(turned + 1, l.p, LIST * sizeof(gs_param *));
	must(gs_push_many(l.t, turned, l.grad, LIST + 1) == -EINVAL, "ahead of it");
	has_words(gs_last_error(), (const char *const[]){"p2", "twice", NULL});
	l.grad[LIST - 1] = NULL;
	must(gs_push_many(l.t, l.p, l.grad, LIST) == -EINVAL, "no gradient");
	l.grad[LIST - 1] = l.one;
	ok(gs_push_many(l.t, l.p, l.grad, LIST));
	close_list(&l, 2);
}
END_TEST

START_TEST(twice_in_a_step)
{
	struct listed l;

	open_list(&l, false);
	if (_i == 0) {
		ok(gs_push_many(l.t, l.p, l.grad, LIST));
		must(gs_push_many(l.t, l.p, l.grad, LIST) == -EALREADY, "the pack again");
		must(gs_push(l.t, l.p[3], l.one) == -EALREADY, "one again");
	} else {
		ok(gs_push(l.t, l.p[3], l.one));
		must(gs_push_many(l.t, l.p, l.grad, LIST) == -EALREADY, "behind one of it");
		has_words(gs_last_error(), (const char *const[]){"p3", NULL});
		ok(gs_push_many(l.t, l.p, l.grad, 3));
		ok(gs_push_many(l.t, l.p + 4, l.grad, 2));
	}
	close_list(&l, 2);
}
END_TEST

/* Factors hold for the pushes behind them, by whatever call: what a slot's head said once is not what it
 * says now. */
START_TEST(factors_in_turns)
{
	float first = -1, others = -1;
	struct listed l;

	open_list(&l, _i == 1);
	for (uint32_t step = 2; step <= 30; step++) {
		float scale = mix64(step) % 3 ? 1 : 4, w[LIST_ELEMS];
		bool apart = mix64(step) % 2;

		ok(gs_set_grad_scale(l.t, (double)scale));
		if (apart) {
			ok(gs_push(l.t, l.p[0], l.one));
			ok(gs_set_grad_scale(l.t, 2));
			for (uint32_t i = 1; i < LIST; i++)
				ok(gs_push(l.t, l.p[i], l.one));
		} else {
			ok(gs_push_many(l.t, l.p, l.grad, LIST));
		}
		ok(gs_step_end(l.t));
		first -= 1 / scale;
		others -= apart ? 0.5f : 1 / scale;
		ok(gs_pull(l.t, l.p[0], GS_RELAXED, w));
		must(w[0] == first, "step %u: %g, not %g", step, (double)w[0], (double)first);
		ok(gs_pull(l.t, l.p[LIST - 1], GS_RELAXED, w));
		must(w[0] == others, "step %u: %g, not %g", step, (double)w[0], (double)others);
	}
	gs_close(l.t);
	bed_stop(&l.bed);
}
END_TEST

/* Whose pushes, and of which parameters, is told as if each had been pushed by itself. */
START_TEST(what_is_not_finite)
{
	struct gs_counts counts = {.size = sizeof(counts)};
	float bad[LIST_ELEMS] = {0}, w[LIST_ELEMS];
	struct listed l;

	open_list(&l, false);
	bad[LIST_ELEMS - 1] = INFINITY;
	l.grad[2] = l.grad[4] = bad;
	ok(gs_push_many(l.t, l.p, l.grad, LIST));
	ok(gs_step_end(l.t));
	ok(gs_get_counts(l.t, &counts));
	must(counts.nonfinite == 2, "%llu", (unsigned long long)counts.nonfinite);
	for (uint32_t i = 0; i < LIST; i++) {
		bool odd = i == 2 || i == 4;

		ok(gs_pull(l.t, l.p[i], GS_RELAXED, w));
		must((isinf(w[LIST_ELEMS - 1]) != 0) == odd, "parameter %u", i);
		must(w[0] == (odd ? -1 : -2), "parameter %u is %g", i, (double)w[0]);
	}
	gs_close(l.t);
	bed_stop(&l.bed);
}
END_TEST

/* ---- connections that are cut -------------------------------------------------------------------- */

enum { FEW = 20, FEW_ELEMS = 5 };

struct lasting {
	enum srv_mode mode;
	gs_trainer *t;
	gs_param *p[FEW];
	uint64_t steps; /* at least; in the end, so many */
	_Atomic uint32_t lost;
	_Atomic bool done;
};

static void come_back(struct lasting *l, int rc)
{
	int rewound = -1;

	must(rc == -ECONNRESET || rc == -ESHUTDOWN, "%d: %s", rc, gs_last_error());
	ok(gs_reconnect(l->t, &rewound));
	must(rewound == 0, "rewound");
	l->lost++;
}

/* What of the step's pushes was not made; of ones. */
static uint32_t to_push(struct lasting *l, uint64_t step, gs_param **list)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < FEW; i++) {
		uint64_t made;
		int rc;

		while ((rc = gs_pushes(l->t, l->p[i], &made)) < 0)
			come_back(l, rc);
		if (made < step)
			list[n++] = l->p[i];
	}
	return n;
}

static void *last(void *arg)
{
	static const float one[FEW_ELEMS] = {1, 1, 1, 1, 1};
	struct lasting *l = arg;
	const void *grad[FEW];
	gs_param *list[FEW];
	uint64_t step = 1;
	uint32_t n;
	int rc;

	for (uint32_t i = 0; i < FEW; i++)
		grad[i] = one;
	for (; step <= l->steps || !l->lost; step++) {
		while ((n = to_push(l, step, list)) > 0)
			if ((rc = gs_push_many(l->t, list, grad, n)) < 0)
				come_back(l, rc);
		while (l->mode != SRV_ASYNC && (rc = gs_step_end(l->t)) < 0)
			come_back(l, rc);
	}
	l->steps = step - 1;
	for (uint32_t i = 0; l->mode != SRV_SYNC && i < FEW; i++)
		while ((rc = gs_wait_applied(l->t, l->p[i])) < 0)
			come_back(l, rc);
	l->done = true;
	return NULL;
}

/* Each gradient counts once. */
START_TEST(cut_within_a_step)
{
	enum srv_mode mode = (enum srv_mode)(1 + _i % 3);
	struct srv_options opt = bed_options(1, mode);
	struct lasting l = {.mode = mode, .steps = scaled(3000, 300)};
	uint64_t rng = (uint64_t)_i + 1;
	pthread_t thread;
	struct bed bed;

	if (!over_shm())
		return;
	opt.on_loss = SRV_LOSS_WAIT;
	opt.loss_wait_ms = 300000;
	opt.workers = (uint32_t)_i % 2;
	opt.staleness = mode == SRV_SSP ? 2 : 0;
	bed_start(&bed, &opt);
	l.t = connect_as(bed.uri, 0);
	for (uint32_t i = 0; i < FEW; i++) {
		char name[8];

		snprintf(name, sizeof(name), "p%u", i);
		l.p[i] = declare_line(l.t, name, FEW_ELEMS, 1, 0);
	}
	ok(gs_start(l.t));
	pthread_create(&thread, NULL, last, &l);
	for (uint32_t cuts = 0; !l.done; cuts++) {
		nap_us(300 + rnd(&rng, 3000));
		if (cuts < scaled(20, 4) || !l.lost)
			cut_one(&rng);
	}
	pthread_join(thread, NULL);
	must(l.lost, "it lost no connection");
	for (uint32_t i = 0; i < FEW; i++) {
		float w[FEW_ELEMS];
		int rc;

		/* The last cut may have come behind the last step. */
		while ((rc = gs_pull(l.t, l.p[i], GS_ORDERED, w)) < 0)
			come_back(&l, rc);
		for (int k = 0; k < FEW_ELEMS; k++)
			must(w[k] == -(float)l.steps, "parameter %u is %g", i, (double)w[k]);
	}
	must(bed_stats(&bed).violations == 0, "violations");
	gs_close(l.t);
	bed_stop(&bed);
}
END_TEST

/* ---- packs that break the protocol --------------------------------------------------------------- */

enum { RAW_PACK = 4, RAW_ELEMS = 10, RAW_STRIDE = 64 };

struct scene {
	struct bed bed;
	struct raw good, bad;
};

/* Four lines of ten floats, a pack of 3 · 64 + 40 bytes; blocks 0 to 3, the pack is 4. */
static void declare_pack(struct wire_param p[RAW_PACK])
{
	for (int i = 0; i < RAW_PACK; i++) {
		p[i] = raw_lines[1];
		snprintf(p[i].name, sizeof(p[i].name), "p%d", i);
	}
}

static void open_scene(struct scene *s, enum srv_mode mode)
{
	struct srv_options opt = bed_options(2, mode);
	struct wire_param p[RAW_PACK];

	declare_pack(p);
	bed_start(&s->bed, &opt);
	raw_join_with(&s->good, s->bed.uri, 0, p, RAW_PACK);
	raw_join_with(&s->bad, s->bed.uri, 1, p, RAW_PACK);
	raw_wait_start(&s->good);
	raw_wait_start(&s->bad);
	for (int i = 0; i < RAW_PACK; i++)
		must(s->good.place[i].pack == 1, "no pack");
}

/* All of the pack, `value` everywhere, `len` bytes of it, as block number `block`. */
static void push_pack(struct raw *r, uint32_t block, uint32_t slot, uint64_t len, float value)
{
	float *source = tp_arena_base(r->source);

	for (int i = 0; i < RAW_PACK * RAW_STRIDE / 4; i++)
		source[i] = value;
	raw_write(r, r->place[0].slots_off + slot * r->place[0].slots_stride, len,
		  imm_block(IMM_GRAD, block, slot, true));
}

enum { PACK_LEN = 3 * RAW_STRIDE + 4 * RAW_ELEMS };

static void behind_the_last_pack(struct raw *r)
{
	push_pack(r, RAW_PACK + 1, 0, PACK_LEN, 100);
}

static void length_short(struct raw *r)
{
	push_pack(r, RAW_PACK, 0, PACK_LEN - 4, 100);
}

static void length_with_padding(struct raw *r)
{
	push_pack(r, RAW_PACK, 0, 4 * RAW_STRIDE, 100);
}

static void slot_that_is_not(struct raw *r)
{
	raw_write(r, r->place[0].slots_off, PACK_LEN, imm_block(IMM_GRAD, RAW_PACK, 2, false));
}

static void pulled_as_one(struct raw *r)
{
	raw_write(r, 8, 8, imm_block(IMM_PULL, RAW_PACK, 0, false));
}

/* Where the pack is taken as one, the first's speaks for all. */
static void head_of_the_first(struct raw *r)
{
	struct layout_push_head head = {.scale = NAN};

	raw_head(r, 0, 0, &head);
	push_pack(r, RAW_PACK, 0, PACK_LEN, 100);
}

static void head_of_the_last(struct raw *r)
{
	struct layout_push_head head = {.scale = NAN};

	raw_head(r, RAW_PACK - 1, 0, &head);
	push_pack(r, RAW_PACK, 0, PACK_LEN, 100);
}

/* The last one's slot is in use until the good one delivers. (It is the sender's own memory, which it
 * overwrites: that is what counts of it.) */
static void filled_without_credit(struct raw *r)
{
	raw_gradient(r, RAW_PACK - 1, 0, 0, 7, false);
	push_pack(r, RAW_PACK, 0, PACK_LEN, 100);
}

static void second_of_the_last(struct raw *r)
{
	raw_gradient(r, RAW_PACK - 1, 0, 1, 7, false);
	push_pack(r, RAW_PACK, 0, PACK_LEN, 100);
}

static void step_not_open(struct raw *r)
{
	raw_barrier(r, 1);
	push_pack(r, RAW_PACK, 0, PACK_LEN, 100);
}

static const struct act {
	void (*act)(struct raw *);
	unsigned modes; /* bits */
	float left;     /* what of it counts, of the last parameter */
	const char *words[4];
} acts[] = {
    {behind_the_last_pack, 3, 0, {"block 5", "4 blocks"}},
    {length_short, 3, 0, {"block 4", "228 bytes", "232"}},
    {length_with_padding, 3, 0, {"block 4", "256 bytes", "232"}},
    {slot_that_is_not, 3, 0, {"slot 2", "2 slots"}},
    {pulled_as_one, 3, 0, {"block 4", "there are 4"}},
    {head_of_the_first, 3, 0, {"block 0", "2^-60 to 2^60"}},
    {head_of_the_last, 2, 0, {"block 3", "2^-60 to 2^60"}},
    {filled_without_credit, 1, 100, {"block 3", "slot 0", "credit"}},
    {second_of_the_last, 1, 7, {"block 3", "second", "step 1"}},
    {step_not_open, 1, 0, {"step 2", "step 1"}},
};
enum { ACTS = sizeof(acts) / sizeof(acts[0]) };

/* As the server writes it on demand. */
static float pulled(struct raw *r, uint32_t block)
{
	uint32_t imms = r->imms;

	raw_write(r, 8, 8, imm_block(IMM_PULL, block, 0, false));
	while (r->imms == imms || imm_unpack(r->last_imm).kind != IMM_PULLED) {
		must(!r->closed, "closed while pulling");
		raw_poll(r);
	}
	return *(float *)(void *)((uint8_t *)tp_arena_base(r->mailbox) + r->place[block].landing_off);
}

/* It ends alone, nothing of its pack is applied, and the other one's packs go on. */
START_TEST(a_bad_pack)
{
	const struct act *a = &acts[_i % ACTS];
	enum srv_mode mode = _i < ACTS ? SRV_SYNC : SRV_ASYNC;
	struct scene s;

	if (!(a->modes & (unsigned)mode) || (a->modes == 3 && left_out(_i, 3)))
		return;
	open_scene(&s, mode);
	a->act(&s.bad);
	raw_expect_error(&s.bad, WIRE_E_PROTOCOL, a->words);
	bed_wait_connected(&s.bed, 1);
	must(bed_stats(&s.bed).violations == 1, "violations");
	push_pack(&s.good, RAW_PACK, 0, PACK_LEN, 1);
	if (mode == SRV_SYNC) {
		raw_barrier(&s.good, 1);
		raw_wait_release(&s.good, 1);
	}
	for (uint32_t b = 0; b < RAW_PACK; b++) {
		float expect = -1;

		if (mode == SRV_ASYNC)
			raw_wait_credit(&s.good, b, 1);
		if (b == RAW_PACK - 1 && a->left != 0)
			expect = -(1 + a->left) / 2;
		must(pulled(&s.good, b) == expect, "block %u is %g, not %g", b,
		     (double)pulled(&s.good, b), (double)expect);
	}
	raw_close(&s.good);
	bed_stop(&s.bed);
}
END_TEST

/* ---- packs of those who are gone --------------------------------------------------------------- */

/* What came as one is in the kept words of each, and is not taken again, whichever way. */
START_TEST(a_pack_that_is_kept)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct wire_param p[RAW_PACK];
	struct raw good, bad, back;
	struct bed bed;

	opt.on_loss = SRV_LOSS_WAIT;
	opt.loss_wait_ms = 300000;
	bed_start(&bed, &opt);
	declare_pack(p);
	raw_join_with(&good, bed.uri, 0, p, RAW_PACK);
	raw_join_with(&bad, bed.uri, 1, p, RAW_PACK);
	raw_wait_start(&good);
	raw_wait_start(&bad);
	if (_i < 3)
		push_pack(&bad, RAW_PACK, 1, PACK_LEN, 3);
	else
		raw_gradient(&bad, 2, 0, 1, 3, false);
	nap_us(20000);
	raw_close(&bad);
	bed_wait_lost(&bed, 1);
	raw_join_with(&back, bed.uri, 1, p, RAW_PACK);
	for (uint32_t b = 0; b < RAW_PACK; b++)
		must(raw_kept(&back, b) == (_i < 3 || b == 2), "kept word of block %u", b);
	raw_wait_start(&back);
	if (_i == 0 || _i == 3) {
		push_pack(&back, RAW_PACK, 1, PACK_LEN, 3);
		RAW_ENDS(&back, WIRE_E_PROTOCOL, _i ? "block 2" : "block 0",
			 "second gradient in step 1");
	} else if (_i == 1) {
		raw_gradient(&back, 2, 0, 1, 3, false);
		RAW_ENDS(&back, WIRE_E_PROTOCOL, "block 2", "second gradient in step 1");
	} else {
		raw_barrier(&back, 1);
		push_pack(&good, RAW_PACK, 1, PACK_LEN, 1);
		raw_barrier(&good, 1);
		raw_wait_release(&good, 1);
		for (uint32_t b = 0; b < RAW_PACK; b++)
			must(pulled(&good, b) == -2, "block %u is %g", b,
			     (double)pulled(&good, b));
		raw_close(&back);
	}
	raw_close(&good);
	bed_stop(&bed);
}
END_TEST

/* Who has sent all but the barrier is late, and no gradient is missing. */
START_TEST(a_late_barrier)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct wire_param p[RAW_PACK];
	struct raw r[2];
	struct bed bed;

	opt.on_straggler = SRV_STRAGGLER_STOP;
	opt.straggler_ms = 300;
	bed_start(&bed, &opt);
	declare_pack(p);
	for (int i = 0; i < 2; i++)
		raw_join_with(&r[i], bed.uri, i, p, RAW_PACK);
	for (int i = 0; i < 2; i++)
		raw_wait_start(&r[i]);
	push_pack(&r[1], RAW_PACK, 1, PACK_LEN, 3);
	raw_barrier(&r[0], 1);
	RAW_ENDS(&r[0], WIRE_E_SHUTDOWN, "stopping");
	BED_FAILS(&bed, ETIME, "trainer 1", "straggler", "step 1");
	must(!strstr(bed.text, "no gradient"), "%s", bed.text);
	raw_free(&r[1]);
}
END_TEST

/* Nobody has to be woken, so credits wait for one another: of one block behind itself, of a pack behind its
 * parts. Under faults there is no room for some of them, and each must be told of all the same. */
START_TEST(credits_that_wake_nobody)
{
	enum { PUSHES = 2000 };
	uint32_t packed = (uint32_t)_i % 2;
	struct scene s;

	open_scene(&s, SRV_ASYNC);
	for (uint64_t n = 0; n < PUSHES; n += 2) {
		raw_gradient(&s.good, 0, 0, 0, 1, false);
		if (packed)
			for (uint32_t b = 1; b < RAW_PACK; b++)
				raw_gradient(&s.good, b, 0, 0, 1, false);
		if (packed)
			push_pack(&s.good, RAW_PACK, 1, PACK_LEN, 1);
		else
			raw_gradient(&s.good, 0, 0, 1, 1, false);
		for (uint32_t b = 0; b < (packed ? RAW_PACK : 1); b++)
			raw_look_for_credit(&s.good, b, n + 2);
	}
	must(pulled(&s.good, 0) == -PUSHES, "it is %g", (double)pulled(&s.good, 0));
	raw_close(&s.bad);
	raw_close(&s.good);
	bed_stop(&s.bed);
}
END_TEST

/* ---- rails that disagree ------------------------------------------------------------------------- */

static void barrier_by(struct raw *r, uint8_t rail)
{
	r->rail = rail;
	raw_barrier(r, r->step);
}

static void gradient_behind_its_barrier(struct raw *r)
{
	barrier_by(r, 1);
	raw_gradient(r, 0, 0, 0, 100, false);
}

static void pack_behind_its_barrier(struct raw *r)
{
	barrier_by(r, 2);
	push_pack(r, RAW_PACK, 0, PACK_LEN, 100);
}

static void pack_twice_by_two_rails(struct raw *r)
{
	barrier_by(r, 2);
	r->rail = 0;
	push_pack(r, RAW_PACK, 0, PACK_LEN, 100);
	r->rail = 1;
	push_pack(r, RAW_PACK, 1, PACK_LEN, 100);
}

static const struct act by_rails[] = {
    {gradient_behind_its_barrier, 1, 0, {"block 0", "step 2", "step 1"}},
    {pack_behind_its_barrier, 1, 0, {"block 0", "step 2", "step 1"}},
    {pack_twice_by_two_rails, 1, 100, {"block 0", "second", "step 1"}},
};

/* A barrier by one rail ends that rail's part of the step, and no other's; nor the step. */
START_TEST(rails_that_disagree)
{
	const struct act *a = &by_rails[_i];
	struct scene s;

	raw_rails = 3;
	open_scene(&s, SRV_SYNC);
	a->act(&s.bad);
	raw_expect_error(&s.bad, WIRE_E_PROTOCOL, a->words);
	bed_wait_connected(&s.bed, 1);
	must(raw_released(&s.good) == 0, "step 1 is over");
	s.good.rail = 1;
	push_pack(&s.good, RAW_PACK, 0, PACK_LEN, 1);
	barrier_by(&s.good, 2);
	barrier_by(&s.good, 1);
	barrier_by(&s.good, 1);
	must(raw_released(&s.good) == 0, "step 1 is over by two rails of three");
	barrier_by(&s.good, 0);
	raw_wait_release(&s.good, 1);
	must(pulled(&s.good, 0) == -(1 + a->left) / (a->left != 0 ? 2 : 1), "it is %g",
	     (double)pulled(&s.good, 0));
	raw_close(&s.good);
	bed_stop(&s.bed);
}
END_TEST

TCase *packs_case(void)
{
	TCase *t = e2e_wire_case("packs");

	tcase_add_loop_test(t, the_same_weights, 0, 3 * (MANNERS - 1) * MODELS);
	tcase_add_test(t, one_twice);
	tcase_add_loop_test(t, twice_in_a_step, 0, 2);
	tcase_add_loop_test(t, factors_in_turns, 0, 2);
	tcase_add_test(t, what_is_not_finite);
	tcase_add_loop_test(t, a_pack_that_is_kept, 0, 4);
	tcase_add_test(t, a_late_barrier);
	tcase_add_loop_test(t, cut_within_a_step, 0, 6);
	tcase_add_loop_test(t, a_bad_pack, 0, 2 * ACTS);
	return t;
}

TCase *credits_case(void)
{
	TCase *t = e2e_case("credits");

	tcase_add_loop_test(t, credits_that_wake_nobody, 0, 2);
	return t;
}

TCase *by_rails_case(void)
{
	TCase *t = e2e_case("by_rails");

	tcase_add_loop_test(t, rails_that_disagree, 0, sizeof(by_rails) / sizeof(by_rails[0]));
	return t;
}

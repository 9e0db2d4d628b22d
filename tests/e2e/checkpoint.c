/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that a server writes while it is trained: each is of one moment, and what goes on
 * from it goes on with the same bits.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "cases.h"
#include "kernels/kern.h"
#include "saga.h"
#include "saves.h"

/* ---- the same bits --------------------------------------------------------------------------- */

enum { STEPS = 12, MIDDLE = 5 };

static const enum srv_mode modes[] = {SRV_SYNC, SRV_ASYNC, SRV_SSP};

static uint32_t ranks_of(enum srv_mode mode)
{
	return mode == SRV_SYNC ? 2 : 1; /* whose steps are the same every time */
}

/* Up to MIDDLE, a checkpoint at the end, and the rest in another server: what is seen is what an
 * undisturbed run saw, whatever the blocks, slots and threads of both. */
START_TEST(goes_on)
{
	enum srv_mode mode = modes[_i % 3];
	uint32_t ranks = ranks_of(mode);
	struct srv_options opt = saves_options(ranks, mode);
	struct saga *s = malloc(sizeof(*s));
	struct bed b;

	saves_begin();
	saga_init(s, mode);
	opt.checkpoint_dir = NULL;
	bed_start(&b, &opt);
	saga_run(s, b.uri, ranks, 1, STEPS);
	bed_stop(&b);

	opt.checkpoint_dir = saves_dir;
	opt.block_kib = 1 + (uint32_t)_i / 3;
	opt.workers = (uint32_t)_i % 2;
	bed_start(&b, &opt);
	saga_run(s, b.uri, ranks, 1, MIDDLE);
	bed_stop(&b);
	must(mode == SRV_ASYNC || saves_newest_step() == MIDDLE, "step %llu",
	     (unsigned long long)saves_newest_step());

	for (uint32_t k = 0; k < 3; k++) {
		opt.n_restore = 1;
		opt.restore[0] = saves_dir;
		opt.checkpoint_dir = NULL;
		opt.block_kib = k == 0 ? 1 : k == 1 ? 3 : 256;
		opt.workers = 2 - k;
		opt.slots = 1 + k;
		opt.pollers = 1 + k;
		bed_start(&b, &opt);
		must(bed_stats(&b).restored_step == (mode == SRV_ASYNC ? 0 : MIDDLE), "step");
		saga_run(s, b.uri, ranks, MIDDLE + 1, STEPS);
		bed_stop(&b);
	}
	saves_end();
	free(s);
}
END_TEST

/* Saved all the time while it is trained: what is in each checkpoint is what trainer 0 saw at the
 * beginning of the next step. The last but one goes on as if nothing had been. */
static void check_weights(const struct saga *s, const struct checkpoint *c)
{
	uint64_t step = checkpoint_manifest(c)->step;

	for (uint32_t p = 0; p < s->n; p++) {
		const struct store_tensor *t =
		    store_find(checkpoint_weights_of(c), s->desc[p].name);

		must(t, "no \"%s\"", s->desc[p].name);
		if (s->desc[p].kind != GS_DENSE || s->desc[p].weight_dtype != GS_F32)
			continue;
		must(kern_checksum(t->data, t->len, 1) == s->seen[step + 1][p],
		     "\"%s\" in the checkpoint of step %llu", t->name, (unsigned long long)step);
	}
}

/* Checks all that there are; returns how many. `some`: the path of one with a step from 1 to most.
 */
static uint32_t check_all(const struct saga *s, uint64_t most, char some[128])
{
	uint64_t *number, last = 0;
	uint32_t n;

	ok(checkpoint_list(saves_dir, &number, &n));
	for (uint32_t i = 0; i < n; i++) {
		char name[CHECKPOINT_NAME], path[128];
		struct checkpoint *c;
		uint64_t step;

		snprintf(path, sizeof(path), "%s/%s", saves_dir, checkpoint_name(number[i], name));
		ok(checkpoint_open(path, &c));
		step = checkpoint_manifest(c)->step;
		must(step >= last, "step %llu", (unsigned long long)step);
		last = step;
		check_weights(s, c);
		if (step >= 1 && step <= most)
			memcpy(some, path, sizeof(path));
		checkpoint_close(c);
	}
	free(number);
	return n;
}

START_TEST(under_load)
{
	struct srv_options opt = saves_options(2, SRV_SYNC);
	struct saga *s = malloc(sizeof(*s));
	uint32_t ranks = 2, last = 40, n;
	char some[128] = "";
	struct bed b;

	saves_begin();
	saga_init(s, SRV_SYNC);
	s->nap_us = 3000;
	opt.checkpoint_steps = 1;
	opt.block_kib = _i == 0 ? 1 : _i == 1 ? 3 : 256;
	opt.workers = (uint32_t)_i;
	bed_start(&b, &opt);
	saga_run(s, b.uri, ranks, 1, last);
	bed_stop(&b);
	n = check_all(s, last - 3, some);
	must(n >= 2 && some[0], "%u checkpoints", n);

	opt.n_restore = 1;
	opt.restore[0] = some;
	opt.checkpoint_dir = NULL;
	opt.checkpoint_steps = 0;
	opt.block_kib = 2;
	bed_start(&b, &opt);
	saga_run(s, b.uri, ranks, 2, last);
	bed_stop(&b);
	saves_end();
	free(s);
}
END_TEST

/* ---- packs ------------------------------------------------------------------------------------ */

enum { SMALL = 200, SMALL_ELEMS = 48 };

/* Steps of ones until so many checkpoints are there: all weights are as far as the step. */
static void push_packs(struct bed *b, uint64_t checkpoints)
{
	gs_trainer *t = connect_as(b->uri, 0);
	float one[SMALL_ELEMS];
	const void *grad[SMALL];
	gs_param *p[SMALL];

	for (uint32_t k = 0; k < SMALL_ELEMS; k++)
		one[k] = 1;
	for (uint32_t i = 0; i < SMALL; i++) {
		char name[8];

		snprintf(name, sizeof(name), "p%u", i);
		p[i] = declare_line(t, name, SMALL_ELEMS, 1, 0);
		grad[i] = one;
	}
	ok(gs_start(t));
	while (bed_stats(b).checkpoints < checkpoints) {
		ok(gs_push_many(t, p, grad, SMALL));
		ok(gs_step_end(t));
	}
	ok(gs_leave(t));
	gs_close(t);
}

static void check_packs(const struct checkpoint *c)
{
	float expect = -(float)checkpoint_manifest(c)->step;

	for (uint32_t i = 0; i < SMALL; i++) {
		const struct store_tensor *t;
		char name[8];

		snprintf(name, sizeof(name), "p%u", i);
		t = store_find(checkpoint_weights_of(c), name);
		must(t, "no %s", name);
		for (uint32_t k = 0; k < SMALL_ELEMS; k++)
			must(((const float *)t->data)[k] == expect, "%s is %g in step %g", name,
			     (double)((const float *)t->data)[k], (double)-expect);
	}
}

/* A pack is updated as one, and copied parameter by parameter meanwhile. */
START_TEST(of_packs)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	uint64_t *number;
	struct bed b;
	uint32_t n;

	saves_begin();
	opt.checkpoint_steps = 3;
	opt.workers = (uint32_t)_i;
	bed_start(&b, &opt);
	push_packs(&b, scaled(20, 4));
	bed_stop(&b);
	ok(checkpoint_list(saves_dir, &number, &n));
	must(n >= scaled(20, 4), "%u checkpoints", n);
	for (uint32_t i = 0; i < n; i++) {
		char name[CHECKPOINT_NAME], path[128];
		struct checkpoint *c;

		snprintf(path, sizeof(path), "%s/%s", saves_dir, checkpoint_name(number[i], name));
		ok(checkpoint_open(path, &c));
		check_packs(c);
		checkpoint_close(c);
	}
	free(number);
	saves_end();
}
END_TEST

/* ---- each block by itself ---------------------------------------------------------------------
 */

/* Gradients of ones: adagrad's state counts the updates that the weights have seen, and lamb's,
 * which is made before any weight is, is the same in all elements. */
enum { LINE = 3000, ROWS = 64, COLUMNS = 9 };

struct ones {
	const char *uri;
	uint32_t rank, pushes;
	bool sync;
	gs_trainer *t;
	gs_param *line, *whole, *lamb, *table;
	_Atomic bool *stop;
	pthread_t thread;
};

static gs_param *declare_ones(gs_trainer *t, const char *name, const char *rule, uint64_t rows,
			      uint64_t columns, enum gs_kind kind, double clip)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;

	d.name = name;
	d.ndim = columns ? 2 : 1;
	d.shape[0] = rows;
	d.shape[1] = columns;
	d.optimizer = rule;
	d.kind = kind;
	gs_setting(&d, "lr", 1);
	if (clip > 0)
		gs_setting(&d, "clip_norm", clip);
	ok(gs_declare(t, &d, &p));
	return p;
}

static void *push_ones(void *arg)
{
	struct ones *o = arg;
	int64_t ids[ROWS];
	float one[LINE];

	for (uint32_t i = 0; i < LINE; i++)
		one[i] = 1;
	for (uint32_t i = 0; i < ROWS; i++)
		ids[i] = i;
	o->t = connect_as(o->uri, (int32_t)o->rank);
	o->line = declare_ones(o->t, "line", "adagrad", LINE, 0, GS_DENSE, 0);
	o->whole = declare_ones(o->t, "whole", "adagrad", LINE, 0, GS_DENSE, 1e9);
	o->lamb = declare_ones(o->t, "lamb", "lamb", LINE, 0, GS_DENSE, 0);
	o->table = declare_ones(o->t, "table", "adagrad", ROWS, COLUMNS, GS_TABLE, 0);
	ok(gs_start(o->t));
	while (!atomic_load(o->stop)) {
		ok(gs_push(o->t, o->line, one));
		ok(gs_push(o->t, o->whole, one));
		ok(gs_push(o->t, o->lamb, one));
		ok(gs_push_rows(o->t, o->table, ids, one, ROWS));
		if (o->sync)
			ok(gs_step_end(o->t));
	}
	gs_close(o->t);
	return NULL;
}

/* What is left of 0 after so many updates. */
static float after(uint64_t updates)
{
	struct kern_setting lr = {"lr", 1};
	float w = 0, sum = 0, one = 1, *state = &sum;
	const float *grad = &one;
	struct kern_opt opt;

	ok(kern_opt_parse("adagrad", &lr, 1, &opt));
	for (uint64_t t = 1; t <= updates; t++)
		kern_apply_mean(&opt, t, &w, &state, &grad, 1, 1);
	return w;
}

static const void *state_of(const struct checkpoint *c, const char *name)
{
	const struct store_tensor *t = store_find(checkpoint_state_of(c), name);

	must(t, "no %s", name);
	return t->data;
}

static void check_run(const struct checkpoint *c, const float *w, const float *state, uint64_t n,
		      uint64_t updates)
{
	float want = after(updates);

	for (uint64_t i = 0; i < n; i++)
		must(w[i] == want && state[i] == (float)updates,
		     "%s: %g with %g of %llu updates, not %g", checkpoint_path(c), (double)w[i],
		     (double)state[i], (unsigned long long)updates, (double)want);
}

/* True: its blocks differ, so it was written between gradients. */
static bool check_dense(const struct checkpoint *c, uint32_t p, uint64_t step)
{
	const struct checkpoint_param *is = &checkpoint_manifest(c)->param[p];
	const float *w = store_find(checkpoint_weights_of(c), is->decl.name)->data, *state;
	char name[64];
	const uint64_t *updates;
	bool differ = false;

	snprintf(name, sizeof(name), "%s/state0", is->decl.name);
	state = state_of(c, name);
	snprintf(name, sizeof(name), "%s/updates", is->decl.name);
	updates = state_of(c, name);
	for (uint32_t i = 0; i < is->blocks; i++) {
		uint64_t at = i * is->block_elems, n = LINE - at;

		must(!step || updates[i] == step, "%llu updates", (unsigned long long)updates[i]);
		differ |= updates[i] != updates[0];
		check_run(c, w + at, state + at, n < is->block_elems ? n : is->block_elems,
			  updates[i]);
	}
	return differ;
}

static void check_lamb(const struct checkpoint *c, uint64_t updates)
{
	struct kern_setting lr = {"lr", 1};
	float m = 0, w = 0, v = 0, one = 1, *state[2] = {&m, &v};
	const float *grad = &one, *first = state_of(c, "lamb/state0");
	const float *second = state_of(c, "lamb/state1");
	struct kern_grads g = {
	    .data = (const void *const *)(const void *)&grad, .scale = 1, .n = 1};
	struct kern_opt opt;

	ok(kern_opt_parse("lamb", &lr, 1, &opt));
	for (uint64_t t = 1; t <= updates; t++)
		kern_prepare(&opt, &(struct kern_step){.t = t, .lr = 1, .clip = 1, .ratio = 1}, &g,
			     &w, state, 1);
	for (uint32_t i = 0; i < LINE; i++)
		must(first[i] == m && second[i] == v, "lamb's state of %llu updates",
		     (unsigned long long)updates);
}

static void check_ones(const struct checkpoint *c, enum srv_mode mode)
{
	const struct checkpoint_manifest *m = checkpoint_manifest(c);
	uint64_t step = mode == SRV_SYNC ? m->step : 0;

	check_dense(c, 0, step);
	must(!check_dense(c, 1, step), "half of a whole gradient");
	check_lamb(c, m->param[2].updates);
	must(!step || m->param[3].updates == step, "table");
	check_run(c, store_find(checkpoint_weights_of(c), "table")->data,
		  state_of(c, "table/state0"), ROWS * COLUMNS, m->param[3].updates);
}

START_TEST(each_block)
{
	enum srv_mode mode = modes[_i % 3];
	struct srv_options opt = saves_options(2, mode);
	_Atomic bool stop = false;
	struct ones o[2];
	struct bed b;

	saves_begin();
	opt.block_kib = _i < 6 ? 1 : 4;
	opt.workers = _i / 3 % 2 ? 2 : 0;
	bed_start(&b, &opt);
	for (uint32_t r = 0; r < 2; r++) {
		o[r] = (struct ones){
		    .uri = b.uri, .rank = r, .sync = mode != SRV_ASYNC, .stop = &stop};
		pthread_create(&o[r].thread, NULL, push_ones, &o[r]);
	}
	for (uint32_t i = 0; i < scaled(10, 4); i++) {
		struct checkpoint *c;

		saves_now(&b);
		must(bed_stats(&b).checkpoint_failures == 0, "failed");
		c = saves_newest();
		check_ones(c, mode);
		checkpoint_close(c);
	}
	/* In sync mode one alone goes on only when the other is gone. */
	atomic_store(&stop, true);
	for (uint32_t r = 0; r < 2; r++)
		pthread_join(o[r].thread, NULL);
	bed_stop(&b);
	saves_end();
}
END_TEST

TCase *checkpoint_case(void)
{
	TCase *t = e2e_disk_case("checkpoint");

	tcase_add_loop_test(t, goes_on, 0, 6);
	tcase_add_loop_test(t, of_packs, 0, 2);
	tcase_add_loop_test(t, under_load, 0, 3);
	tcase_add_loop_test(t, each_block, 0, 12);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables: rows pushed in pieces, merged, updated and pulled both ways are those of the reference,
 * bit for bit.
 */
#include <math.h>

#include "book.h"
#include "cases.h"

enum { RANKS = 3 };

struct hand {
	const char *uri;
	const struct gs_param_desc *desc;
	uint32_t rank, steps;
	uint64_t seed;
	double samples, scale; /* of gradients; 0: 1 */
	gs_trainer *t;
	gs_param *p;
	pthread_t thread;
};

static void hand_join(struct hand *h)
{
	h->t = connect_as(h->uri, (int32_t)h->rank);
	ok(gs_declare(h->t, h->desc, &h->p));
	ok(gs_start(h->t));
	if (h->samples > 0)
		ok(gs_set_samples(h->t, h->samples));
	if (h->scale > 0)
		ok(gs_set_grad_scale(h->t, h->scale));
}

/* Some rows, both ways: what is pulled before a step's push is what the release left. */
static void look(struct hand *h, uint64_t step)
{
	uint64_t x = mix64(h->seed ^ step << 8 ^ h->rank) | 1;
	float read[50][BOOK_DIM], gathered[50][BOOK_DIM];
	int64_t id[50];

	for (int i = 0; i < 50; i++)
		id[i] = i % 3 && id[i - 1] + 1 < BOOK_ROWS ? id[i - 1] + 1 : rnd(&x, BOOK_ROWS);
	ok(gs_pull_rows(h->t, h->p, id, 50, GS_ROWS_READ, read));
	ok(gs_pull_rows(h->t, h->p, id, 50, GS_ROWS_GATHER, gathered));
	for (int i = 0; i < 50; i++)
		must(memcmp(read[i], gathered[i], sizeof(read[i])) == 0,
		     "step %llu: row %lld, number %d: %g is read, %g gathered",
		     (unsigned long long)step, (long long)id[i], i, (double)read[i][0],
		     (double)gathered[i][0]);
}

static void *make_steps(void *arg)
{
	struct hand *h = arg;
	struct list *l = malloc(sizeof(*l));

	hand_join(h);
	for (uint64_t step = 1; step <= h->steps; step++) {
		look(h, step);
		nap_us(rnd(&h->seed, 50));
		list_make(l, 77, h->rank, step);
		/* Nothing pushed and nothing in the push are the same. */
		if (l->n > 0 || step % 2)
			list_push(h->t, h->p, l);
		ok(gs_step_end(h->t));
	}
	free(l);
	return NULL;
}

static void run_hands(struct hand *h, uint32_t ranks, const struct gs_param_desc *d,
		      const char *uri, uint32_t steps)
{
	for (uint32_t r = 0; r < ranks; r++) {
		h[r] = (struct hand){.uri = uri,
				     .desc = d,
				     .rank = r,
				     .steps = steps,
				     .seed = 3 + r,
				     .samples = h[r].samples,
				     .scale = h[r].scale};
		must(pthread_create(&h[r].thread, NULL, make_steps, &h[r]) == 0, "thread");
	}
	for (uint32_t r = 0; r < ranks; r++)
		pthread_join(h[r].thread, NULL);
}

/* The gradient of a step as the server must merge it. */
static void merge_step(struct list *total, const struct hand *h, uint32_t ranks,
		       enum gs_reduce reduce, uint64_t step)
{
	struct list *l = malloc(2 * sizeof(*l));
	double weights = 0;
	uint32_t n = 0;

	total->n = 0;
	for (uint32_t r = 0; r < ranks; r++) {
		double weight = reduce == GS_WEIGHTED && h[r].samples > 0 ? h[r].samples : 1;

		list_make(&l[0], 77, r, step);
		l[1].n = 0;
		list_merge(&l[1], &l[0], 1);
		if (!l[1].n)
			continue;
		list_merge(total, &l[1], (float)(weight / (h[r].scale > 0 ? h[r].scale : 1)));
		weights += weight;
		n++;
	}
	if (n && reduce == GS_MEAN)
		list_scale(total, 1.0f / (float)n);
	if (n && reduce == GS_WEIGHTED)
		list_scale(total, (float)(1 / weights));
	free(l);
}

/* Runs it, and compares with the reference. */
static void run_table(const struct srv_options *opt, const struct gs_param_desc *d, struct hand *h,
		      uint32_t steps)
{
	struct book *b = book_create(d);
	struct list *merged = malloc(sizeof(*merged));
	struct bed bed;

	bed_start(&bed, opt);
	run_hands(h, opt->trainers, d, bed.uri, steps);
	for (uint64_t step = 1; step <= steps; step++) {
		merge_step(merged, h, opt->trainers, d->reduce, step);
		book_update(b, merged);
	}
	for (uint32_t r = 0; r < opt->trainers; r++)
		book_check(b, h[r].t, h[r].p);
	must(bed_stats(&bed).violations == 0, "violations");
	for (uint32_t r = 0; r < opt->trainers; r++)
		leave(h[r].t);
	bed_stop(&bed);
	free(merged);
	free(b);
}

static const char *const rules[] = {"sgd", "momentum", "adagrad", "adam"};

START_TEST(agrees_with_the_reference)
{
	for (uint32_t workers = 0; workers <= 2; workers += 2) {
		struct srv_options opt = bed_options(1 + (uint32_t)_i % RANKS, SRV_SYNC);
		struct gs_param_desc d = book_desc("t", rules[_i / RANKS], 11);
		struct hand h[RANKS] = {0};

		opt.workers = workers;
		opt.block_kib = workers ? 1 : 256;
		opt.slots = workers ? 1 : 3;
		if (_i / RANKS == 1)
			gs_setting(&d, "momentum", 0.9);
		d.slot_rows = workers ? 7 : 1;
		run_table(&opt, &d, h, scaled(12, 4));
	}
}
END_TEST

START_TEST(sums_means_and_weights)
{
	struct srv_options opt = bed_options(RANKS, SRV_SYNC);
	struct gs_param_desc d = book_desc("t", "sgd", 12);
	struct hand h[RANKS] = {{.samples = 3, .scale = 4}, {0}, {.samples = 10, .scale = 1000}};

	d.reduce = (enum gs_reduce)_i;
	run_table(&opt, &d, h, scaled(8, 3));
}
END_TEST

/* Every row at every update, as a tensor's would be. */
START_TEST(not_lazy)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct gs_param_desc d = book_desc("t", _i ? "momentum" : "adam", 13);
	struct hand h[RANKS] = {0};

	if (_i)
		gs_setting(&d, "momentum", 0.9);
	gs_setting(&d, "lazy", 0);
	gs_setting(&d, "weight_decay", 0.01);
	opt.block_kib = 1;
	run_table(&opt, &d, h, scaled(8, 3));
}
END_TEST

/* What three trainers push is what one pushes that merged it before, whatever the optimizer. */
START_TEST(three_trainers_are_one)
{
	struct gs_param_desc d = book_desc("t", rules[_i], 14);
	struct list *merged = malloc(sizeof(*merged));
	float w[2][BOOK_ROWS][BOOK_DIM];
	struct hand h[RANKS] = {0};
	int64_t id[BOOK_ROWS];
	struct bed bed;

	d.push_rows = 4 * BOOK_PUSH;
	if (_i == 1)
		gs_setting(&d, "momentum", 0.9);
	for (int64_t i = 0; i < BOOK_ROWS; i++)
		id[i] = i;
	for (int k = 0; k < 2; k++) {
		struct srv_options opt = bed_options(k ? 1 : RANKS, SRV_SYNC);

		bed_start(&bed, &opt);
		if (!k) {
			run_hands(h, RANKS, &d, bed.uri, 5);
		} else {
			h[0] = (struct hand){.uri = bed.uri, .desc = &d};
			hand_join(&h[0]);
			for (uint64_t step = 1; step <= 5; step++) {
				merge_step(merged, h, RANKS, GS_MEAN, step);
				list_push(h[0].t, h[0].p, merged);
				ok(gs_step_end(h[0].t));
			}
		}
		ok(gs_pull_rows(h[0].t, h[0].p, id, BOOK_ROWS, GS_ROWS_AUTO, w[k]));
		for (uint32_t r = 0; r < opt.trainers; r++)
			leave(h[r].t);
		bed_stop(&bed);
	}
	must(memcmp(w[0], w[1], sizeof(w[0])) == 0, "other weights");
	free(merged);
}
END_TEST

/* Each complete push is an update; what is credited is applied. Gradients are 16 times too large.
 */
START_TEST(async_pushes)
{
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct gs_param_desc d = book_desc("t", rules[_i], 15);
	struct list *l = malloc(2 * sizeof(*l));
	struct book *b;
	struct hand h = {.desc = &d};
	struct bed bed;

	if (_i == 1)
		gs_setting(&d, "momentum", 0.9);
	opt.slots = 1 + (uint32_t)_i;
	b = book_create(&d);
	bed_start(&bed, &opt);
	h.uri = bed.uri;
	h.scale = 16;
	hand_join(&h);
	for (uint64_t step = 1; step <= scaled(20, 5); step++) {
		list_make(&l[0], 78, 0, step);
		l[1].n = 0;
		list_merge(&l[1], &l[0], 1);
		list_scale(&l[1], 1.0f / 16);
		book_update(b, &l[1]);
		list_push(h.t, h.p, &l[0]);
		if (step % 3 == 0) {
			ok(gs_wait_applied(h.t, h.p));
			book_check(b, h.t, h.p);
		}
	}
	/* An ordered way needs no wait. */
	ok(gs_pull_rows(h.t, h.p, (int64_t[]){l[0].n ? l[0].id[0] : 0}, 1, GS_ROWS_GATHER,
			l[0].value));
	must(memcmp(l[0].value, b->w[l[0].n ? l[0].id[0] : 0], sizeof(b->w[0])) == 0, "ordered");
	ok(gs_wait_applied(h.t, h.p));
	book_check(b, h.t, h.p);
	leave(h.t);
	bed_stop(&bed);
	free(l);
	free(b);
}
END_TEST

/* A step's end waits until what was pushed in it is applied. */
START_TEST(ssp_pushes)
{
	struct srv_options opt = bed_options(1, SRV_SSP);
	struct gs_param_desc d = book_desc("t", "adagrad", 19);
	struct list *l = malloc(2 * sizeof(*l));
	struct book *b = book_create(&d);
	struct hand h = {.desc = &d};
	struct bed bed;

	opt.staleness = 1;
	bed_start(&bed, &opt);
	h.uri = bed.uri;
	hand_join(&h);
	for (uint64_t push = 1; push <= scaled(20, 6); push++) {
		list_make(&l[0], 80, 0, push);
		l[1].n = 0;
		list_merge(&l[1], &l[0], 1);
		book_update(b, &l[1]);
		list_push(h.t, h.p, &l[0]);
		if (push % 2)
			continue;
		ok(gs_step_end(h.t));
		ok(gs_wait_applied(h.t, h.p));
		book_check(b, h.t, h.p);
	}
	leave(h.t);
	bed_stop(&bed);
	free(l);
	free(b);
}
END_TEST

/* Nobody has anything to say: no update, and no step of the optimizer's count. */
START_TEST(empty_pushes_are_none)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct gs_param_desc d = book_desc("t", "adam", 16);
	struct book *b = book_create(&d);
	struct list *l = calloc(1, sizeof(*l));
	struct hand h = {.desc = &d};
	uint64_t version;
	struct bed bed;

	bed_start(&bed, &opt);
	h.uri = bed.uri;
	hand_join(&h);
	for (int i = 0; i < 3; i++) {
		ok(gs_push_rows(h.t, h.p, NULL, NULL, 0));
		fails(gs_push_rows(h.t, h.p, NULL, NULL, 0), EALREADY, "\"t\"");
		ok(gs_step_end(h.t));
	}
	for (uint64_t e = 0; e < BOOK_ROWS * BOOK_DIM; e += BOOK_DIM) {
		ok(gs_block_version(h.t, h.p, e, &version));
		must(version == 0, "version %llu", (unsigned long long)version);
	}
	l->n = 1;
	l->id[0] = 9;
	l->value[0][2] = 1;
	book_update(b, l);
	list_push(h.t, h.p, l);
	ok(gs_step_end(h.t));
	book_check(b, h.t, h.p);
	ok(gs_block_version(h.t, h.p, 9 * BOOK_DIM, &version));
	must(version == 1, "version %llu of what was updated once", (unsigned long long)version);
	leave(h.t);
	bed_stop(&bed);
	free(l);
	free(b);
}
END_TEST

START_TEST(what_the_library_refuses)
{
	struct srv_options opt = bed_options(1, _i ? SRV_ASYNC : SRV_SYNC);
	struct gs_param_desc d = book_desc("t", "sgd", 17);
	struct book *b = book_create(&d);
	int64_t id[BOOK_PUSH + 1] = {0};
	float v[BOOK_PUSH + 1][BOOK_DIM];
	struct hand h = {.desc = &d};
	struct bed bed;
	void *buf;

	memset(v, 0x55, sizeof(v));
	bed_start(&bed, &opt);
	h.uri = bed.uri;
	hand_join(&h);
	id[2] = BOOK_ROWS;
	fails(gs_push_rows(h.t, h.p, id, v, 3), ERANGE, "300", "\"t\"", "299");
	fails(gs_pull_rows(h.t, h.p, id, 3, GS_ROWS_READ, v), ERANGE, "300", "299");
	id[2] = -1;
	fails(gs_push_rows(h.t, h.p, id, v, 3), ERANGE, "-1");
	fails(gs_pull_rows(h.t, h.p, id, 3, GS_ROWS_GATHER, v), ERANGE, "-1");
	id[2] = 0;
	fails(gs_push_rows(h.t, h.p, id, v, BOOK_PUSH + 1), EMSGSIZE, "65", "64");
	fails(gs_push_rows(h.t, h.p, NULL, v, 1), EINVAL, "NULL");
	fails(gs_push_rows(h.t, h.p, id, NULL, 1), EINVAL, "NULL");
	fails(gs_pull_rows(h.t, h.p, id, 1, GS_ROWS_AUTO, NULL), EINVAL, "NULL");
	fails(gs_pull_rows(h.t, h.p, id, 1, (enum gs_rows_way)7, v), EINVAL, "7");
	fails(gs_push(h.t, h.p, v), EINVAL, "gs_push_rows");
	fails(gs_grad_buffer(h.t, h.p, &buf), EINVAL, "gs_push_rows");
	fails(gs_pull(h.t, h.p, GS_RELAXED, v), EINVAL, "gs_pull_rows");
	fails(gs_push_rows(h.t, NULL, id, v, 1), EINVAL, "not one of");
	must(v[1][0] == v[0][0], "an output was touched");
	/* Nothing was sent: the step is still to be pushed, and nothing has changed. */
	book_check(b, h.t, h.p);
	ok(gs_push_rows(h.t, h.p, NULL, NULL, 0));
	ok(gs_pull_rows(h.t, h.p, NULL, 0, GS_ROWS_AUTO, NULL));
	leave(h.t);
	bed_stop(&bed);
	free(b);
}
END_TEST

static void refused_at_start(const struct srv_options *opt, const struct gs_param_desc *d,
			     const char *const *words)
{
	struct bed bed;
	gs_trainer *t;
	gs_param *p;

	bed_start(&bed, opt);
	t = connect_as(bed.uri, 0);
	ok(gs_declare(t, d, &p));
	must(gs_push_rows(t, p, NULL, NULL, 0) == -EINVAL, "a push before gs_start");
	must(gs_pull_rows(t, p, NULL, 0, GS_ROWS_AUTO, NULL) == -EINVAL, "a pull before gs_start");
	must(gs_start(t) == -EINVAL, "gs_start: %s", err_text());
	has_words(err_text(), words);
	gs_close(t);
	bed_stop(&bed);
}
#define REFUSED(d, ...) refused_at_start(&opt, d, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(what_the_server_refuses)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct gs_param_desc d = book_desc("t", "lamb", 0);

	REFUSED(&d, "\"t\"", "lamb");
	d = book_desc("t", "sgd", 0);
	gs_setting(&d, "lazy", 0.5);
	REFUSED(&d, "\"t\"", "lazy", "0.5");
	d = book_desc("t", "sgd", 0);
	d.kind = GS_HASHED;
	d.admit_after = 65536;
	REFUSED(&d, "\"t\"", "65536", "65535");
	d = book_desc("t", "sgd", 0);
	d.kind = GS_HASHED;
	d.shape[0] = (1 << 30) + 1;
	REFUSED(&d, "\"t\"", "1073741825", "1073741824");
}
END_TEST

/* What merging the longest pushes would take is in the sum. */
START_TEST(memory_is_stated)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct gs_param_desc d = book_desc("t", "sgd", 0);
	struct hand h = {.desc = &d};
	struct bed bed;

	opt.max_memory = 16 << 20;
	d.push_rows = 1 << 20;
	bed_start(&bed, &opt);
	h.t = connect_as(bed.uri, 0);
	ok(gs_declare(h.t, &d, &h.p));
	fails(gs_start(h.t), ENOMEM, "tables", "parts 40.0 MiB", "--max-memory");
	gs_close(h.t);
	bed_stop(&bed);
}
END_TEST

/* Short formats on the wire and in what is read; the server's own weights are floats. */
START_TEST(short_formats)
{
	struct srv_options opt = bed_options(1, _i % 2 ? SRV_ASYNC : SRV_SYNC);
	struct gs_param_desc d = book_desc("t", "adagrad", 18);
	enum kern_dtype type = _i / 2 ? KERN_F16 : KERN_BF16;
	uint16_t sent[BOOK_PUSH][BOOK_DIM], want[BOOK_DIM], got[3][BOOK_ROWS][BOOK_DIM];
	struct list *l = malloc(2 * sizeof(*l));
	int64_t id[BOOK_ROWS];
	struct hand h = {.desc = &d};
	struct book *b;
	struct bed bed;

	d.grad_dtype = (enum gs_dtype)type;
	d.weight_dtype = (enum gs_dtype)(_i / 2 ? GS_BF16 : GS_F16);
	b = book_create(&d);
	bed_start(&bed, &opt);
	h.uri = bed.uri;
	hand_join(&h);
	for (uint64_t step = 1; step <= 4; step++) {
		list_make(&l[0], 79, 0, step);
		kern_narrow(type, l[0].value[0], sent, l[0].n * BOOK_DIM);
		kern_widen(type, sent, l[0].value[0], l[0].n * BOOK_DIM);
		l[1].n = 0;
		list_merge(&l[1], &l[0], 1);
		book_update(b, &l[1]);
		ok(gs_push_rows(h.t, h.p, l[0].id, sent, l[0].n));
		if (_i % 2)
			ok(gs_wait_applied(h.t, h.p));
		else
			ok(gs_step_end(h.t));
	}
	for (int64_t i = 0; i < BOOK_ROWS; i++)
		id[i] = (i * 7) % BOOK_ROWS;
	for (int way = 0; way < 3; way++) {
		ok(gs_pull_rows(h.t, h.p, id, BOOK_ROWS, (enum gs_rows_way)way, got[way]));
		for (int64_t i = 0; i < BOOK_ROWS; i++) {
			kern_narrow((enum kern_dtype)d.weight_dtype, b->w[id[i]], want, BOOK_DIM);
			must(memcmp(got[way][i], want, sizeof(want)) == 0, "way %d, row %lld", way,
			     (long long)id[i]);
		}
	}
	leave(h.t);
	bed_stop(&bed);
	free(l);
	free(b);
}
END_TEST

/* ---- norms, infinities -------------------------------------------------------------------------
 */

/* A gradient of two rows, twice; of norm 5 once they are added up. */
static const int64_t norm_id[4] = {3, 200, 3, 200};
static const float norm_value[4][BOOK_DIM] = {{1}, {0, 2}, {2}, {0, 2}};

START_TEST(clipped_by_norm)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct gs_param_desc d = book_desc("t", "sgd", 0), dense = GS_PARAM_DESC_INIT;
	/* 5 and 12 make 13; of what clip_norm left, 2.5 and 6 make 6.5. */
	float line[1] = {_i == 2 ? 6 : 12}, w[2][BOOK_DIM], left = _i == 2 ? 0.25f : 0.5f;
	double global = _i == 1 ? 6.5 : 3.25;
	struct hand h = {.desc = &d};
	struct bed bed;
	gs_param *p;

	d.init = GS_INIT_CONSTANT;
	d.init_a = d.init_b = 0;
	dense.name = "line";
	dense.ndim = 1;
	dense.shape[0] = 1;
	gs_setting(&dense, "lr", 1);
	if (_i != 1)
		gs_setting(&d, "clip_norm", 2.5);
	if (_i) {
		gs_setting(&d, "clip_global_norm", global);
		gs_setting(&dense, "clip_global_norm", global);
	}
	bed_start(&bed, &opt);
	h.t = connect_as(bed.uri, 0);
	ok(gs_declare(h.t, &d, &h.p));
	ok(gs_declare(h.t, &dense, &p));
	ok(gs_start(h.t));
	ok(gs_push_rows(h.t, h.p, norm_id, norm_value, 4));
	ok(gs_push(h.t, p, line));
	ok(gs_step_end(h.t));
	ok(gs_pull_rows(h.t, h.p, norm_id, 2, GS_ROWS_AUTO, w));
	must(fabsf(w[0][0] + 0.3f * left) < 1e-6f && fabsf(w[1][1] + 0.4f * left) < 1e-6f, "%g %g",
	     (double)w[0][0], (double)w[1][1]);
	leave(h.t);
	bed_stop(&bed);
}
END_TEST

/* The first trainer's push is not finite, the second's is. */
START_TEST(not_finite)
{
	static const float good[1][BOOK_DIM] = {{1, 1, 1, 1, 1}};
	const float bad[2][BOOK_DIM] = {{1, 1, 1, 1, 1}, {[3] = NAN}};
	const int64_t id[2] = {4, 5};
	enum gs_nonfinite policy = (enum gs_nonfinite)(_i % 3);
	bool sync = _i < 3;
	struct srv_options opt = bed_options(2, sync ? SRV_SYNC : SRV_ASYNC);
	struct gs_param_desc d = book_desc("t", "sgd", 0);
	struct gs_counts c[2];
	struct hand h[2];
	float w[2][BOOK_DIM], want = -0.1f; /* of row 4 */
	struct bed bed;

	d.init = GS_INIT_CONSTANT;
	d.init_a = d.init_b = 0;
	d.nonfinite = policy;
	bed_start(&bed, &opt);
	for (uint32_t r = 0; r < 2; r++) {
		h[r] = (struct hand){.uri = bed.uri, .desc = &d, .rank = r};
		h[r].t = connect_as(bed.uri, (int32_t)r);
		ok(gs_declare(h[r].t, &d, &h[r].p));
	}
	for (uint32_t r = 0; r < 2; r++)
		must(pthread_create(&h[r].thread, NULL, (void *(*)(void *))(void *)gs_start,
				    h[r].t) == 0,
		     "thread");
	for (uint32_t r = 0; r < 2; r++) {
		pthread_join(h[r].thread, NULL);
		ok(gs_push_rows(h[r].t, h[r].p, id, r ? good : bad, r ? 1 : 2));
		if (!sync)
			ok(gs_wait_applied(h[r].t, h[r].p));
	}
	for (uint32_t r = 0; sync && r < 2; r++)
		ok(gs_step_post(h[r].t));
	for (uint32_t r = 0; r < 2; r++) {
		if (sync)
			ok(gs_step_wait(h[r].t));
		c[r].size = sizeof(c[r]);
		ok(gs_get_counts(h[r].t, &c[r]));
		must(c[r].nonfinite == (r == 0), "%llu not finite",
		     (unsigned long long)c[r].nonfinite);
		must(c[r].skipped == (sync && policy == GS_NONFINITE_SKIP), "%llu skipped",
		     (unsigned long long)c[r].skipped);
	}
	ok(gs_pull_rows(h[1].t, h[1].p, id, 2, GS_ROWS_AUTO, w));
	if (policy == GS_NONFINITE_SKIP && sync)
		want = 0;
	if (policy == GS_NONFINITE_APPLY && !sync)
		want = -0.2f;
	must(w[0][0] == want, "%g", (double)w[0][0]);
	must(isnan(w[1][3]) ? policy == GS_NONFINITE_APPLY : policy != GS_NONFINITE_APPLY, "%g",
	     (double)w[1][3]);
	for (uint32_t r = 0; r < 2; r++)
		leave(h[r].t);
	bed_stop(&bed);
}
END_TEST

/* ---- rows are whole ----------------------------------------------------------------------------
 */

struct churn {
	const char *uri;
	const struct gs_param_desc *desc;
	_Atomic bool end;
	uint64_t pushes;
};

enum { WIDE = 500 };

/* Every row always has one value in all its elements. */
static void *keep_pushing(void *arg)
{
	struct churn *c = arg;
	gs_trainer *t = connect_as(c->uri, 1);
	float *v = malloc(BOOK_PUSH * WIDE * sizeof(*v));
	uint64_t x = 5;
	gs_param *p;

	ok(gs_declare(t, c->desc, &p));
	ok(gs_start(t));
	while (!c->end) {
		int64_t id[BOOK_PUSH];

		for (int i = 0; i < BOOK_PUSH; i++) {
			id[i] = rnd(&x, 8);
			for (int k = 0; k < WIDE; k++)
				v[i * WIDE + k] = (float)(c->pushes % 7 + 1);
		}
		ok(gs_push_rows(t, p, id, v, BOOK_PUSH));
		c->pushes++;
	}
	ok(gs_wait_applied(t, p));
	leave(t);
	free(v);
	return NULL;
}

START_TEST(rows_are_whole)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct gs_param_desc d = book_desc("t", "sgd", 0);
	float *w = malloc(8 * WIDE * sizeof(*w)), last = 1;
	struct churn c = {.desc = &d};
	uint32_t changes = 0;
	pthread_t thread;
	struct bed bed;
	gs_trainer *t;
	gs_param *p;

	d.shape[0] = 8;
	d.shape[1] = WIDE;
	d.init = GS_INIT_CONSTANT;
	d.init_a = d.init_b = 0;
	d.slot_rows = BOOK_PUSH;
	opt.block_kib = 4;
	bed_start(&bed, &opt);
	c.uri = bed.uri;
	t = connect_as(bed.uri, 0);
	ok(gs_declare(t, &d, &p));
	ok(gs_start(t));
	must(pthread_create(&thread, NULL, keep_pushing, &c) == 0, "thread");
	for (uint64_t i = 0, deadline = clock_ns() + 20 * NS_PER_S;
	     (i < scaled(3000, 100) || changes < 5) && clock_ns() < deadline; i++) {
		int64_t id[8];

		for (int64_t k = 0; k < 8; k++)
			id[k] = (k * 3 + (int64_t)i) % 8;
		ok(gs_pull_rows(t, p, id, 8, GS_ROWS_READ, w));
		for (int k = 0; k < 8; k++)
			for (int e = 1; e < WIDE; e++)
				must(w[k * WIDE + e] == w[k * WIDE], "a torn row");
		changes += w[0] != last;
		last = w[0];
	}
	must(changes >= 5, "nothing was read while it changed");
	c.end = true;
	pthread_join(thread, NULL);
	leave(t);
	bed_stop(&bed);
	free(w);
}
END_TEST

TCase *rows_case(void)
{
	TCase *t = e2e_wire_case("rows");

	tcase_add_loop_test(t, agrees_with_the_reference, 0, 4 * RANKS);
	tcase_add_loop_test(t, sums_means_and_weights, 0, 3);
	tcase_add_loop_test(t, not_lazy, 0, 2);
	tcase_add_loop_test(t, three_trainers_are_one, 0, 4);
	tcase_add_loop_test(t, async_pushes, 0, 4);
	tcase_add_test(t, ssp_pushes);
	tcase_add_test(t, empty_pushes_are_none);
	tcase_add_loop_test(t, what_the_library_refuses, 0, 2);
	tcase_add_test(t, what_the_server_refuses);
	tcase_add_test(t, memory_is_stated);
	tcase_add_loop_test(t, short_formats, 0, 4);
	tcase_add_loop_test(t, clipped_by_norm, 0, 3);
	tcase_add_loop_test(t, not_finite, 0, 6);
	tcase_add_test(t, rows_are_whole);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds for all optimizers, whatever they compute: the same bits in each instruction set, in
 * pieces, and of merged gradients (kern.h, invariants 1 and 2); rows; copies; and the small cases
 * that a hand can compute. What they compute is tests/oracle's.
 */
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/kern.h"

enum { LEN = 2051, GRADS = 4, STEPS = 3, SETTINGS = 4 };

struct variant {
	const char *rule;
	struct kern_setting s[SETTINGS];
};

/* Each loop of each rule. */
static const struct variant variants[] = {
    {"sgd", {{"lr", 0.037}}},
    {"momentum", {{"lr", 0.037}, {"dampening", 0.2}}},
    {"nesterov", {{"lr", 0.037}}},
    {"adagrad", {{"lr", 0.037}, {"lr_decay", 0.1}, {"initial_accumulator", 0.1}}},
    {"decayed_adagrad", {{"lr", 0.037}}},
    {"adadelta", {{"lr", 1}}},
    {"rmsprop", {{"lr", 0.037}}},
    {"rmsprop", {{"lr", 0.037}, {"centered", 1}}},
    {"rmsprop", {{"lr", 0.037}, {"momentum", 0.7}, {"eps_inside", 1}}},
    {"rmsprop", {{"lr", 0.037}, {"centered", 1}, {"momentum", 0.7}, {"lr_inside", 1}}},
    {"adam", {{"lr", 0.037}}},
    {"adam", {{"lr", 0.037}, {"amsgrad", 1}, {"eps_hat", 1}}},
    {"adamw", {{"lr", 0.037}}},
    {"adamax", {{"lr", 0.037}}},
    {"ftrl", {{"lr", 0.037}, {"l1", 0.5}, {"l2", 0.1}}},
    {"ftrl", {{"lr", 0.037}, {"l1", 0.5}, {"lr_power", -0.3}}},
    {"lars", {{"lr", 0.37}}},
    {"lamb", {{"lr", 0.037}}},
    {"lion", {{"lr", 0.037}}},
    {"add", {{"lr", 0.5}}},
};

enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

/* What all take, each alone and all together. */
static const struct kern_common commons[] = {
    {0},
    {.clip_value = 0.5f},
    {.dc_lambda = 0.3f},
    {.l1 = 0.1f},
    {.weight_decay = 0.1f},
    {.weight_decay = 0.1f, .decoupled = true},
    {.clip_value = 0.5f, .dc_lambda = 0.3f, .l1 = 0.1f, .weight_decay = 0.1f},
};

enum { COMMONS = sizeof(commons) / sizeof(commons[0]) };

static struct kern_opt opt_of(const struct variant *v)
{
	struct kern_opt opt;
	unsigned n = 0;

	while (n < SETTINGS && v->s[n].name[0])
		n++;
	ck_assert_msg(kern_opt_parse(v->rule, v->s, n, &opt) == 0, "%s", err_text());
	return opt;
}

/* All that a case starts from, and is made of. */
struct data {
	float w[LEN], backup[LEN], merged[LEN];
	float wide[GRADS][LEN + STEPS];
	uint16_t narrow[GRADS][LEN + STEPS];
};

/* Made once for each format. */
static struct data *data(enum kern_dtype dtype)
{
	static struct data all[3];
	struct data *d = &all[dtype];

	if (d->w[0] != 0)
		return d;
	kern_init_fill(KERN_INIT_NORMAL, 1, 0, 1, 0, d->w, LEN);
	kern_init_fill(KERN_INIT_NORMAL, 2, 0, 1, 0, d->backup, LEN);
	for (unsigned k = 0; k < GRADS; k++) {
		kern_init_fill(KERN_INIT_NORMAL, 3 + k, 0, 1, 0, d->wide[k], LEN + STEPS);
		if (dtype != KERN_F32)
			kern_narrow(dtype, d->wide[k], d->narrow[k], LEN + STEPS);
	}
	return d;
}

struct result {
	float w[LEN], state[KERN_STATE_MAX][LEN];
	uint16_t copy[LEN];
};

struct how {
	enum kern_dtype dtype;
	unsigned n;
	bool weighted, merge_first;
	size_t piece; /* 0: whole */
};

static struct kern_grads grads_of(const struct how *how, const struct data *d, unsigned t,
				  size_t at, const void **ptr)
{
	static const float factor[GRADS] = {3, 1, 0.5f, 7};

	for (unsigned k = 0; k < how->n; k++)
		ptr[k] = how->dtype == KERN_F32 ? (const void *)(d->wide[k] + t + at)
						: d->narrow[k] + t + at;
	return (struct kern_grads){
	    .data = ptr,
	    .factor = how->weighted ? factor : NULL,
	    .scale = how->n == 1 ? 1 : 1.0f / (float)how->n,
	    .n = how->n,
	    .dtype = how->dtype,
	};
}

static void apply_pieces(const struct kern_opt *opt, const struct kern_step *step,
			 const struct how *how, const struct data *d, struct result *r)
{
	size_t piece = how->piece ? how->piece : LEN;

	for (size_t at = 0, m; at < LEN; at += m) {
		struct kern_step part = *step;
		const void *ptr[GRADS], *one[] = {d->merged + at};
		struct kern_grads g = grads_of(how, d, (unsigned)step->t - 1, at, ptr);
		float *state[KERN_STATE_MAX];

		m = LEN - at < piece ? LEN - at : piece;
		if (how->merge_first)
			g = (struct kern_grads){.data = one, .scale = 1, .n = 1};
		for (unsigned i = 0; i < KERN_STATE_MAX; i++)
			state[i] = r->state[i] + at;
		part.backup = d->backup + at;
		part.copy = r->copy + at;
		kern_apply(opt, &part, &g, r->w + at, state, m);
	}
}

static void run(const struct kern_opt *opt, float clip, const struct how *how, struct result *r)
{
	struct data *d = data(how->dtype);

	memset(r, 0, sizeof(*r));
	memcpy(r->w, d->w, sizeof(r->w));
	for (unsigned t = 1; t <= STEPS; t++) {
		float *state[KERN_STATE_MAX] = {r->state[0], r->state[1], r->state[2], r->state[3]};
		struct kern_step step = {.t = t,
					 .lr = kern_opt_lr(opt),
					 .clip = clip,
					 .backup = d->backup,
					 .ratio = 1,
					 .copy_dtype = KERN_BF16};
		const void *ptr[GRADS];
		struct kern_grads g = grads_of(how, d, t - 1, 0, ptr);

		kern_merge(&g, d->merged, LEN);
		if (kern_opt_prepares(opt))
			kern_prepare(opt, &step, &g, r->w, state, LEN);
		apply_pieces(opt, &step, how, d, r);
	}
}

static void check_same(const struct result *a, const struct result *b, const struct kern_opt *opt,
		       unsigned common, const struct how *how)
{
	if (memcmp(a, b, sizeof(*a)))
		ck_abort_msg(
		    "%s, %s, common %u, format %u, %u gradients%s%s, pieces of %zu: differs",
		    kern_isa(), kern_opt_name(opt), common, how->dtype, how->n,
		    how->weighted ? ", weighted" : "", how->merge_first ? ", merged first" : "",
		    how->piece);
}

static void check_ways(const struct kern_opt *opt, unsigned common, float clip, struct how how)
{
	static struct result want, got;

	ck_assert_int_eq(kern_isa_use("baseline"), 0);
	run(opt, clip, &how, &want);
	ck_assert_msg(memcmp(want.w, data(how.dtype)->w, sizeof(want.w)), "nothing happened");
	for (unsigned i = 0; kern_isa_at(i); i++) {
		struct how pieces = how, merged = how;

		if (kern_isa_use(kern_isa_at(i)))
			continue;
		run(opt, clip, &how, &got);
		check_same(&want, &got, opt, common, &how);
		pieces.piece = 1237;
		run(opt, clip, &pieces, &got);
		check_same(&want, &got, opt, common, &pieces);
		merged.merge_first = true;
		run(opt, clip, &merged, &got);
		check_same(&want, &got, opt, common, &merged);
	}
}

START_TEST(same_bits_however_it_is_done)
{
	struct kern_opt opt = opt_of(&variants[_i]);

	for (unsigned c = 0; c < COMMONS; c++) {
		opt.common = commons[c];
		/* Not all of the product: each format meets each number of gradients. */
		for (unsigned k = 0; k < 12; k++)
			check_ways(&opt, c, (k + c) % 3 ? 1 : 0.4f,
				   (struct how){.dtype = k % 3,
						.n = k / 3 + 1,
						.weighted = (k + c) % 2 == 0});
	}
}
END_TEST

/* Short arrays, where loops have nothing but their ends, and guards behind. */
START_TEST(nothing_beyond_the_end)
{
	struct kern_opt opt = opt_of(&variants[_i]);
	struct kern_step step = {.t = 1, .lr = 0.1f, .clip = 1, .ratio = 1};

	for (unsigned i = 0; kern_isa_at(i); i++) {
		if (kern_isa_use(kern_isa_at(i)))
			continue;
		for (size_t len = 0; len < 70; len++) {
			float w[80], s[KERN_STATE_MAX][80], g[80];
			float *state[KERN_STATE_MAX] = {s[0], s[1], s[2], s[3]};
			const void *one[] = {g};
			const struct kern_grads grads = {.data = one, .scale = 1, .n = 1};

			for (unsigned k = 0; k < 80; k++)
				w[k] = g[k] = s[0][k] = s[1][k] = s[2][k] = s[3][k] = 0.5f;
			kern_prepare(&opt, &step, &grads, w, state, len);
			kern_apply(&opt, &step, &grads, w, state, len);
			for (size_t k = len; k < 80; k++)
				ck_assert(w[k] == 0.5f && s[0][k] == 0.5f && s[1][k] == 0.5f &&
					  s[2][k] == 0.5f && s[3][k] == 0.5f);
			if (len)
				ck_assert(w[0] != 0.5f && w[len - 1] == w[0]);
		}
	}
}
END_TEST

/* ---- rows ------------------------------------------------------------------------------------ */

enum { ROWS = 40, PICKED = 13 };

/* Dense steps of the picked rows alone give the same. */
static void check_rows(const struct kern_opt *opt, size_t dim)
{
	size_t len = ROWS * dim, bytes = len * sizeof(float);
	float *w = malloc(bytes), *rows_w = malloc(bytes), *g = malloc(bytes),
	      *backup = malloc(bytes);
	uint16_t *copy = calloc(len, 2), *rows_copy = calloc(len, 2);
	float *s[KERN_STATE_MAX], *rows_s[KERN_STATE_MAX];
	uint64_t row[PICKED];

	kern_init_fill(KERN_INIT_NORMAL, 1, 0, 1, 0, w, len);
	kern_init_fill(KERN_INIT_NORMAL, 2, 0, 1, 0, g, len);
	kern_init_fill(KERN_INIT_NORMAL, 3, 0, 1, 0, backup, len);
	memcpy(rows_w, w, bytes);
	for (unsigned k = 0; k < KERN_STATE_MAX; k++) {
		s[k] = calloc(len, sizeof(float));
		rows_s[k] = calloc(len, sizeof(float));
	}
	for (unsigned i = 0; i < PICKED; i++)
		row[i] = (i * 17 + 5) % ROWS;
	for (unsigned t = 1; t <= 2; t++) {
		struct kern_step step = {.t = t,
					 .lr = 0.1f,
					 .clip = 0.5f,
					 .ratio = 1,
					 .backup = backup,
					 .copy_dtype = KERN_F16,
					 .copy = rows_copy};

		ck_assert(!kern_apply_rows(opt, &step, row, g, PICKED, dim, rows_w, rows_s));
		for (unsigned i = 0; i < PICKED; i++) {
			size_t at = row[i] * dim;
			float *state[] = {s[0] + at, s[1] + at, s[2] + at, s[3] + at};
			const void *one[] = {g + i * dim};
			const struct kern_grads grads = {.data = one, .scale = 1, .n = 1};

			step.backup = backup + at;
			step.copy = copy + at;
			kern_apply(opt, &step, &grads, w + at, state, dim);
		}
	}
	ck_assert_mem_eq(rows_w, w, bytes);
	ck_assert_mem_eq(rows_copy, copy, len * 2);
	for (unsigned k = 0; k < KERN_STATE_MAX; k++) {
		ck_assert_mem_eq(rows_s[k], s[k], bytes);
		free(s[k]);
		free(rows_s[k]);
	}
	free(w);
	free(rows_w);
	free(g);
	free(backup);
	free(copy);
	free(rows_copy);
}

START_TEST(rows_are_small_tensors)
{
	static const size_t dims[] = {1, 3, 16, 64, 4097};
	struct kern_opt opt = opt_of(&variants[_i]);

	ck_assert(kern_opt_dense(&opt));
	ck_assert(kern_opt_by_rows(&opt) == !kern_opt_prepares(&opt));
	if (!kern_opt_by_rows(&opt))
		return;
	for (unsigned i = 0; kern_isa_at(i); i++)
		for (unsigned c = 0; c < COMMONS && kern_isa_use(kern_isa_at(i)) == 0; c++) {
			opt.common = commons[c];
			for (unsigned k = 0; k < 5; k++)
				check_rows(&opt, dims[k]);
		}
}
END_TEST

/* The numbers of two rows of three, by hand. */
START_TEST(one_number_a_row)
{
	const struct kern_setting s[] = {{"lr", 1}, {"eps", 1e-20}};
	const uint64_t row[] = {2, 0};
	const float g[] = {3, 4, 5, 12, 0, 0}; /* dim 2: means of squares 12.5 and 84.5 */
	float w[6] = {0}, sum[3] = {0}, *state[] = {sum};
	const struct kern_step step = {.t = 1, .lr = 1, .clip = 1, .ratio = 1};
	struct kern_opt opt;

	ck_assert_int_eq(kern_opt_parse("rowwise_adagrad", s, 2, &opt), 0);
	ck_assert(kern_opt_by_rows(&opt) && !kern_opt_dense(&opt));
	ck_assert_uint_eq(kern_opt_arrays(&opt), 1);
	ck_assert_uint_eq(kern_opt_row_state(&opt, 0, 2), 1);
	ck_assert(!kern_apply_rows(&opt, &step, row, g, 2, 2, w, state));
	ck_assert_float_eq(sum[2], 12.5f);
	ck_assert_float_eq(sum[1], 0);
	ck_assert_float_eq(sum[0], 84.5f);
	ck_assert_float_eq_tol(w[4], (float)(-3 / sqrt(12.5)), 1e-7f);
	ck_assert_float_eq_tol(w[5], (float)(-4 / sqrt(12.5)), 1e-7f);
	ck_assert_float_eq_tol(w[1], (float)(-12 / sqrt(84.5)), 1e-7f);
	ck_assert(w[2] == 0 && w[3] == 0);
}
END_TEST

/* A row longer than a tile, cut nowhere by the tile: with adjustment and without. */
START_TEST(long_rows_have_one_number)
{
	enum { DIM = 9001 };
	static float g[DIM], w[DIM];
	const struct kern_setting s[] = {{"lr", 1}};
	const uint64_t row[] = {0};
	struct kern_opt opt;

	ck_assert_int_eq(kern_opt_parse("rowwise_adagrad", s, 1, &opt), 0);
	for (size_t i = 0; i < DIM; i++)
		g[i] = 2;
	for (unsigned adjusted = 0; adjusted < 2; adjusted++) {
		float sum = 0, *state[] = {&sum};
		const struct kern_step step = {
		    .t = 1, .lr = 1, .clip = adjusted ? 0.5f : 1, .ratio = 1};

		memset(w, 0, sizeof(w));
		kern_apply_rows(&opt, &step, row, g, 1, DIM, w, state);
		ck_assert_float_eq(sum, adjusted ? 1 : 4);
		for (size_t i = 0; i < DIM; i++)
			ck_assert(w[i] == -1);
	}
}
END_TEST

/* ---- what a step tells and where it writes --------------------------------------------------- */

/* The flag is of the merged gradient, before clipping hides an infinity. */
static void check_flag(const struct kern_opt *opt, enum kern_dtype dtype, size_t len, size_t at)
{
	static float a[LEN], b[LEN], w[LEN], s[KERN_STATE_MAX][LEN];
	static uint16_t ha[LEN], hb[LEN];
	float *state[] = {s[0], s[1], s[2], s[3]};
	const void *two[] = {dtype == KERN_F32 ? (void *)a : ha,
			     dtype == KERN_F32 ? (void *)b : hb};
	const struct kern_step step = {.t = 1, .lr = 0.1f, .clip = 1, .ratio = 1};
	const uint64_t row[] = {0};

	for (unsigned n = 1; n <= 2; n++)
		for (unsigned odd = 0; odd < 3; odd++) {
			struct kern_grads g = {.data = two, .scale = 1, .n = n, .dtype = dtype};

			memset(a, 0, sizeof(a));
			memset(b, 0, sizeof(b));
			a[at] = odd == 1 ? -INFINITY : odd == 2 ? NAN : 1;
			kern_narrow(KERN_BF16, a, ha, len);
			kern_narrow(KERN_BF16, b, hb, len);
			ck_assert(kern_apply(opt, &step, &g, w, state, len) == (odd != 0));
			if (dtype == KERN_F32 && n == 1 && kern_opt_by_rows(opt))
				ck_assert(kern_apply_rows(opt, &step, row, a, 1, len, w, state) ==
					  (odd != 0));
		}
}

START_TEST(infinities_are_told)
{
	struct kern_opt opt = opt_of(&variants[_i]);

	for (unsigned i = 0; kern_isa_at(i); i++)
		for (unsigned c = 0; c < 2 && kern_isa_use(kern_isa_at(i)) == 0; c++) {
			opt.common = commons[c];
			for (size_t at = 0; at < 67; at++)
				check_flag(&opt, at % 2 ? KERN_F32 : KERN_BF16, 67, at);
			check_flag(&opt, KERN_F32, LEN, LEN - 1);
			check_flag(&opt, KERN_F32, LEN, 1);
		}
}
END_TEST

/* A decay that overflows is not the gradient's. */
START_TEST(only_the_gradient_is_told)
{
	const struct kern_opt opt = {.value = {0.1f}, .common = {.weight_decay = 3e38f}};
	const struct kern_step step = {.t = 1, .lr = 0.1f, .clip = 1, .ratio = 1};
	float w = 1e10f, g = 1;
	const void *one[] = {&g};
	const struct kern_grads grads = {.data = one, .scale = 1, .n = 1};
	const uint64_t row[] = {0};

	ck_assert(!kern_apply(&opt, &step, &grads, &w, NULL, 1));
	w = 1e10f;
	ck_assert(!kern_apply_rows(&opt, &step, row, &g, 1, 1, &w, NULL));
}
END_TEST

START_TEST(copies_what_it_wrote)
{
	enum { MANY = 5003 };
	static float w[MANY], g[MANY], copy[MANY + 1];
	static uint16_t want[MANY + 1], got[MANY + 1];
	const struct kern_opt opt = {.value = {0.1f}};
	const void *one[] = {g};
	const struct kern_grads grads = {.data = one, .scale = 1, .n = 1};

	for (enum kern_dtype dtype = KERN_F32; dtype <= KERN_F16; dtype++) {
		struct kern_step step = {
		    .t = 1, .lr = 0.1f, .clip = 1, .ratio = 1, .copy_dtype = dtype, .copy = got};

		if (dtype == KERN_F32)
			step.copy = copy;
		kern_init_fill(KERN_INIT_NORMAL, 1, 0, 1, 0, w, MANY);
		kern_init_fill(KERN_INIT_NORMAL, 2, 0, 1, 0, g, MANY);
		kern_apply(&opt, &step, &grads, w, NULL, MANY);
		kern_narrow(dtype == KERN_F32 ? KERN_BF16 : dtype, w, want, MANY);
		if (dtype == KERN_F32)
			ck_assert_mem_eq(copy, w, sizeof(w));
		else
			ck_assert_mem_eq(got, want, MANY * sizeof(*got));
		ck_assert(copy[MANY] == 0 && got[MANY] == 0);
	}
}
END_TEST

/* ---- by hand --------------------------------------------------------------------------------- */

/* One weight of 10, gradients of 2, numbers that are exact. */
struct by_hand {
	struct variant v;
	struct kern_common common;
	float w[2];
};

static const struct by_hand by_hand[] = {
    {{"add", {{"lr", 1}}}, {.clip_norm = 0}, {12, 14}},
    {{"lion", {{"lr", 0.5}}}, {.clip_norm = 0}, {9.5f, 9}},
    {{"adam", {{"lr", 0.5}, {"eps", 0}, {"beta1", 0}, {"beta2", 0}}}, {.clip_norm = 0}, {9.5f, 9}},
    {{"adagrad", {{"lr", 1}, {"initial_accumulator", 12}, {"eps", 0}}},
     {.clip_norm = 0},
     {9.5f, 9.0527864f}}, /* 9.5 - 2 / sqrt(20) */
    {{"rmsprop", {{"lr", 1}, {"alpha", 0}, {"eps", 0}}}, {.clip_norm = 0}, {9, 8}},
    {{"rmsprop", {{"lr", 1}, {"alpha", 0}, {"eps", 12}, {"eps_inside", 1}}},
     {.clip_norm = 0},
     {9.5f, 9}},
    {{"adamax", {{"lr", 1}, {"beta1", 0}, {"eps", 1e-30}}}, {.clip_norm = 0}, {9, 8}},
    /* n = 4, z = 2 - 2 * 10 = -18: w = (18 - 2) / 2; n = 8 ... */
    {{"ftrl", {{"lr", 1}, {"l1", 2}}}, {.clip_norm = 0}, {8, 7.2928932f}},
    {{"ftrl", {{"lr", 1}, {"l1", 20}}}, {.clip_norm = 0}, {0, 0}},
    {{"sgd", {{"lr", 0.5}}}, {.clip_value = 1}, {9.5f, 9}},
    {{"sgd", {{"lr", 0.5}}}, {.l1 = 1}, {8.5f, 7}},
    {{"sgd", {{"lr", 0.5}}}, {.weight_decay = 0.5f}, {6.5f, 3.875f}},
    {{"sgd", {{"lr", 0.5}}}, {.weight_decay = 0.5f, .decoupled = true}, {6.5f, 3.875f}},
    /* The backup is 9: g + 0.5 * g * g * (w - 9). */
    {{"sgd", {{"lr", 0.5}}}, {.dc_lambda = 0.5f}, {8, 8}},
    /* Clipped before it is decayed. */
    {{"sgd", {{"lr", 0.5}}}, {.clip_value = 1, .weight_decay = 0.5f}, {7, 4.75f}},
    {{"momentum", {{"lr", 0.5}, {"momentum", 0.5}}},
     {.weight_decay = 0.5f, .decoupled = true},
     {6.5f, 3.375f}},
};

START_TEST(small_cases)
{
	const struct by_hand *c = &by_hand[_i];
	struct kern_opt opt = opt_of(&c->v);
	float w = 10, g = 2, s[KERN_STATE_MAX] = {0}, backup = 9;
	float *state[] = {&s[0], &s[1], &s[2], &s[3]};
	const void *one[] = {&g};
	const struct kern_grads grads = {.data = one, .scale = 1, .n = 1};

	opt.common = c->common;
	for (unsigned t = 1; t <= 2; t++) {
		const struct kern_step step = {
		    .t = t, .lr = kern_opt_lr(&opt), .clip = 1, .ratio = 1, .backup = &backup};

		kern_apply(&opt, &step, &grads, &w, state, 1);
		ck_assert_float_eq_tol(w, c->w[t - 1], 1e-6f);
	}
}
END_TEST

/* |w| = 5, |g| = 10 */
START_TEST(norms_by_hand)
{
	const struct kern_setting lars[] = {{"lr", 1}, {"trust", 2}, {"weight_decay", 0}};
	const struct kern_setting lamb[] = {
	    {"lr", 0.2}, {"beta1", 0}, {"beta2", 0}, {"eps", 0}, {"weight_decay", 0}};
	float w[] = {3, -4}, g[] = {6, 8}, m[2] = {0}, v[2] = {0}, *state[] = {m, v};
	const void *one[] = {g};
	const struct kern_grads grads = {.data = one, .scale = 1, .n = 1};
	struct kern_step step = {.t = 1, .lr = 1, .clip = 1};
	struct kern_opt opt;

	ck_assert_int_eq(kern_opt_parse("lars", lars, 3, &opt), 0);
	kern_prepare(&opt, &step, &grads, w, state, 2);
	ck_assert_float_eq(step.ratio, 1);
	kern_apply(&opt, &step, &grads, w, state, 2);
	ck_assert_float_eq(w[0], -3);
	ck_assert_float_eq(w[1], -12);
	/* Without a norm the rate is as it is. */
	w[0] = w[1] = 0;
	step.ratio = 7;
	kern_prepare(&opt, &step, &grads, w, state, 2);
	ck_assert_float_eq(step.ratio, 1);

	/* The direction is (1, 1), its norm sqrt(2). */
	w[0] = 3;
	w[1] = -4;
	memset(m, 0, sizeof(m));
	step.lr = 0.2f;
	ck_assert_int_eq(kern_opt_parse("lamb", lamb, 5, &opt), 0);
	kern_prepare(&opt, &step, &grads, w, state, 2);
	ck_assert_float_eq_tol(step.ratio, 3.5355339f, 1e-6f);
	kern_apply(&opt, &step, &grads, w, state, 2);
	ck_assert_float_eq_tol(w[0], 3 - 0.70710678f, 1e-6f);
	ck_assert_float_eq_tol(w[1], -4 - 0.70710678f, 1e-6f);
}
END_TEST

START_TEST(ftrl_stands_still_at_rate_0)
{
	const struct kern_setting lr = {"lr", 0};
	float w = 10, g = 2, n = 3, z = 4, *state[] = {&n, &z};
	const float *grads[] = {&g};
	struct kern_opt opt;

	ck_assert_int_eq(kern_opt_parse("ftrl", &lr, 1, &opt), 0);
	kern_apply_mean(&opt, 1, &w, state, grads, 1, 1);
	ck_assert(w == 10 && n == 3 && z == 4);
}
END_TEST

/* A weight whose gradient was always 0 has no NaN. */
START_TEST(no_gradient_no_nan)
{
	struct kern_opt opt = opt_of(&variants[_i]);
	float w = 10, g = 0, s[KERN_STATE_MAX] = {0}, *state[] = {&s[0], &s[1], &s[2], &s[3]};
	const float *grads[] = {&g};

	for (unsigned t = 1; t <= 3; t++)
		kern_apply_mean(&opt, t, &w, state, grads, 1, 1);
	ck_assert(isfinite(w));
}
END_TEST

/* A constant gradient leaves nothing of square - mean^2 but rounding, of either sign. */
START_TEST(no_root_of_less_than_0)
{
	const struct kern_setting s[] = {{"lr", 1e-3}, {"centered", 1}, {"alpha", 0.5}};
	struct kern_opt opt;

	ck_assert_int_eq(kern_opt_parse("rmsprop", s, 3, &opt), 0);
	for (unsigned k = 1; k < 200; k++) {
		float w = 1, g = (float)k * 0.0137f, a = 0, b = 0, *state[] = {&a, &b};
		const float *grads[] = {&g};

		for (unsigned t = 1; t <= 60; t++)
			kern_apply_mean(&opt, t, &w, state, grads, 1, 1);
		ck_assert(!isnan(w));
	}
}
END_TEST

START_TEST(every_rule_is_here)
{
	for (unsigned i = 0; kern_opt_at(i); i++) {
		bool found = !strcmp(kern_opt_at(i), "rowwise_adagrad");

		for (unsigned v = 0; v < VARIANTS; v++)
			found |= !strcmp(kern_opt_at(i), variants[v].rule);
		ck_assert_msg(found, "%s is not tested", kern_opt_at(i));
	}
}
END_TEST

Suite *rules_suite(void)
{
	Suite *suite = suite_create("rules");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 200);
	tcase_add_test(tc, every_rule_is_here);
	tcase_add_loop_test(tc, same_bits_however_it_is_done, 0, VARIANTS);
	tcase_add_loop_test(tc, nothing_beyond_the_end, 0, VARIANTS);
	tcase_add_loop_test(tc, rows_are_small_tensors, 0, VARIANTS);
	tcase_add_test(tc, one_number_a_row);
	tcase_add_test(tc, long_rows_have_one_number);
	tcase_add_loop_test(tc, infinities_are_told, 0, VARIANTS);
	tcase_add_test(tc, only_the_gradient_is_told);
	tcase_add_test(tc, copies_what_it_wrote);
	tcase_add_loop_test(tc, small_cases, 0, sizeof(by_hand) / sizeof(by_hand[0]));
	tcase_add_test(tc, norms_by_hand);
	tcase_add_test(tc, ftrl_stands_still_at_rate_0);
	tcase_add_loop_test(tc, no_gradient_no_nan, 0, VARIANTS);
	tcase_add_test(tc, no_root_of_less_than_0);
	suite_add_tcase(suite, tc);
	return suite;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference of tables.
 */
#include "book.h"

struct gs_param_desc book_desc(const char *name, const char *optimizer, uint64_t seed)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = name;
	d.ndim = 2;
	d.shape[0] = BOOK_ROWS;
	d.shape[1] = BOOK_DIM;
	d.kind = GS_TABLE;
	d.optimizer = optimizer;
	gs_setting(&d, "lr", 0.1);
	d.init = GS_INIT_UNIFORM;
	d.init_a = -1;
	d.init_b = 1;
	d.init_seed = seed;
	d.slot_rows = 7;
	d.push_rows = BOOK_PUSH;
	d.pull_rows = 32;
	return d;
}

struct book *book_create(const struct gs_param_desc *d)
{
	struct book *b = calloc(1, sizeof(*b));
	struct kern_setting s[GS_MAX_SETTINGS];
	unsigned n = 0;

	b->lazy = true;
	for (uint32_t i = 0; i < d->n_settings; i++) {
		if (strcmp(d->settings[i].name, "lazy") == 0) {
			b->lazy = d->settings[i].value != 0;
			continue;
		}
		memset(&s[n], 0, sizeof(s[n]));
		memcpy(s[n].name, d->settings[i].name, strlen(d->settings[i].name));
		s[n++].value = d->settings[i].value;
	}
	ok(kern_opt_parse(d->optimizer, s, n, &b->opt));
	kern_init_fill(KERN_INIT_UNIFORM, d->init_seed, d->init_a, d->init_b, 0, b->w[0],
		       BOOK_ROWS * BOOK_DIM);
	return b;
}

static int64_t find(const struct list *l, int64_t id)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->id[i] == id)
			return i;
	return -1;
}

static void update_row(struct book *b, uint64_t row, const float *grad)
{
	const void *g = grad;
	struct kern_grads grads = {.data = &g, .scale = 1, .n = 1, .dtype = KERN_F32};
	struct kern_step step = {.t = b->t, .lr = kern_opt_lr(&b->opt), .clip = 1, .ratio = 1};
	float *state[KERN_STATE_MAX];

	for (unsigned i = 0; i < KERN_STATE_MAX; i++)
		state[i] = b->state[i] + row * BOOK_DIM;
	kern_apply(&b->opt, &step, &grads, b->w[row], state, BOOK_DIM);
}

void book_update(struct book *b, const struct list *merged)
{
	static const float zero[BOOK_DIM];

	b->t += merged->n > 0;
	for (int64_t row = 0; merged->n > 0 && row < BOOK_ROWS; row++) {
		int64_t at = find(merged, row);

		if (at >= 0)
			update_row(b, (uint64_t)row, merged->value[at]);
		else if (!b->lazy)
			update_row(b, (uint64_t)row, zero);
	}
}

void list_make(struct list *l, uint64_t seed, uint32_t rank, uint64_t step)
{
	uint64_t x = mix64(seed ^ mix64((uint64_t)rank << 40 ^ step)) | 1;

	l->n = rnd(&x, 5) ? rnd(&x, BOOK_PUSH + 1) : 0;
	for (uint32_t i = 0; i < l->n; i++) {
		/* Some close together, so that trainers meet, and some rows come twice. */
		l->id[i] = rnd(&x, rnd(&x, 2) ? BOOK_ROWS : 20);
		for (int k = 0; k < BOOK_DIM; k++)
			l->value[i][k] = ((float)rnd(&x, 1 << 20) - 0x1p19f) * 0x1p-18f;
	}
}

void list_merge(struct list *total, const struct list *part, float factor)
{
	for (uint32_t i = 0; i < part->n; i++) {
		int64_t at = find(total, part->id[i]);

		if (at < 0)
			total->id[total->n] = part->id[i];
		for (int k = 0; k < BOOK_DIM; k++) {
			float v = factor == 1 ? part->value[i][k] : factor * part->value[i][k];

			if (at < 0)
				total->value[total->n][k] = v;
			else
				total->value[at][k] += v;
		}
		total->n += at < 0;
	}
}

void list_scale(struct list *l, float factor)
{
	for (uint32_t i = 0; factor != 1 && i < l->n; i++)
		for (int k = 0; k < BOOK_DIM; k++)
			l->value[i][k] *= factor;
}

void list_push(gs_trainer *t, gs_param *p, const struct list *l)
{
	ok(gs_push_rows(t, p, l->id, l->value, l->n));
}

void book_check(const struct book *b, gs_trainer *t, gs_param *p)
{
	static const enum gs_rows_way ways[] = {GS_ROWS_READ, GS_ROWS_GATHER, GS_ROWS_AUTO};
	float(*w)[BOOK_DIM] = malloc(sizeof(b->w));
	int64_t id[BOOK_ROWS];

	for (int way = 0; way < 3; way++) {
		memset(w, 0xff, sizeof(b->w));
		/* In order, then backwards: runs, and none. */
		for (int64_t i = 0; i < BOOK_ROWS; i++)
			id[i] = way == 1 ? BOOK_ROWS - 1 - i : i;
		ok(gs_pull_rows(t, p, id, BOOK_ROWS, ways[way], w));
		for (int64_t i = 0; i < BOOK_ROWS; i++)
			must(memcmp(w[i], b->w[id[i]], sizeof(w[i])) == 0,
			     "way %d: row %lld begins with %g, not %g", way, (long long)id[i],
			     (double)w[i][0], (double)b->w[id[i]][0]);
	}
	free(w);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * optimizer_steps RULE LEN STEPS DIM IN OUT [SETTING=VALUE...]
 *
 * Makes STEPS steps of an optimizer, as a server does, and writes the weights. IN has raw floats:
 * LEN initial weights, LEN factors, and a pool of numbers; element i of the gradient of step t,
 * from 1, is factor[i] * pool[(t - 1) * STRIDE + i]. With a DIM the weights are a table of rows of
 * so many elements, and step t is of the rows r with (r + t) % 3 = 0. When `dc_lambda` is given,
 * the gradient is taken to be of the initial weights.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/kern.h"

enum { STRIDE = 1031, SETTINGS_MAX = 16 };

struct run {
	size_t len, dim;
	uint64_t steps;
	struct kern_opt opt;
	float *in, *w, *g, *state[KERN_STATE_MAX];
	uint64_t *row;
};

static void *memory(size_t n, size_t size)
{
	void *p = calloc(n + 1, size);

	if (!p) {
		fprintf(stderr, "optimizer_steps: no memory for %zu numbers\n", n);
		exit(1);
	}
	return p;
}

static int parse(char **argv, int argc, struct run *r)
{
	struct kern_setting s[SETTINGS_MAX];
	unsigned n = 0;

	r->len = strtoull(argv[2], NULL, 10);
	r->steps = strtoull(argv[3], NULL, 10);
	r->dim = strtoull(argv[4], NULL, 10);
	for (int i = 7; i < argc && n < SETTINGS_MAX; i++, n++) {
		char *equals = strchr(argv[i], '=');

		if (!equals)
			return err_set(EINVAL, "%s: not SETTING=VALUE", argv[i]);
		*equals = 0;
		strncpy(s[n].name, argv[i], sizeof(s[n].name));
		s[n].value = strtod(equals + 1, NULL);
	}
	return kern_opt_parse(argv[1], s, n, &r->opt);
}

static int read_in(const char *path, struct run *r)
{
	size_t n = 2 * r->len + (r->steps - 1) * STRIDE + r->len, got;
	FILE *f = fopen(path, "rb");

	if (!f)
		return err_set(errno, "%s: %s", path, strerror(errno));
	r->in = memory(n, sizeof(float));
	got = fread(r->in, sizeof(float), n, f);
	fclose(f);
	return got == n ? 0 : err_set(EBADMSG, "%s: %zu floats of %zu", path, got, n);
}

static int write_out(const char *path, const struct run *r)
{
	FILE *f = fopen(path, "wb");
	size_t put = f ? fwrite(r->w, sizeof(float), r->len, f) : 0;

	if (!f || fclose(f) || put != r->len)
		return err_set(EIO, "%s: could not be written", path);
	return 0;
}

static void prepare(struct run *r)
{
	r->w = memory(r->len, sizeof(float));
	r->g = memory(r->len, sizeof(float));
	r->row = memory(r->len, sizeof(uint64_t));
	memcpy(r->w, r->in, r->len * sizeof(float));
	for (unsigned i = 0; i < kern_opt_arrays(&r->opt); i++)
		r->state[i] = memory(r->len, sizeof(float));
}

static void step_rows(struct run *r, const struct kern_step *step)
{
	size_t n = 0;

	for (size_t row = 0; row < r->len / r->dim; row++) {
		if ((row + step->t) % 3)
			continue;
		memmove(r->g + n * r->dim, r->g + row * r->dim, r->dim * sizeof(float));
		r->row[n++] = row;
	}
	kern_apply_rows(&r->opt, step, r->row, r->g, n, r->dim, r->w, r->state);
}

static void step_dense(struct run *r, struct kern_step *step)
{
	const void *one = r->g;
	const struct kern_grads g = {.data = &one, .scale = 1, .n = 1, .dtype = KERN_F32};

	if (r->opt.common.clip_norm > 0)
		step->clip = kern_clip(kern_norm2(&g, r->len), r->opt.common.clip_norm);
	if (kern_opt_prepares(&r->opt))
		kern_prepare(&r->opt, step, &g, r->w, r->state, r->len);
	kern_apply(&r->opt, step, &g, r->w, r->state, r->len);
}

static void make_step(struct run *r, uint64_t t)
{
	const float *factor = r->in + r->len, *pool = factor + r->len + (t - 1) * STRIDE;
	struct kern_step step = {
	    .t = t,
	    .lr = kern_opt_lr(&r->opt),
	    .clip = 1,
	    .ratio = 1,
	    .backup = r->in,
	};

	for (size_t i = 0; i < r->len; i++)
		r->g[i] = factor[i] * pool[i];
	if (r->dim)
		step_rows(r, &step);
	else
		step_dense(r, &step);
}

int main(int argc, char **argv)
{
	struct run r = {0};
	int rc;

	if (argc < 7) {
		fprintf(stderr,
			"usage: optimizer_steps RULE LEN STEPS DIM IN OUT [SETTING=VALUE...]\n");
		return 2;
	}
	rc = parse(argv, argc, &r);
	if (!rc)
		rc = read_in(argv[5], &r);
	if (!rc) {
		prepare(&r);
		for (uint64_t t = 1; t <= r.steps; t++)
			make_step(&r, t);
		rc = write_out(argv[6], &r);
	}
	if (rc)
		fprintf(stderr, "optimizer_steps: %s\n", err_text());
	return rc != 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a play must come to.
 */
#include <math.h>

#include "play.h"

struct model {
	struct kern_opt opt;
	float *w, *state[KERN_STATE_MAX], *merged, *grad;
	uint64_t n, t;
	/* of the step that is being made */
	bool any, bad;
	float clip;
	double norm2;
};

static void *array(uint64_t n)
{
	void *a = calloc(n, sizeof(float));

	must(a, "no memory");
	return a;
}

static void begin(struct model *m, const struct gs_param_desc *d)
{
	struct kern_setting s[GS_MAX_SETTINGS];

	for (uint32_t i = 0; i < d->n_settings; i++) {
		snprintf(s[i].name, sizeof(s[i].name), "%s", d->settings[i].name);
		s[i].value = d->settings[i].value;
	}
	ok(kern_opt_parse(d->optimizer, s, d->n_settings, &m->opt));
	m->n = play_elems(d);
	m->w = array(m->n);
	m->merged = array(m->n);
	m->grad = array(m->n);
	for (unsigned i = 0; i < kern_opt_arrays(&m->opt); i++)
		m->state[i] = array(m->n);
	if (d->init == GS_INIT_DATA)
		memcpy(m->w, d->init_data, m->n * sizeof(float));
	else
		kern_init_fill(KERN_INIT_UNIFORM, d->init_seed, d->init_a, d->init_b, 0, m->w,
			       m->n);
}

static void end(struct model *m)
{
	for (unsigned i = 0; i < kern_opt_arrays(&m->opt); i++)
		free(m->state[i]);
	free(m->w);
	free(m->merged);
	free(m->grad);
}

static bool is_finite(const float *x, uint64_t n)
{
	bool finite = true;

	for (uint64_t i = 0; i < n; i++)
		finite &= isfinite(x[i]) != 0;
	return finite;
}

/* Adds one trainer's gradient. */
static void add(struct model *m, float weight)
{
	for (uint64_t i = 0; i < m->n; i++) {
		float x = weight == 1 ? m->grad[i] : weight * m->grad[i];

		m->merged[i] = m->any ? m->merged[i] + x : x;
	}
	m->any = true;
}

static void scale(struct model *m, float by)
{
	for (uint64_t i = 0; i < m->n && by != 1; i++)
		m->merged[i] *= by;
}

/* The gradients of a step, in rank order. */
static void merge(struct play *play, struct model *m, uint64_t step, uint32_t p)
{
	const struct gs_param_desc *d = &play->desc[p];
	double weights = 0;
	uint32_t k = 0;

	m->any = m->bad = false;
	for (uint32_t r = 0; r < play->ranks; r++) {
		double weight =
		    d->reduce == GS_WEIGHTED && play->samples ? play->samples(r, step) : 1;

		if (play->pushes && !play->pushes(r, step, p))
			continue;
		play_gradient(play, r, step, p, m->grad);
		if (!is_finite(m->grad, m->n)) {
			play->nonfinite[step + 1][r]++;
			m->bad |= d->nonfinite == GS_NONFINITE_SKIP;
			if (d->nonfinite != GS_NONFINITE_APPLY)
				continue;
		}
		add(m, (float)weight);
		weights += weight;
		k++;
	}
	if (k && d->reduce == GS_MEAN)
		scale(m, 1.0f / (float)k);
	else if (k && d->reduce == GS_WEIGHTED)
		scale(m, (float)(1 / weights));
}

static double sum_of_squares(const float *x, uint64_t n)
{
	const void *data = x;
	struct kern_grads g = {.data = &data, .scale = 1, .n = 1};
	double exact = kern_norm2(&g, n), plain = 0;

	for (uint64_t i = 0; i < n; i++)
		plain += (double)x[i] * (double)x[i];
	must(!isfinite(plain) || fabs(plain - exact) <= 1e-12 * plain, "%.17g, not %.17g", exact,
	     plain);
	return exact;
}

/* torch.nn.utils.clip_grad_norm_ */
static float clip(float limit, double norm2)
{
	double by = (double)limit / (sqrt(norm2) + 1e-6);

	return limit == 0 || by >= 1 ? 1 : (float)by;
}

static void measure(struct model *m)
{
	double norm2 = m->any ? sum_of_squares(m->merged, m->n) : 0;

	m->clip = clip(m->opt.common.clip_norm, norm2);
	m->norm2 = norm2 * (double)m->clip * (double)m->clip;
}

static void update(struct model *m, float global_clip)
{
	const void *data = m->merged;
	struct kern_grads g = {.data = &data, .scale = 1, .n = 1};
	struct kern_step step = {
	    .t = ++m->t,
	    .lr = kern_opt_lr(&m->opt),
	    .clip = m->clip * global_clip,
	    .ratio = 1,
	};

	if (kern_opt_prepares(&m->opt))
		kern_prepare(&m->opt, &step, &g, m->w, m->state, m->n);
	kern_apply(&m->opt, &step, &g, m->w, m->state, m->n);
}

static void make_step(struct play *play, struct model *model, uint64_t step)
{
	double norm2 = 0;
	float limit = 0;
	bool skip = false;

	for (uint32_t p = 0; p < play->n; p++) {
		struct model *m = &model[p];

		merge(play, m, step, p);
		measure(m);
		skip |= m->bad;
		if (m->opt.common.clip_global_norm > 0) {
			limit = m->opt.common.clip_global_norm;
			norm2 += m->norm2;
		}
	}
	play->skipped[step + 1] = play->skipped[step] + skip;
	for (uint32_t p = 0; p < play->n; p++) {
		struct model *m = &model[p];
		bool global = m->opt.common.clip_global_norm > 0;

		if (m->any && !(skip && play->desc[p].nonfinite == GS_NONFINITE_SKIP))
			update(m, global ? clip(limit, norm2) : 1);
	}
}

static void note(struct play *play, const struct model *m, uint64_t step, uint32_t p)
{
	play->seen[step][p] = array(m->n);
	kern_narrow((enum kern_dtype)play->desc[p].weight_dtype, m->w, play->seen[step][p], m->n);
	play->updates[step][p] = m->t;
}

void play_foresee(struct play *play)
{
	struct model model[PLAY_PARAMS] = {0};

	for (uint32_t p = 0; p < play->n; p++) {
		begin(&model[p], &play->desc[p]);
		note(play, &model[p], 1, p);
	}
	for (uint64_t s = 1; s <= play->steps; s++) {
		memcpy(play->nonfinite[s + 1], play->nonfinite[s], sizeof(play->nonfinite[s]));
		make_step(play, model, s);
		for (uint32_t p = 0; p < play->n; p++)
			note(play, &model[p], s + 1, p);
	}
	for (uint32_t p = 0; p < play->n; p++)
		end(&model[p]);
}

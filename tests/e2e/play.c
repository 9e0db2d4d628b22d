/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainers of a play.
 */
#include "play.h"

#include <math.h>

struct play *play_create(uint64_t seed, uint32_t ranks, uint32_t steps)
{
	struct play *play = calloc(1, sizeof(*play));

	must(play, "no memory");
	play->seed = seed;
	play->ranks = ranks;
	play->steps = steps;
	return play;
}

void play_free(struct play *play)
{
	for (uint32_t s = 0; s < PLAY_STEPS + 2; s++)
		for (uint32_t p = 0; p < play->n; p++)
			free(play->seen[s][p]);
	free(play);
}

struct gs_param_desc *play_add(struct play *play, const char *name, const char *optimizer,
			       uint64_t rows, uint64_t columns)
{
	struct gs_param_desc *d = &play->desc[play->n];

	must(play->n < PLAY_PARAMS, "too many parameters");
	*d = (struct gs_param_desc)GS_PARAM_DESC_INIT;
	d->name = name;
	d->ndim = 2;
	d->shape[0] = rows;
	d->shape[1] = columns;
	d->optimizer = optimizer;
	d->init = GS_INIT_UNIFORM;
	d->init_a = -1;
	d->init_b = 1;
	d->init_seed = play->seed + play->n++;
	gs_setting(d, "lr", 0.05);
	return d;
}

uint64_t play_elems(const struct gs_param_desc *d)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < d->ndim; i++)
		n *= d->shape[i];
	return n;
}

void play_gradient(const struct play *play, uint32_t rank, uint64_t step, uint32_t p, float *out)
{
	uint64_t x = mix64(play->seed ^ mix64((uint64_t)rank << 40 ^ step << 8 ^ p));
	uint64_t n = play_elems(&play->desc[p]);
	enum kern_dtype type = (enum kern_dtype)play->desc[p].grad_dtype;

	for (uint64_t i = 0; i < n; i++) {
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		out[i] = (float)(int32_t)(x >> 32) * 0x1p-31f;
	}
	if (play->change)
		play->change(rank, step, p, out, n);
	if (type != KERN_F32) {
		uint16_t *half = malloc(2 * n);

		kern_narrow(type, out, half, n);
		kern_widen(type, half, out, n);
		free(half);
	}
}

/* ---- a trainer ------------------------------------------------------------------------------- */

struct actor {
	const struct play *play;
	const char *uri;
	uint32_t rank;
	uint64_t rng;
	gs_trainer *t;
	gs_param *param[PLAY_PARAMS];
	float *values;
	void *buf;
	void *all[PLAY_PARAMS];     /* for gs_step_pull and gs_step_view */
	uint64_t come[PLAY_PARAMS]; /* elements that gs_step_view has shown */
	pthread_t thread;
};

static bool same(enum gs_dtype type, const void *a, const void *b, uint64_t n)
{
	float *x, *y;
	bool same = true;

	if (memcmp(a, b, n * kern_size((enum kern_dtype)type)) == 0)
		return true;
	/* Which NaN comes out of several is left open. */
	x = malloc(n * sizeof(float));
	y = malloc(n * sizeof(float));
	kern_widen((enum kern_dtype)type, a, x, n);
	kern_widen((enum kern_dtype)type, b, y, n);
	for (uint64_t i = 0; i < n; i++)
		same &= (isnan(x[i]) && isnan(y[i])) || memcmp(&x[i], &y[i], sizeof(x[i])) == 0;
	free(x);
	free(y);
	return same;
}

static void look_at(struct actor *a, uint64_t step, uint32_t p)
{
	const struct gs_param_desc *d = &a->play->desc[p];
	uint64_t version, n = play_elems(d);
	const void *what = a->buf;
	uint32_t way = (uint32_t)(step + p + a->rank) % (over_shm() ? 4 : 3);

	if (way == 3)
		ok(gs_weights_view(a->t, a->param[p], &what));
	else
		ok(gs_pull(a->t, a->param[p], (enum gs_consistency)way, a->buf));
	must(same(d->weight_dtype, what, a->play->seen[step][p], n),
	     "trainer %u of %u, step %llu, way %u: other weights of \"%s\"", a->rank,
	     a->play->ranks, (unsigned long long)step, way, d->name);
	ok(gs_block_version(a->t, a->param[p], n - 1, &version));
	must(version == a->play->updates[step][p], "step %llu: %llu updates of \"%s\", not %llu",
	     (unsigned long long)step, (unsigned long long)version, d->name,
	     (unsigned long long)a->play->updates[step][p]);
}

static void look(struct actor *a, uint64_t step)
{
	struct gs_counts c = {.size = sizeof(c)};

	for (uint32_t p = 0; p < a->play->n; p++)
		look_at(a, step, p);
	ok(gs_get_counts(a->t, &c));
	must(c.nonfinite == a->play->nonfinite[step][a->rank] &&
		 c.skipped == a->play->skipped[step],
	     "trainer %u, step %llu: %llu not finite and %llu skipped, not %llu and %llu", a->rank,
	     (unsigned long long)step, (unsigned long long)c.nonfinite,
	     (unsigned long long)c.skipped, (unsigned long long)a->play->nonfinite[step][a->rank],
	     (unsigned long long)a->play->skipped[step]);
}

static void push(struct actor *a, uint64_t step, uint32_t p)
{
	const struct play *play = a->play;
	uint64_t n = play_elems(&play->desc[p]);
	void *buf = a->buf;

	if (play->pushes && !play->pushes(a->rank, step, p))
		return;
	play_gradient(play, a->rank, step, p, a->values);
	for (uint64_t i = 0; play->scale && i < n; i++)
		a->values[i] *= (float)play->scale(a->rank, step);
	if ((step + p) % 2)
		ok(gs_grad_buffer(a->t, a->param[p], &buf));
	kern_narrow((enum kern_dtype)play->desc[p].grad_dtype, a->values, buf, n);
	if (rnd(&a->rng, 8) == 0)
		nap_us(rnd(&a->rng, 60));
	ok(gs_push(a->t, a->param[p], buf));
}

/* In some order. */
static void push_all(struct actor *a, uint64_t step)
{
	uint32_t order[PLAY_PARAMS];

	for (uint32_t i = 0; i < a->play->n; i++) {
		uint32_t k = rnd(&a->rng, i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	if (a->play->samples)
		ok(gs_set_samples(a->t, a->play->samples(a->rank, step)));
	if (a->play->scale)
		ok(gs_set_grad_scale(a->t, a->play->scale(a->rank, step)));
	for (uint32_t i = 0; i < a->play->n; i++)
		push(a, step, order[i]);
}

static void join(struct actor *a)
{
	uint64_t longest = 1;

	a->t = connect_as(a->uri, (int32_t)a->rank);
	for (uint32_t p = 0; p < a->play->n; p++) {
		uint64_t n = play_elems(&a->play->desc[p]);

		longest = n > longest ? n : longest;
		ok(gs_declare(a->t, &a->play->desc[p], &a->param[p]));
		a->all[p] = malloc(n * sizeof(float));
	}
	a->values = malloc(longest * sizeof(float));
	a->buf = malloc(longest * sizeof(float));
	ok(gs_start(a->t));
}

static void copy_run(void *ctx, uint32_t p, uint64_t first, uint64_t count, const void *weights)
{
	struct actor *a = ctx;
	size_t size = kern_size((enum kern_dtype)a->play->desc[p].weight_dtype);

	must(count > 0 && first == a->come[p], "elements from %llu on of parameter %u, not %llu",
	     (unsigned long long)first, p, (unsigned long long)a->come[p]);
	a->come[p] += count;
	memcpy((char *)a->all[p] + first * size, weights, count * size);
}

static void step_view(struct actor *a)
{
	memset(a->come, 0, sizeof(a->come));
	ok(gs_step_view(a->t, a->param, a->play->n, copy_run, a));
	for (uint32_t p = 0; p < a->play->n; p++)
		must(a->come[p] == play_elems(&a->play->desc[p]), "%llu elements of parameter %u",
		     (unsigned long long)a->come[p], p);
}

static void step_pull(struct actor *a, bool ascending)
{
	uint32_t n = a->play->n;
	gs_param *param[PLAY_PARAMS] = {NULL};
	void *dst[PLAY_PARAMS] = {NULL};

	for (uint32_t i = 0; i < n; i++) {
		param[i] = a->param[ascending ? i : n - 1 - i];
		dst[i] = a->all[ascending ? i : n - 1 - i];
	}
	ok(gs_step_pull(a->t, param, dst, n));
}

/* Some with the pull in one, in the order of the parameters or the other way round; or with a look
 * at what is in place, several behind one another so that there are blocks which come ahead of the
 * release. */
static void end_step(struct actor *a, uint64_t step)
{
	uint32_t way = (uint32_t)(step + a->rank) % 7;

	if (way == 0) {
		ok(gs_step_end(a->t));
		return;
	}
	if (way > 3 && over_shm())
		step_view(a);
	else
		step_pull(a, way % 2);
	for (uint32_t p = 0; p < a->play->n; p++) {
		const struct gs_param_desc *d = &a->play->desc[p];

		must(same(d->weight_dtype, a->all[p], a->play->seen[step + 1][p], play_elems(d)),
		     "trainer %u of %u, end of step %llu: other weights of \"%s\"", a->rank,
		     a->play->ranks, (unsigned long long)step, d->name);
	}
}

static void *act(void *arg)
{
	struct actor *a = arg;

	join(a);
	for (uint64_t s = 1; s <= a->play->steps; s++) {
		look(a, s);
		push_all(a, s);
		end_step(a, s);
	}
	look(a, a->play->steps + 1);
	leave(a->t);
	for (uint32_t p = 0; p < a->play->n; p++)
		free(a->all[p]);
	free(a->values);
	free(a->buf);
	return NULL;
}

void play_run(const struct play *play, const struct srv_options *opt)
{
	struct actor actor[PLAY_RANKS];
	struct bed bed;

	bed_start(&bed, opt);
	for (uint32_t r = 0; r < play->ranks; r++) {
		actor[r] = (struct actor){.play = play, .uri = bed.uri, .rank = r, .rng = r + 1};
		must(pthread_create(&actor[r].thread, NULL, act, &actor[r]) == 0, "thread");
	}
	for (uint32_t r = 0; r < play->ranks; r++)
		pthread_join(actor[r].thread, NULL);
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).violations == 0, "violations");
	bed_stop(&bed);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The job of all kinds of parameters.
 */
#include "saga.h"

#include <stdatomic.h>

#include "kernels/kern.h"

#define try(call)                      \
	do {                           \
		int try_rc = (call);   \
		if (try_rc)            \
			return try_rc; \
	} while (0)

enum { KEYS = 120, PUSHED = 24, PULLED = 16, LONGEST = 70 * 37 };

static struct gs_param_desc *add(struct saga *s, const char *name, const char *optimizer,
				 uint64_t rows, uint64_t columns)
{
	struct gs_param_desc *d = &s->desc[s->n++];

	must(s->n <= SAGA_PARAMS && rows * columns <= LONGEST, "too much");
	*d = (struct gs_param_desc)GS_PARAM_DESC_INIT;
	d->name = name;
	d->ndim = columns ? 2 : 1;
	d->shape[0] = rows;
	d->shape[1] = columns;
	d->optimizer = optimizer;
	gs_setting(d, "lr", 0.05);
	d->init = GS_INIT_UNIFORM;
	d->init_a = -1;
	d->init_b = 1;
	d->init_seed = s->n;
	return d;
}

static struct gs_param_desc *add_table(struct saga *s, const char *name, const char *optimizer,
				       uint64_t rows, enum gs_kind kind)
{
	struct gs_param_desc *d = add(s, name, optimizer, rows, 5);

	d->kind = kind;
	d->slot_rows = 7;
	d->push_rows = PUSHED;
	d->pull_rows = 9;
	return d;
}

void saga_init(struct saga *s, enum srv_mode mode)
{
	struct gs_param_desc *d;

	*s = (struct saga){.mode = mode};
	add(s, "momentum", "momentum", 70, 37);
	gs_setting(&s->desc[0], "momentum", 0.9);
	add(s, "adam", "adam", 1031, 0)->schedule = "step:every=3,gamma=0.5";
	d = add(s, "amsgrad in 16 bits", "adam", 33, 31);
	gs_setting(d, "amsgrad", 1);
	d->weight_dtype = GS_BF16;
	add(s, "lamb", "lamb", 61, 13);
	d = add(s, "adagrad clipped", "adagrad", 29, 41);
	gs_setting(d, "clip_norm", 0.5);
	d = add(s, "rmsprop", "rmsprop", 3, 257);
	gs_setting(d, "centered", 1);
	gs_setting(d, "momentum", 0.5);
	if (mode == SRV_SYNC) {
		d = add(s, "adamw global", "adamw", 40, 37);
		gs_setting(d, "clip_global_norm", 1);
		d = add(s, "sgd global", "sgd", 11, 0);
		gs_setting(d, "clip_global_norm", 1);
	}
	add_table(s, "rows", "adam", 200, GS_TABLE);
	d = add_table(s, "all rows", "momentum", 50, GS_TABLE);
	gs_setting(d, "momentum", 0.9);
	gs_setting(d, "lazy", 0);
	add_table(s, "rowwise", "rowwise_adagrad", 90, GS_TABLE);
	d = add_table(s, "hashed", "adagrad", 60, GS_HASHED);
	d->admit_after = 2;
	d->evict_after = 2;
	d = add_table(s, "hashed in 16 bits", "adam", 400, GS_HASHED);
	d->weight_dtype = GS_F16;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static uint64_t elems_of(const struct gs_param_desc *d)
{
	return d->shape[0] * (d->ndim == 2 ? d->shape[1] : 1);
}

static void fill(float *to, uint64_t n, uint64_t x)
{
	for (uint64_t i = 0; i < n; i++) {
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		to[i] = (float)(int32_t)(x >> 32) * 0x1p-31f;
	}
}

static uint64_t seed_of(uint32_t rank, uint64_t step, uint32_t p)
{
	return mix64((uint64_t)rank << 40 ^ step << 8 ^ p);
}

/* Keys come and go: each step has its own part of them. */
static int64_t id_of(const struct gs_param_desc *d, uint64_t step, uint64_t *rng)
{
	if (d->kind == GS_TABLE)
		return rnd(rng, (uint32_t)d->shape[0]);
	return (int64_t)mix64(step * 7 % KEYS + rnd(rng, d->admit_after > 1 ? 14 : 40));
}

static uint32_t ids_of(const struct saga *s, uint32_t p, uint64_t step, uint64_t seed, uint32_t n,
		       int64_t *ids)
{
	uint64_t rng = seed;

	for (uint32_t i = 0; i < n; i++)
		ids[i] = id_of(&s->desc[p], step, &rng);
	return n;
}

/* ---- a trainer ------------------------------------------------------------------------------- */

void saga_join(struct actor_of *a, struct saga *s, const char *uri, uint32_t rank)
{
	*a = (struct actor_of){.s = s, .rank = rank, .t = connect_as(uri, (int32_t)rank)};
	a->buf = malloc(LONGEST * sizeof(float));
	for (uint32_t i = 0; i < s->n; i++)
		ok(gs_declare(a->t, &s->desc[i], &a->p[i]));
}

void saga_start(struct actor_of *a)
{
	ok(gs_start(a->t));
}

uint64_t saga_step(struct actor_of *a)
{
	struct gs_info info;

	gs_get_info(a->t, &info);
	return info.step;
}

static uint64_t size_of(enum gs_dtype dtype)
{
	return dtype == GS_F32 ? 4 : 2;
}

static int look_at(struct actor_of *a, uint64_t step, uint32_t p, uint64_t *sum)
{
	const struct gs_param_desc *d = &a->s->desc[p];
	int64_t ids[PULLED];

	if (d->kind == GS_DENSE) {
		try(gs_pull(a->t, a->p[p], GS_ORDERED, a->buf));
		*sum = kern_checksum(a->buf, elems_of(d) * size_of(d->weight_dtype), 1);
		return 0;
	}
	ids_of(a->s, p, step, seed_of(99, step, p), PULLED, ids);
	try(gs_pull_rows(a->t, a->p[p], ids, PULLED, GS_ROWS_GATHER, a->buf));
	*sum = kern_checksum(a->buf, PULLED * d->shape[1] * size_of(d->weight_dtype), 1);
	return 0;
}

int saga_look(struct actor_of *a, uint64_t step)
{
	for (uint32_t p = 0; p < a->s->n; p++) {
		uint64_t sum = 0, *seen = &a->s->seen[step][p];

		try(look_at(a, step, p, &sum));

		must(!*seen || *seen == sum, "\"%s\" is another at the beginning of step %llu",
		     a->s->desc[p].name, (unsigned long long)step);
		*seen = sum;
	}
	return 0;
}

int saga_push(struct actor_of *a, uint64_t step)
{
	for (uint32_t p = 0; p < a->s->n; p++) {
		const struct gs_param_desc *d = &a->s->desc[p];
		uint64_t seed = seed_of(a->rank, step, p);
		int64_t ids[PUSHED];

		if (d->kind == GS_DENSE) {
			fill(a->buf, elems_of(d), seed);
			try(gs_push(a->t, a->p[p], a->buf));
			continue;
		}
		fill(a->buf, PUSHED * d->shape[1], seed);
		try(gs_push_rows(a->t, a->p[p], ids, a->buf,
				 ids_of(a->s, p, step, seed, PUSHED, ids)));
	}
	return 0;
}

/* A full table may refuse a push: that is the same every time, too. */
int saga_end_step(struct actor_of *a)
{
	int rc = 0;

	if (a->s->mode != SRV_ASYNC)
		rc = gs_step_end(a->t);
	for (uint32_t p = 0; a->s->mode == SRV_ASYNC && p < a->s->n && (!rc || rc == -ENOSPC); p++)
		rc = gs_wait_applied(a->t, a->p[p]);
	if (rc && rc != -ENOSPC)
		return rc;
	if (a->s->nap_us)
		nap_us(a->s->nap_us);
	return 0;
}

void saga_leave(struct actor_of *a)
{
	leave(a->t);
	free(a->buf);
}

/* ---- all of them ----------------------------------------------------------------------------- */

struct part_of {
	struct saga *s;
	const char *uri;
	uint32_t rank;
	uint64_t first, last;
	pthread_t thread;
};

static int make_step(struct actor_of *a, uint64_t step)
{
	if (a->rank == 0)
		try(saga_look(a, step));
	try(saga_push(a, step));
	return saga_end_step(a);
}

/* The server was lost: the step to go on from is what the next one says. */
static uint64_t come_back(struct actor_of *a, int rc)
{
	int rewound;

	must(a->s->lasting && (rc == -ECONNRESET || rc == -ESHUTDOWN), "%d: %s", rc, err_text());
	ok(gs_reconnect(a->t, &rewound));
	must(rewound, "not another server");
	atomic_fetch_add(&a->s->came_back, 1);
	return saga_step(a);
}

/* Slow, and not held up: checkpoints, and servers that stop, need steps to end. */
static void dawdle(struct saga *s, uint64_t step)
{
	for (uint32_t n = 0; n < 100; n++) {
		uint64_t brisk = atomic_load(&s->brisk);

		if (!brisk || step <= brisk)
			break;
		nap_us(5000);
	}
}

static void *play_part(void *arg)
{
	struct part_of *part = arg;
	struct actor_of a;
	uint64_t step;
	int rc;

	saga_join(&a, part->s, part->uri, part->rank);
	saga_start(&a);
	step = part->s->mode == SRV_ASYNC ? part->first : saga_step(&a);
	must(step >= part->first, "step %llu", (unsigned long long)step);
	while (step <= part->last) {
		dawdle(a.s, step);
		rc = make_step(&a, step);
		step = rc ? come_back(&a, rc) : step + 1;
	}
	if (a.rank == 0)
		ok(saga_look(&a, step));
	saga_leave(&a);
	return NULL;
}

void saga_run(struct saga *s, const char *uri, uint32_t ranks, uint64_t first, uint64_t last)
{
	struct part_of part[4];

	must(ranks <= 4 && last <= SAGA_STEPS, "too many");
	for (uint32_t r = 0; r < ranks; r++) {
		part[r] = (struct part_of){s, uri, r, first, last, 0};
		must(pthread_create(&part[r].thread, NULL, play_part, &part[r]) == 0, "thread");
	}
	for (uint32_t r = 0; r < ranks; r++)
		pthread_join(part[r].thread, NULL);
}

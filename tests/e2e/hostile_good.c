/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainers of the library in a hostile play: they push zeros, pull, set rates, and never fail.
 */
#include "hostile.h"

#include <unistd.h>

static void declare(struct hostile_good *g, uint32_t i)
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
static void fine(const struct hostile_good *g, int rc, const char *what)
{
	if (e2e_in_role && (rc == -ESHUTDOWN || rc == -ECONNRESET))
		_exit(3); /* the test knows whether the server is ending */
	must(rc == 0 || rc == -ENOSPC, "%s of trainer %u: %d: %s", what, g->rank, rc, err_text());
}

static void good_part(struct hostile_good *g, uint32_t i, bool pushes)
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
	hostile_pick_ids(p, &g->rng, id, n);
	fine(g,
	     gs_pull_rows(g->t, g->p[i], id, n,
			  ways[rnd(&g->rng, p->storage == WIRE_HASHED ? 2 : 3)], w),
	     "pull of rows");
	n = rnd(&g->rng, p->push_rows + 1);
	hostile_pick_ids(p, &g->rng, id, n);
	if (pushes)
		fine(g, gs_push_rows(g->t, g->p[i], id, zeros, n), "push of rows");
}

static void good_step(struct hostile_good *g)
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

void *hostile_good_main(void *arg)
{
	struct hostile_good *g = arg;

	g->t = connect_as(g->uri, (int32_t)g->rank);
	for (uint32_t i = 0; i < g->model->n; i++)
		declare(g, i);
	ok(gs_start(g->t));
	while (g->leave_at ? g->made < g->leave_at : !*g->end)
		good_step(g);
	leave(g->t);
	return NULL;
}

int hostile_mortal(struct hostile_good *g, long steps)
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

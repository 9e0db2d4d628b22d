/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of parameters: checking declarations, cutting, placing, allocating, comparing.
 */
#include "server/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "proto/imm.h"
#include "proto/layout.h"
#include "server/internal.h"

_Static_assert((int)KERN_STATE_MAX <= (int)TABLE_MAX_STATE, "room for each rule's state");

static int parse_optimizer(const struct wire_param *decl, struct kern_opt *out)
{
	struct kern_setting setting[WIRE_SETTINGS_MAX];

	for (uint32_t i = 0; i < decl->n_settings; i++) {
		memcpy(setting[i].name, decl->setting[i].name, sizeof(setting[i].name));
		setting[i].value = decl->setting[i].value;
	}
	return kern_opt_parse(decl->rule, setting, decl->n_settings, out);
}

static int by_name(const void *a, const void *b)
{
	const struct wire_param *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static int check_names(const struct wire_param *decl, uint32_t n)
{
	const struct wire_param **sorted = calloc(n, sizeof(*sorted));
	int rc = 0;

	if (!sorted)
		return err_set(ENOMEM, "no memory for %u parameters", n);
	for (uint32_t i = 0; i < n; i++)
		sorted[i] = &decl[i];
	qsort(sorted, n, sizeof(*sorted), by_name);
	for (uint32_t i = 1; i < n && !rc; i++)
		if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
			rc = err_set(EINVAL, "parameter \"%s\" is declared twice", sorted[i]->name);
	free(sorted);
	return rc;
}

/* Cuts and places one parameter behind what is placed so far. */
static int place(struct table *t, struct param *p, uint64_t block_bytes_max, uint64_t *weights_end,
		 uint64_t *slots_end)
{
	int rc = geometry_cut(p->decl.ndim, p->decl.dim, block_bytes_max,
			      IMM_MAX_BLOCKS - t->blocks, &p->cut);
	uint64_t bytes;

	if (!rc)
		rc = parse_optimizer(&p->decl, &p->opt);
	if (rc)
		return err_wrap(rc, "parameter \"%s\"", p->decl.name);

	bytes = layout_align(p->cut.elems * sizeof(float), LAYOUT_ALIGN);
	p->place = (struct wire_place){
		.elems = p->cut.elems,
		.block_elems = p->cut.block_elems,
		.weights_off = *weights_end, /* from the first weight on; made absolute below */
		.slots_off = *slots_end,
		.slots_stride = bytes,
		.first_block = t->blocks,
		.blocks = p->cut.blocks,
	};
	t->blocks += p->cut.blocks;
	*weights_end += bytes;
	*slots_end += bytes * t->slots;
	t->plan.state += kern_opt_arrays(&p->opt) * bytes;
	if (p->cut.block_elems * sizeof(float) > t->max_block_bytes)
		t->max_block_bytes = p->cut.block_elems * sizeof(float);
	if (p->decl.init == WIRE_INIT_TRAINER)
		atomic_fetch_add(&t->init_left, p->cut.blocks);
	return 0;
}

static void plan(struct table *t, uint64_t weights, bool rdma)
{
	const uint64_t per_block = sizeof(struct block) + t->ranks * sizeof(struct slot *);
	const uint64_t per_lane =
		t->slots * sizeof(struct slot) + sizeof(struct pull) + sizeof(struct credit);

	t->plan.weights = layout_weights_start(t->blocks) + weights;
	t->plan.blocks = t->params * sizeof(struct param) + t->blocks * per_block;
	t->plan.slots = t->slots_len;
	t->plan.bookkeeping = t->blocks * per_lane;
	t->plan.staging = layout_credit_off(t->blocks);
	if (rdma)
		t->plan.staging += SESSION_BOUNCES * t->max_block_bytes;
	t->plan.trainers = t->ranks;
}

static int make_blocks(struct table *t)
{
	t->block = calloc(t->blocks, sizeof(*t->block));
	t->by_rank = calloc((size_t)t->blocks * t->ranks, sizeof(*t->by_rank));
	if (!t->block || !t->by_rank)
		return err_set(ENOMEM, "no memory to keep %u blocks of %u trainers", t->blocks,
			       t->ranks);
	for (uint32_t i = 0; i < t->params; i++) {
		struct param *p = &t->param[i];

		for (uint32_t k = 0; k < p->cut.blocks; k++) {
			uint32_t id = p->place.first_block + k;

			t->block[id] = (struct block){
				.param = p,
				.id = id,
				.elems = geometry_block_elems(&p->cut, k),
				.first = (uint64_t)k * p->cut.block_elems,
				.by_rank = t->by_rank + (size_t)id * t->ranks,
			};
		}
	}
	return 0;
}

int table_create(struct srv *srv, const struct wire_param *decl, uint32_t n, struct table **out)
{
	uint64_t weights = 0, slots = sizeof(struct layout_slots_head);
	struct table *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return err_set(ENOMEM, "no memory for the table of parameters");
	t->ranks = srv->opt.trainers;
	t->slots = srv->opt.slots;
	t->params = n;
	t->param = aligned_alloc(64, layout_align(n * sizeof(*t->param), 64));
	rc = t->param ? check_names(decl, n) : err_set(ENOMEM, "no memory for %u parameters", n);
	for (uint32_t i = 0; i < n && !rc; i++) {
		struct param *p = &t->param[i];

		memset(p, 0, sizeof(*p));
		p->srv = srv;
		p->decl = decl[i];
		actor_init(&p->actor, param_handle, false);
		p->settle = (struct item){.kind = ITEM_SETTLE, .home = &p->actor};
		rc = place(t, p, (uint64_t)srv->opt.block_kib * 1024, &weights, &slots);
	}
	if (!rc) {
		for (uint32_t i = 0; i < n; i++)
			t->param[i].place.weights_off += layout_weights_start(t->blocks);
		t->slots_len = slots;
		plan(t, weights, srv_over_rdma(srv));
		*out = t;
		return 0;
	}
	table_destroy(t);
	return rc;
}

static void fill(struct param *p)
{
	static const enum kern_init kinds[] = {
		[WIRE_INIT_CONSTANT] = KERN_INIT_CONSTANT,
		[WIRE_INIT_UNIFORM] = KERN_INIT_UNIFORM,
		[WIRE_INIT_NORMAL] = KERN_INIT_NORMAL,
	};

	if (p->decl.init != WIRE_INIT_TRAINER)
		kern_init_fill(kinds[p->decl.init], p->decl.init_seed, p->decl.init_a,
			       p->decl.init_b, 0, p->weights, p->cut.elems);
}

int table_allocate(struct table *t)
{
	uint8_t *weights, *state = NULL;
	int rc = make_blocks(t);

	if (!rc)
		rc = tp_arena_create("gradslot-weights", t->plan.weights,
				     TP_ARENA_READ_ONLY_TO_PEERS | TP_ARENA_PREFAULT, &t->weights);
	if (!rc && t->plan.state)
		rc = tp_arena_create("gradslot-state", t->plan.state, TP_ARENA_PREFAULT, &t->state);
	if (rc)
		return rc;

	weights = tp_arena_base(t->weights);
	if (t->state)
		state = tp_arena_base(t->state);
	for (uint32_t i = 0; i < t->blocks; i++)
		t->block[i].version = (_Atomic uint64_t *)(weights + layout_version_off(i));
	for (uint32_t i = 0; i < t->params; i++) {
		struct param *p = &t->param[i];

		p->weights = (float *)(weights + p->place.weights_off);
		for (unsigned k = 0; k < kern_opt_arrays(&p->opt); k++) {
			p->state[k] = (float *)state;
			state += p->place.slots_stride;
		}
		fill(p);
	}
	return 0;
}

void table_destroy(struct table *t)
{
	if (!t)
		return;
	tp_arena_destroy(t->weights);
	tp_arena_destroy(t->state);
	free(t->by_rank);
	free(t->block);
	free(t->param);
	free(t);
}

/* ---- comparing --------------------------------------------------------------------------------- */

static void shape_text(const struct wire_param *p, char *out, size_t cap)
{
	int n = snprintf(out, cap, "[");

	for (uint32_t i = 0; i < p->ndim; i++)
		n += snprintf(out + n, cap - (size_t)n, "%s%" PRIu64, i ? ", " : "", p->dim[i]);
	snprintf(out + n, cap - (size_t)n, "]");
}

static void optimizer_text(const struct wire_param *p, char *out, size_t cap)
{
	size_t n = (size_t)snprintf(out, cap, "%s(", p->rule);

	for (uint32_t i = 0; i < p->n_settings && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s=%.9g", i ? ", " : "",
				      p->setting[i].name, p->setting[i].value);
	if (n < cap)
		snprintf(out + n, cap - n, ")");
}

static void init_text(const struct wire_param *p, char *out, size_t cap)
{
	static const char *const names[] = {
		[WIRE_INIT_TRAINER] = "data of the first trainer",
		[WIRE_INIT_CONSTANT] = "constant",
		[WIRE_INIT_UNIFORM] = "uniform",
		[WIRE_INIT_NORMAL] = "normal",
	};

	if (p->init == WIRE_INIT_TRAINER)
		snprintf(out, cap, "%s", names[p->init]);
	else
		snprintf(out, cap, "%s(%g, %g, seed %" PRIu64 ")", names[p->init], p->init_a,
			 p->init_b, p->init_seed);
}

/* Settings may be left out or come in another order: what they mean is compared. */
static bool same_optimizer(const struct param *p, const struct wire_param *theirs)
{
	struct kern_opt opt;

	return parse_optimizer(theirs, &opt) == 0 && opt.rule == p->opt.rule &&
	       opt.lr == p->opt.lr && opt.momentum == p->opt.momentum &&
	       opt.dampening == p->opt.dampening;
}

static bool same_shape(const struct wire_param *a, const struct wire_param *b)
{
	return a->ndim == b->ndim && memcmp(a->dim, b->dim, a->ndim * sizeof(a->dim[0])) == 0;
}

static bool same_init(const struct wire_param *a, const struct wire_param *b)
{
	if (a->init != b->init)
		return false;
	return a->init == WIRE_INIT_TRAINER ||
	       (a->init_a == b->init_a && a->init_b == b->init_b && a->init_seed == b->init_seed);
}

static int differs(const char *what, uint32_t i, const struct param *p,
		   const struct wire_param *theirs,
		   void (*text)(const struct wire_param *, char *, size_t))
{
	char a[160], b[160];

	text(theirs, a, sizeof(a));
	text(&p->decl, b, sizeof(b));
	return err_set(EINVAL, "parameter %u \"%s\": %s %s here, %s at the server", i,
		       p->decl.name, what, a, b);
}

static int compare_one(uint32_t i, const struct param *p, const struct wire_param *theirs)
{
	if (strcmp(p->decl.name, theirs->name) != 0)
		return err_set(EINVAL, "parameter %u is \"%s\" here, \"%s\" at the server", i,
			       theirs->name, p->decl.name);
	if (!same_shape(&p->decl, theirs))
		return differs("shape", i, p, theirs, shape_text);
	if (!same_optimizer(p, theirs))
		return differs("optimizer", i, p, theirs, optimizer_text);
	if (!same_init(&p->decl, theirs))
		return differs("initial values", i, p, theirs, init_text);
	return 0;
}

int table_compare(const struct table *t, const struct wire_param *decl, uint32_t n)
{
	int rc = 0;

	for (uint32_t i = 0; i < t->params && i < n && !rc; i++)
		rc = compare_one(i, &t->param[i], &decl[i]);
	if (!rc && n != t->params)
		rc = err_set(EINVAL, "%u parameters are declared here, %u at the server", n,
			     t->params);
	return rc;
}

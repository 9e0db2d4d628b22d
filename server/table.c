/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of parameters: checking declarations, cutting, placing, allocating.
 */
#include "server/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "proto/imm.h"
#include "proto/layout.h"
#include "server/internal.h"
#include "server/joint.h"
#include "server/options.h"
#include "server/rows.h"

/* Of tables, beside the optimizer's own settings: 1 (the default) leaves the rows alone that an
 * update does not name, 0 updates them with a gradient of zero. */
static int parse_lazy(double value, bool *out)
{
	if (value != 0 && value != 1)
		return err_set(EINVAL, "lazy is %g; must be 0 or 1", value);
	*out = value != 0;
	return 0;
}

int table_parse_optimizer(const struct wire_param *decl, struct kern_opt *out, bool *lazy)
{
	struct kern_setting setting[WIRE_SETTINGS_MAX];
	unsigned n = 0, lazies = 0;
	int rc = 0;

	*lazy = true;
	for (uint32_t i = 0; i < decl->n_settings && !rc; i++) {
		const struct wire_setting *s = &decl->setting[i];

		if (decl->storage != WIRE_DENSE && strcmp(s->name, "lazy") == 0) {
			rc = lazies++ ? err_set(EINVAL, "lazy is given twice")
				      : parse_lazy(s->value, lazy);
			continue;
		}
		memcpy(setting[n].name, s->name, sizeof(setting[n].name));
		setting[n++].value = s->value;
	}
	return rc ? rc : kern_opt_parse(decl->rule, setting, n, out);
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

/* What an update of the parameter has to know first. */
static void classify(struct srv *srv, struct param *p)
{
	bool sync = srv->opt.mode == SRV_SYNC;

	p->global = sync && (p->opt.common.clip_global_norm > 0 ||
			     p->decl.nonfinite == WIRE_NONFINITE_SKIP);
	p->whole = p->global || p->opt.common.clip_norm > 0 || kern_opt_prepares(&p->opt) ||
		   p->decl.nonfinite != WIRE_NONFINITE_APPLY;
	p->units = p->whole || p->decl.storage != WIRE_DENSE ? 1 : p->cut.blocks;
	p->arrays = kern_opt_arrays(&p->opt);
	p->lr = kern_opt_lr(&p->opt);
}

/* What this server's mode can't do. */
static int check_mode(const struct srv *srv, const struct param *p)
{
	bool sync = srv->opt.mode == SRV_SYNC;

	if (!sync && p->opt.common.clip_global_norm > 0)
		return err_set(EINVAL, "clip_global_norm is %g, and the norm over all parameters is "
				       "known in sync mode only: use clip_norm, or --mode sync",
			       (double)p->opt.common.clip_global_norm);
	if (sync && p->opt.common.dc_lambda > 0)
		return err_set(EINVAL, "dc_lambda is %g, and in sync mode no gradient is delayed: "
				       "leave it out, or use --mode async",
			       (double)p->opt.common.dc_lambda);
	return 0;
}

static int check_rule(const struct param *p)
{
	if (is_table(p))
		return rows_check(p);
	if (!kern_opt_dense(&p->opt))
		return err_set(EINVAL, "optimizer %s is for tables: it keeps something for each row",
			       p->decl.rule);
	return 0;
}

/* Where the next parameter goes. */
struct ends {
	uint64_t weights; /* from the first weight on; made absolute when the blocks are known */
	uint64_t slots, landing;
};

static uint64_t take(uint64_t *end, uint64_t bytes)
{
	uint64_t at = *end;

	*end += layout_align(bytes, LAYOUT_ALIGN);
	return at;
}

/* Of one slot, in bytes, and of what lands at once. */
static uint64_t slot_bytes(const struct param *p)
{
	return is_table(p) ? layout_slot_bytes(p->decl.slot_rows, row_grad_bytes(p))
			   : p->cut.elems * kern_size(param_grad_type(p));
}

static uint64_t landing_bytes(const struct param *p)
{
	return is_table(p) ? layout_landing_bytes(p->decl.pull_rows, row_weight_bytes(p))
			   : p->cut.elems * kern_size(param_weight_type(p));
}

static uint64_t aligned_slot(const struct param *p)
{
	return layout_align(slot_bytes(p), LAYOUT_ALIGN);
}

/* Its slots by themselves, each behind its head. */
static void place_slots(const struct table *t, struct param *p, struct ends *ends)
{
	uint64_t head = sizeof(struct layout_push_head), stride = head + aligned_slot(p);

	p->place.heads_stride = p->place.slots_stride = stride;
	p->place.heads_off = take(&ends->slots, t->slots * stride);
	p->place.slots_off = p->place.heads_off + head;
}

static void place_rows(const struct table *t, struct param *p, struct ends *ends)
{
	p->place.heads_stride = sizeof(struct layout_push_head);
	p->place.slots_stride = aligned_slot(p);
	p->place.heads_off = take(&ends->slots, t->slots * p->place.heads_stride);
	p->place.request_off = take(&ends->slots, layout_request_bytes(p->decl.pull_rows));
	p->place.slots_off = take(&ends->slots, t->slots * p->place.slots_stride);
}

/* Those of a pack: slot by slot. */
static void place_pack(struct table *t, struct pack *k, struct ends *ends)
{
	uint64_t head = sizeof(struct layout_push_head), stride = 0, heads, slots;
	struct param *first = &t->param[k->param];

	for (uint32_t i = 0; i < k->n; i++) {
		k->bytes = stride + slot_bytes(&first[i]);
		stride += aligned_slot(&first[i]);
	}
	heads = take(&ends->slots, t->slots * k->n * head);
	slots = take(&ends->slots, t->slots * stride);
	for (uint32_t i = 0; i < k->n; i++) {
		struct wire_place *p = &first[i].place;

		p->pack = (uint32_t)(k - t->pack) + 1;
		p->heads_stride = k->n * head;
		p->slots_stride = stride;
		p->heads_off = heads + i * head;
		p->slots_off = slots;
		slots += aligned_slot(&first[i]);
	}
}

/* Everything but the slots, which may be a pack's. */
static void place(struct param *p, struct ends *ends)
{
	p->place.elems = p->cut.elems;
	p->place.block_elems = p->cut.block_elems;
	p->place.blocks = p->cut.blocks;
	p->place.weights_off = take(&ends->weights, p->cut.elems * kern_size(param_weight_type(p)));
	p->place.landing_off = take(&ends->landing, landing_bytes(p));
}

/* Which parameters go together, and what they begin with. */
static int make_packs(struct table *t)
{
	uint64_t *bytes = calloc(t->params, sizeof(*bytes));
	uint32_t *number = calloc(t->params, sizeof(*number));
	int rc = 0;

	for (uint32_t i = 0; bytes && i < t->params; i++) {
		const struct param *p = &t->param[i];

		if (!is_table(p) && p->cut.blocks == 1)
			bytes[i] = aligned_slot(p);
	}
	/* Their numbers are behind those of the blocks. */
	if (bytes && number)
		t->packs = geometry_pack(bytes, t->params, IMM_MAX_BLOCKS - t->blocks, number);
	t->pack = line_alloc(t->packs + 1, sizeof(*t->pack));
	if (!bytes || !number || !t->pack)
		rc = err_set(ENOMEM, "no memory for %u parameters", t->params);
	for (uint32_t i = t->params; rc == 0 && i-- > 0;) {
		struct pack *k = &t->pack[number[i] ? number[i] - 1 : t->packs];

		k->id = (uint32_t)(k - t->pack);
		k->first = &t->param[i];
		k->param = i;
		k->block = t->param[i].place.first_block;
		k->n++;
	}
	free(bytes);
	free(number);
	return rc;
}

static int place_all(struct srv *srv, struct table *t, struct ends *ends)
{
	int rc = make_packs(t);

	for (uint32_t i = 0, next = 0; rc == 0 && i < t->params; i++) {
		place(&t->param[i], ends);
		if (next < t->packs && i == t->pack[next].param)
			place_pack(t, &t->pack[next++], ends);
		else if (is_table(&t->param[i]))
			place_rows(t, &t->param[i], ends);
		else if (!t->param[i].place.pack)
			place_slots(t, &t->param[i], ends);
	}
	for (uint32_t k = 0; rc == 0 && k < t->packs; k++)
		rc = joint_make(srv, t, &t->pack[k]);
	return rc;
}

static uint64_t private_bytes(const struct param *p)
{
	return layout_align(p->cut.elems * sizeof(float), LAYOUT_ALIGN);
}

/* A rule may keep less for a row than for its elements. */
static uint64_t state_bytes(const struct param *p, unsigned i)
{
	uint64_t elems = p->cut.elems;

	if (is_table(p))
		elems = p->decl.dim[0] * kern_opt_row_state(&p->opt, i, table_dim(p));
	return layout_align(elems * sizeof(float), LAYOUT_ALIGN);
}

static void count_memory(struct table *t, struct param *p)
{
	uint64_t longest = is_table(p) ? landing_bytes(p)
				       : p->cut.block_elems * kern_size(param_weight_type(p));

	t->plan.state += param_has_copy(p) * private_bytes(p);
	for (unsigned i = 0; i < kern_opt_arrays(&p->opt); i++)
		t->plan.state += state_bytes(p, i);
	if (is_table(p)) {
		t->plan.tables = memory_plus(t->plan.tables, rows_bytes(p, t->ranks));
		t->plan.parts = memory_plus(t->plan.parts, rows_part_bytes(p));
	}
	p->backup_off = t->backups_len;
	if (p->opt.common.dc_lambda > 0)
		t->backups_len += private_bytes(p);
	if (longest > t->max_block_bytes)
		t->max_block_bytes = longest;
	if (p->decl.init == WIRE_INIT_TRAINER)
		atomic_fetch_add(&t->init_left, p->cut.blocks);
}

/* What its actor's items cost: an update reads the gradients of all trainers at worst. */
static struct turn_cost cost_of(const struct table *t, const struct param *p, enum srv_mode mode)
{
	uint32_t at_once = mode == SRV_SYNC ? t->ranks : 1;
	uint64_t all = is_table(p) ? rows_part_bytes(p) : slot_bytes(p);
	uint64_t block = p->cut.block_elems * kern_size(param_grad_type(p));
	uint64_t one = p->units == 1 ? all : block;

	return (struct turn_cost){
		.most = turn_times(one, at_once),
		.whole = turn_times(all, at_once),
		.each = is_table(p) ? slot_bytes(p) : block,
	};
}

/* Credits that are written together: no more than take some µs to come by, for somebody waits for them. */
static uint32_t longest_run(uint64_t bytes_each)
{
	const uint32_t bytes = 64 << 10, most = 32;

	if (bytes_each <= bytes / most)
		return most;
	return bytes_each < bytes ? bytes / (uint32_t)bytes_each : 1;
}

static uint64_t block_bytes(const struct srv *srv, const struct wire_param *decl)
{
	uint64_t longest = (uint64_t)srv->opt.block_kib * 1024, bytes = sizeof(float);

	if (decl->storage != WIRE_DENSE || !srv_over_rdma(srv))
		return longest;
	for (uint32_t i = 0; i < decl->ndim; i++)
		bytes *= decl->dim[i];
	return geometry_wired_block(longest, bytes);
}

/* Checks and cuts one parameter, and numbers its blocks behind those that are there. */
static int add(struct srv *srv, struct table *t, struct param *p)
{
	int rc = geometry_cut(p->decl.ndim, p->decl.dim, block_bytes(srv, &p->decl),
			      IMM_MAX_BLOCKS - t->blocks, &p->cut);

	if (!rc)
		rc = table_parse_optimizer(&p->decl, &p->opt, &p->lazy);
	if (!rc)
		rc = schedule_parse(p->decl.schedule, &p->schedule);
	if (!rc)
		rc = check_mode(srv, p);
	if (!rc)
		rc = check_rule(p);
	if (rc)
		return err_wrap(rc, "parameter \"%s\"", p->decl.name);
	p->steady = schedule_is_steady(&p->schedule);
	classify(srv, p);
	count_memory(t, p);
	p->actor.cost = cost_of(t, p, srv->opt.mode);
	p->longest_run = longest_run(p->actor.cost.each);
	p->place.first_block = t->blocks;
	t->blocks += p->cut.blocks;
	t->units += p->units;
	t->globals += p->global;
	return 0;
}

static void plan(struct table *t, uint64_t weights, bool rdma)
{
	const uint64_t per_block =
		sizeof(struct block) + t->ranks * (sizeof(struct slot *) + sizeof(uint64_t));
	const uint64_t per_lane =
		t->slots * sizeof(struct slot) + sizeof(struct pull) + sizeof(struct credit) +
		sizeof(uint64_t);

	t->plan.weights = layout_weights_start(t->blocks) + weights;
	t->plan.blocks = t->params * sizeof(struct param) + t->blocks * per_block +
			 t->packs * (sizeof(struct pack) + t->ranks * sizeof(struct delivery *)) +
			 t->params * sizeof(uint16_t);
	for (uint32_t i = 0; i < t->params; i++)
		t->plan.blocks += snapshot_units(&t->param[i]);
	t->plan.slots = t->slots_len;
	t->plan.bookkeeping = t->blocks * per_lane +
			      t->packs * (sizeof(uint64_t) + sizeof(struct lane) +
					  t->slots * sizeof(struct delivery));
	t->plan.backups = t->backups_len;
	t->plan.staging = layout_kept_off(t->blocks, t->blocks);
	if (rdma)
		t->plan.staging += SESSION_BOUNCES * t->max_block_bytes;
	t->plan.trainers = t->ranks;
}

static int make_blocks(struct table *t)
{
	t->block = aligned_alloc(LAYOUT_ALIGN, t->blocks * sizeof(*t->block));
	t->by_rank = calloc((size_t)t->blocks * t->ranks, sizeof(*t->by_rank));
	if (!t->block || !t->by_rank)
		return err_set(ENOMEM, "no memory to keep %u blocks of %u trainers", t->blocks,
			       t->ranks);
	for (uint32_t i = 0; i < t->params; i++) {
		struct param *p = &t->param[i];

		p->block = &t->block[p->place.first_block];
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

/* The norm over all parameters is clipped once: those that say so must say the same. */
static int check_group(const struct table *t)
{
	const struct param *first = NULL;

	for (uint32_t i = 0; i < t->params; i++) {
		const struct param *p = &t->param[i];
		double clip = (double)p->opt.common.clip_global_norm;

		if (clip == 0)
			continue;
		if (!first)
			first = p;
		if (clip != (double)first->opt.common.clip_global_norm)
			return err_set(EINVAL, "clip_global_norm is %g of parameter \"%s\", and %g of "
					       "\"%s\": one norm is taken over all of them",
				       (double)first->opt.common.clip_global_norm, first->decl.name,
				       clip, p->decl.name);
	}
	return 0;
}

int table_create(struct srv *srv, const struct wire_param *decl, uint32_t n, struct table **out)
{
	struct ends ends = {.slots = sizeof(struct layout_slots_head)};
	struct table *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return err_set(ENOMEM, "no memory for the table of parameters");
	t->arena_flags = options_arena_flags(&srv->opt);
	t->ranks = srv->opt.trainers;
	t->slots = srv->opt.slots;
	t->params = n;
	t->param = line_alloc(n, sizeof(*t->param));
	rc = t->param ? check_names(decl, n) : err_set(ENOMEM, "no memory for %u parameters", n);
	for (uint32_t i = 0; i < n && !rc; i++) {
		struct param *p = &t->param[i];

		p->srv = srv;
		p->home = &p->actor;
		p->id = i;
		p->decl = decl[i];
		p->grad_type = (uint8_t)decl[i].grad_type;
		p->weight_type = (uint8_t)decl[i].weight_type;
		p->storage = (uint8_t)decl[i].storage;
		p->reduce = (uint8_t)decl[i].reduce;
		actor_init(&p->actor, param_handle, false);
		p->actor.rest = param_rest;
		p->settle = (struct item){.kind = ITEM_SETTLE, .home = &p->actor};
		rc = add(srv, t, p);
	}
	if (!rc)
		rc = check_group(t);
	if (!rc)
		rc = place_all(srv, t, &ends);
	if (!rc) {
		for (uint32_t i = 0; i < n; i++) {
			t->param[i].place.weights_off += layout_weights_start(t->blocks);
			t->param[i].place.landing_off += layout_landing_start(t->blocks);
		}
		t->slots_len = ends.slots;
		t->mailbox_len = layout_landing_start(t->blocks) + ends.landing;
		plan(t, ends.weights, srv_over_rdma(srv));
		*out = t;
		return 0;
	}
	table_destroy(t);
	return rc;
}

void table_initial(const struct param *p, uint64_t seed, uint64_t first, float *out, uint64_t n)
{
	static const enum kern_init kinds[] = {
		[WIRE_INIT_CONSTANT] = KERN_INIT_CONSTANT,
		[WIRE_INIT_UNIFORM] = KERN_INIT_UNIFORM,
		[WIRE_INIT_NORMAL] = KERN_INIT_NORMAL,
	};

	kern_init_fill(kinds[p->decl.init], seed, p->decl.init_a, p->decl.init_b, first, out, n);
}

/* Rows of a hashed table begin when a key gets them. */
static void fill(struct param *p)
{
	if (p->decl.init == WIRE_INIT_TRAINER || p->decl.storage == WIRE_HASHED)
		return;
	table_initial(p, p->decl.init_seed, 0, p->weights, p->cut.elems);
	if (param_has_copy(p))
		kern_narrow(param_weight_type(p), p->weights, p->published, p->cut.elems);
}

static float *take_floats(uint8_t **at, uint64_t bytes)
{
	float *floats = (float *)(void *)*at;

	*at += bytes;
	return floats;
}

/* What n parameters write: each array of theirs is one. */
static void take_memory(struct param *first, uint32_t n, uint8_t *weights, uint8_t **state)
{
	for (struct param *p = first; p < first + n; p++) {
		p->published = weights + p->place.weights_off;
		p->weights = param_has_copy(p) ? take_floats(state, private_bytes(p)) : p->published;
	}
	for (unsigned k = 0; k < KERN_STATE_MAX; k++)
		for (struct param *p = first; p < first + n; p++)
			if (k < p->arrays)
				p->state[k] = take_floats(state, state_bytes(p, k));
}

int table_allocate(struct table *t)
{
	unsigned flags = t->arena_flags;
	uint8_t *weights, *state = NULL;
	int rc = make_blocks(t);

	if (!rc)
		rc = tp_arena_create("gradslot-weights", t->plan.weights,
				     TP_ARENA_READ_ONLY_TO_PEERS | flags, &t->weights);
	if (!rc && t->plan.state)
		rc = tp_arena_create("gradslot-state", t->plan.state, flags, &t->state);
	if (rc)
		return rc;

	weights = tp_arena_base(t->weights);
	if (t->state)
		state = tp_arena_base(t->state);
	for (uint32_t i = 0; i < t->blocks; i++)
		t->block[i].version = (_Atomic uint64_t *)(weights + layout_version_off(i));
	for (uint32_t i = 0; i < t->params && !rc; i++) {
		struct param *p = &t->param[i];

		/* A pack's lie together, array by array. */
		if (!p->place.pack)
			take_memory(p, 1, weights, &state);
		else if (i == t->pack[p->place.pack - 1].param)
			take_memory(p, t->pack[p->place.pack - 1].n, weights, &state);
		fill(p);
		if (is_table(p))
			rc = rows_create(p, t->ranks);
		if (!rc)
			rc = snapshot_create(p);
	}
	return rc;
}

void table_destroy(struct table *t)
{
	if (!t)
		return;
	tp_arena_destroy(t->weights);
	tp_arena_destroy(t->state);
	for (uint32_t i = 0; t->param && i < t->params; i++) {
		snapshot_destroy(&t->param[i]);
		rows_destroy(t->param[i].rows);
	}
	for (uint32_t k = 0; t->pack && k < t->packs; k++)
		joint_destroy(&t->pack[k]);
	free(t->by_rank);
	free(t->pack);
	free(t->block);
	free(t->param);
	free(t);
}

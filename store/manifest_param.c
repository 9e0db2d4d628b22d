/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter in the manifest. What a declaration may be is decided by proto/, as it is for one
 * that comes from a trainer.
 */
#include "store/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "base/err.h"
#include "store/fields.h"

#define MEMBERS 19u

static const char *const inits[] = {
    [WIRE_INIT_TRAINER] = "trainer",
    [WIRE_INIT_CONSTANT] = "constant",
    [WIRE_INIT_UNIFORM] = "uniform",
    [WIRE_INIT_NORMAL] = "normal",
};
static const char *const dtypes[] = {[WIRE_F32] = "f32", [WIRE_BF16] = "bf16", [WIRE_F16] = "f16"};
static const char *const reduces[] = {
    [WIRE_MEAN] = "mean", [WIRE_SUM] = "sum", [WIRE_WEIGHTED] = "weighted"};
static const char *const nonfinites[] = {[WIRE_NONFINITE_APPLY] = "apply",
					 [WIRE_NONFINITE_REJECT] = "reject",
					 [WIRE_NONFINITE_SKIP] = "skip"};
static const char *const storages[] = {
    [WIRE_DENSE] = "dense", [WIRE_TABLE] = "table", [WIRE_HASHED] = "hashed"};

/* ---- bounds ---------------------------------------------------------------------------------- */

static int check_decl(const struct wire_param *p, int err)
{
	struct wire_msg msg = {.kind = WIRE_DECLARE};
	uint8_t buf[WIRE_MSG_MAX];

	msg.declare.last = true;
	msg.declare.n = 1;
	msg.declare.param[0] = *p;
	return wire_encode(&msg, buf, sizeof(buf)) < 0 ? err_set(err, "%s", err_text()) : 0;
}

static uint64_t elements(const struct wire_param *p)
{
	uint64_t elems = 1;

	for (uint32_t i = 0; i < p->ndim; i++)
		elems *= p->dim[i];
	return elems;
}

int manifest_check_param(const struct checkpoint_param *p, int err)
{
	int rc = check_decl(&p->decl, err);

	if (rc < 0)
		return rc;
	if (!isfinite(p->rate) || p->rate < 0)
		return err_set(err, "\"%s\": rate: %g; must be 0 at least", p->decl.name, p->rate);
	if (p->block_elems < 1 || p->blocks < 1)
		return err_set(err,
			       "\"%s\": %u blocks of %" PRIu64 " elements; both are 1 at least",
			       p->decl.name, p->blocks, p->block_elems);
	uint64_t elems = elements(&p->decl);
	if (p->decl.storage == WIRE_DENSE && (elems - 1) / p->block_elems + 1 != p->blocks)
		return err_set(err,
			       "\"%s\": %u blocks of %" PRIu64 " elements are not the %" PRIu64
			       " that it has",
			       p->decl.name, p->blocks, p->block_elems, elems);
	return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *print_shape(const struct wire_param *p)
{
	json_t *shape = json_array();

	for (uint32_t i = 0; i < p->ndim; i++)
		json_array_append_new(shape, json_u64(p->dim[i]));
	return shape;
}

static json_t *print_settings(const struct wire_param *p)
{
	json_t *settings = json_array();

	for (uint32_t i = 0; i < p->n_settings; i++)
		json_array_append_new(settings,
				      json_pack("[s, f]", p->setting[i].name, p->setting[i].value));
	return settings;
}

static json_t *print_init(const struct wire_param *p)
{
	char seed[HEX_TEXT];

	return json_pack("{s:s, s:f, s:f, s:s}", "kind", inits[p->init], "a", p->init_a, "b",
			 p->init_b, "seed", hex_text(&p->init_seed, 1, seed));
}

json_t *manifest_print_param(const struct checkpoint_param *p)
{
	const struct wire_param *d = &p->decl;

	return json_pack(
	    "{s:s, s:s, s:o, s:s, s:o, s:s, s:f, s:o, s:s, s:s, s:s, s:s, s:I, s:I, "
	    "s:I, s:I, s:o, s:[o, I], s:o}",
	    "name", d->name, "storage", storages[d->storage], "shape", print_shape(d), "optimizer",
	    d->rule, "settings", print_settings(d), "schedule", d->schedule, "rate", p->rate,
	    "init", print_init(d), "grad_type", dtypes[d->grad_type], "weight_type",
	    dtypes[d->weight_type], "reduce", reduces[d->reduce], "nonfinite",
	    nonfinites[d->nonfinite], "slot_rows", (json_int_t)d->slot_rows, "push_rows",
	    (json_int_t)d->push_rows, "pull_rows", (json_int_t)d->pull_rows, "admit_after",
	    (json_int_t)d->admit_after, "evict_after", json_u64(d->evict_after), "blocks",
	    json_u64(p->block_elems), (json_int_t)p->blocks, "updates", json_u64(p->updates));
}

/* ---- parsing --------------------------------------------------------------------------------- */

static int parse_shape(const json_t *value, struct wire_param *p)
{
	if (!json_is_array(value) || json_array_size(value) > WIRE_DIMS_MAX)
		return err_set(EBADMSG, "shape: must be an array of %u numbers at most",
			       WIRE_DIMS_MAX);
	p->ndim = (uint32_t)json_array_size(value);
	int rc = 0;
	for (uint32_t i = 0; rc == 0 && i < p->ndim; i++)
		rc = number_u64(json_array_get(value, i), "shape", 1, UINT64_MAX, &p->dim[i]);
	return rc;
}

static int parse_settings(const json_t *value, struct wire_param *p)
{
	if (!json_is_array(value) || json_array_size(value) > WIRE_SETTINGS_MAX)
		return err_set(EBADMSG, "settings: must be an array of %u pairs at most",
			       WIRE_SETTINGS_MAX);
	p->n_settings = (uint32_t)json_array_size(value);
	for (uint32_t i = 0; i < p->n_settings; i++) {
		const json_t *pair = json_array_get(value, i);
		struct wire_setting *s = &p->setting[i];

		if (!json_is_array(pair) || json_array_size(pair) != 2)
			return err_set(EBADMSG, "settings: must be pairs of name and value");
		int rc = text_copy(json_array_get(pair, 0), "settings", s->name, sizeof(s->name));
		if (rc == 0)
			rc = number_real(json_array_get(pair, 1), "settings", &s->value);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int parse_init(const json_t *value, struct wire_param *p)
{
	unsigned kind = 0;
	int rc = field_object(value, "init", 4);

	if (rc == 0)
		rc = field_choice(value, "kind", inits, WIRE_INIT_TRAINER, WIRE_INIT_NORMAL, &kind);
	if (rc == 0)
		rc = field_real(value, "a", &p->init_a);
	if (rc == 0)
		rc = field_real(value, "b", &p->init_b);
	if (rc == 0)
		rc = field_hex(value, "seed", 1, &p->init_seed);
	p->init = (enum wire_init)kind;
	return rc;
}

static int parse_kinds(const json_t *o, struct wire_param *p)
{
	unsigned storage = 0, grad = 0, weight = 0, reduce = 0, nonfinite = 0;
	int rc = field_choice(o, "storage", storages, WIRE_DENSE, WIRE_HASHED, &storage);

	if (rc == 0)
		rc = field_choice(o, "grad_type", dtypes, WIRE_F32, WIRE_F16, &grad);
	if (rc == 0)
		rc = field_choice(o, "weight_type", dtypes, WIRE_F32, WIRE_F16, &weight);
	if (rc == 0)
		rc = field_choice(o, "reduce", reduces, WIRE_MEAN, WIRE_WEIGHTED, &reduce);
	if (rc == 0)
		rc = field_choice(o, "nonfinite", nonfinites, WIRE_NONFINITE_APPLY,
				  WIRE_NONFINITE_SKIP, &nonfinite);
	p->storage = (enum wire_storage)storage;
	p->grad_type = (enum wire_dtype)grad;
	p->weight_type = (enum wire_dtype)weight;
	p->reduce = (enum wire_reduce)reduce;
	p->nonfinite = (enum wire_nonfinite)nonfinite;
	return rc;
}

static int parse_rows(const json_t *o, struct wire_param *p)
{
	int rc = field_u32(o, "slot_rows", 0, UINT32_MAX, &p->slot_rows);

	if (rc == 0)
		rc = field_u32(o, "push_rows", 0, UINT32_MAX, &p->push_rows);
	if (rc == 0)
		rc = field_u32(o, "pull_rows", 0, UINT32_MAX, &p->pull_rows);
	if (rc == 0)
		rc = field_u32(o, "admit_after", 0, UINT32_MAX, &p->admit_after);
	if (rc == 0)
		rc = field_u64(o, "evict_after", 0, UINT64_MAX, &p->evict_after);
	return rc;
}

static int parse_blocks(const json_t *value, struct checkpoint_param *p)
{
	uint64_t blocks = 0;

	if (!json_is_array(value) || json_array_size(value) != 2)
		return err_set(EBADMSG,
			       "blocks: must be two numbers, elements of one and how many");
	int rc = number_u64(json_array_get(value, 0), "blocks", 1, UINT64_MAX, &p->block_elems);
	if (rc == 0)
		rc = number_u64(json_array_get(value, 1), "blocks", 1, UINT32_MAX, &blocks);
	p->blocks = (uint32_t)blocks;
	return rc;
}

int manifest_parse_param(const json_t *value, struct checkpoint_param *out)
{
	struct checkpoint_param p = {0};
	struct wire_param *d = &p.decl;
	int rc = field_object(value, "it", MEMBERS);

	if (rc == 0)
		rc = field_text(value, "name", d->name, sizeof(d->name));
	if (rc < 0)
		return rc;
	rc = parse_kinds(value, d);
	if (rc == 0)
		rc = parse_shape(json_object_get(value, "shape"), d);
	if (rc == 0)
		rc = field_text(value, "optimizer", d->rule, sizeof(d->rule));
	if (rc == 0)
		rc = parse_settings(json_object_get(value, "settings"), d);
	if (rc == 0)
		rc = field_text(value, "schedule", d->schedule, sizeof(d->schedule));
	if (rc == 0)
		rc = field_real(value, "rate", &p.rate);
	if (rc == 0)
		rc = parse_init(json_object_get(value, "init"), d);
	if (rc == 0)
		rc = parse_rows(value, d);
	if (rc == 0)
		rc = parse_blocks(json_object_get(value, "blocks"), &p);
	if (rc == 0)
		rc = field_u64(value, "updates", 0, UINT64_MAX, &p.updates);
	if (rc < 0)
		return err_wrap(rc, "\"%s\"", d->name);
	*out = p;
	return 0;
}

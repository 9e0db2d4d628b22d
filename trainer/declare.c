/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters, as the program describes them.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static int copy_name(const char *field, const char *from, char *to, size_t cap)
{
	if (!from)
		return err_set(EINVAL, "%s: NULL", field);
	size_t len = strlen(from);
	if (len >= cap)
		return err_set(EINVAL, "%s: %zu bytes; the limit is %zu", field, len, cap - 1);
	memcpy(to, from, len + 1);
	return 0;
}

static int copy_settings(const struct gs_param_desc *d, struct wire_param *w)
{
	if (d->n_settings > GS_MAX_SETTINGS)
		return err_set(EINVAL, "settings: %u of them; the limit is %u", d->n_settings,
			       GS_MAX_SETTINGS);
	for (uint32_t i = 0; i < d->n_settings; i++) {
		int rc = copy_name("name", d->settings[i].name, w->setting[i].name,
				   sizeof(w->setting[i].name));

		if (rc < 0)
			return err_wrap(rc, "setting %u", i);
		w->setting[i].value = d->settings[i].value;
	}
	w->n_settings = d->n_settings;
	return 0;
}

static int copy_init(const struct gs_param_desc *d, struct wire_param *w)
{
	switch (d->init) {
	case GS_INIT_DATA:
		if (!d->init_data)
			return err_set(EINVAL, "init_data: NULL with GS_INIT_DATA");
		w->init = WIRE_INIT_TRAINER;
		break;
	case GS_INIT_CONSTANT:
		w->init = WIRE_INIT_CONSTANT;
		break;
	case GS_INIT_UNIFORM:
		w->init = WIRE_INIT_UNIFORM;
		break;
	case GS_INIT_NORMAL:
		w->init = WIRE_INIT_NORMAL;
		break;
	default:
		return err_set(EINVAL, "init: %d; known are %d to %d", (int)d->init, GS_INIT_DATA,
			       GS_INIT_NORMAL);
	}
	w->init_a = d->init_a;
	w->init_b = d->init_b;
	w->init_seed = d->init_seed;
	return 0;
}

static int copy_enum(const char *field, int value, int last)
{
	if (value < 0 || value > last)
		return err_set(EINVAL, "%s: %d; known are 0 to %d", field, value, last);
	return 0;
}

static int copy_formats(const struct gs_param_desc *d, struct wire_param *w)
{
	int rc = copy_enum("grad_dtype", (int)d->grad_dtype, GS_F16);

	if (rc == 0)
		rc = copy_enum("weight_dtype", (int)d->weight_dtype, GS_F16);
	if (rc == 0)
		rc = copy_enum("reduce", (int)d->reduce, GS_WEIGHTED);
	if (rc == 0)
		rc = copy_enum("nonfinite", (int)d->nonfinite, GS_NONFINITE_SKIP);
	if (rc == 0)
		rc = copy_enum("kind", (int)d->kind, GS_HASHED);
	if (rc < 0)
		return rc;
	/* Numbered alike. */
	w->grad_type = (enum wire_dtype)d->grad_dtype;
	w->weight_type = (enum wire_dtype)d->weight_dtype;
	w->reduce = (enum wire_reduce)d->reduce;
	w->nonfinite = (enum wire_nonfinite)d->nonfinite;
	w->storage = (enum wire_storage)d->kind;
	return d->schedule ? copy_name("schedule", d->schedule, w->schedule, sizeof(w->schedule))
			   : 0;
}

static int copy_table(const struct gs_param_desc *d, struct wire_param *w)
{
	enum { PUSH_ROWS = 65536, SLOT_ROWS = 4096, PULL_ROWS = 4096 };

	if (d->kind != GS_DENSE && d->accumulate > 1)
		return err_set(EINVAL, "accumulate: %u of a table; only tensors accumulate",
			       d->accumulate);
	if (d->kind == GS_DENSE) {
		w->slot_rows = d->slot_rows; /* the codec says that they must be 0 */
		w->push_rows = d->push_rows;
		w->pull_rows = d->pull_rows;
	} else {
		w->push_rows = d->push_rows ? d->push_rows : PUSH_ROWS;
		w->slot_rows = d->slot_rows ? d->slot_rows : SLOT_ROWS;
		if (!d->slot_rows && w->slot_rows > w->push_rows)
			w->slot_rows = w->push_rows;
		w->pull_rows = d->pull_rows ? d->pull_rows : PULL_ROWS;
	}
	w->admit_after = d->admit_after;
	w->evict_after = d->evict_after;
	return 0;
}

/* The codec checks what is left (a message with this parameter alone). */
static int check_as_message(const struct wire_param *w)
{
	struct wire_msg msg = {.kind = WIRE_DECLARE, .declare = {.last = true, .n = 1}};
	uint8_t buf[WIRE_MSG_MAX];

	msg.declare.param[0] = *w;
	int rc = wire_encode(&msg, buf, sizeof(buf));
	return rc < 0 ? rc : 0;
}

static int fill(const struct gs_param_desc *d, struct wire_param *w)
{
	int rc;

	if (d->size != sizeof(*d))
		return err_set(EINVAL,
			       "size is %zu, not %zu; begin with GS_PARAM_DESC_INIT, and build "
			       "against the header of this library",
			       d->size, sizeof(*d));
	if (d->ndim > GS_MAX_DIMS)
		return err_set(EINVAL, "ndim: %u; must be 1 to %u", d->ndim, GS_MAX_DIMS);
	memset(w, 0, sizeof(*w));
	w->ndim = d->ndim;
	memcpy(w->dim, d->shape, d->ndim * sizeof(w->dim[0]));
	rc = copy_name("name", d->name, w->name, sizeof(w->name));
	if (rc == 0)
		rc = copy_name("optimizer", d->optimizer, w->rule, sizeof(w->rule));
	if (rc == 0)
		rc = copy_settings(d, w);
	if (rc == 0)
		rc = copy_init(d, w);
	if (rc == 0)
		rc = copy_formats(d, w);
	if (rc == 0)
		rc = copy_table(d, w);
	if (rc == 0)
		rc = check_as_message(w);
	return rc;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Where a name is, or would go, in a table of 2 × cap_params places (FNV-1a, linear probing): a model may
 * have very many. */
static gs_param **place_of(gs_param **by_name, uint32_t places, const char *name)
{
	uint64_t hash = 14695981039346656037u;

	for (const char *c = name; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	for (uint32_t at = (uint32_t)(hash ^ hash >> 32);; at++) {
		gs_param **place = &by_name[at & (places - 1)];

		if (!*place || strcmp((*place)->wire.name, name) == 0)
			return place;
	}
}

static int grow(gs_trainer *t)
{
	uint32_t cap = t->cap_params ? 2 * t->cap_params : 16;
	gs_param **by_name = calloc(2 * (size_t)cap, sizeof(*by_name));
	gs_param **grown = realloc(t->param, cap * sizeof(*grown));

	if (grown)
		t->param = grown;
	if (!grown || !by_name) {
		free(by_name);
		return err_set(ENOMEM, "no memory for %u parameters", cap);
	}
	for (uint32_t i = 0; i < t->n_params; i++)
		*place_of(by_name, 2 * cap, t->param[i]->wire.name) = t->param[i];
	free(t->by_name);
	t->by_name = by_name;
	t->cap_params = cap;
	return 0;
}

/* -EEXIST. */
static int add(gs_trainer *t, gs_param *p)
{
	int rc = t->n_params == t->cap_params ? grow(t) : 0;

	if (rc < 0)
		return rc;
	gs_param **place = place_of(t->by_name, 2 * t->cap_params, p->wire.name);
	if (*place)
		return err_set(EEXIST, "it was declared already");
	*place = p;
	p->index = t->n_params;
	t->param[t->n_params++] = p;
	return 0;
}

static bool has_setting(const struct wire_param *w, const char *name)
{
	for (uint32_t i = 0; i < w->n_settings; i++) {
		if (strcmp(w->setting[i].name, name) == 0)
			return w->setting[i].value != 0;
	}
	return false;
}

static int declare(gs_trainer *t, const struct gs_param_desc *desc, gs_param **out)
{
	if (t->phase != PHASE_OPEN)
		return err_set(EBUSY, "gs_start was called already");
	if (t->n_params == IMM_MAX_BLOCKS)
		return err_set(EINVAL, "%u parameters are the limit", IMM_MAX_BLOCKS);
	gs_param *p = aligned_alloc(LAYOUT_ALIGN, layout_align(sizeof(*p), LAYOUT_ALIGN));
	if (!p)
		return err_set(ENOMEM, "no memory for a parameter");
	memset(p, 0, sizeof(*p));
	int rc = fill(desc, &p->wire);
	if (rc == 0)
		rc = add(t, p);
	if (rc < 0) {
		free(p);
		return err_wrap(rc, "parameter \"%.*s\"", (int)GS_MAX_NAME,
				desc->name ? desc->name : "");
	}
	p->t = t;
	p->init_data = desc->init == GS_INIT_DATA ? desc->init_data : NULL;
	p->table = p->wire.storage != WIRE_DENSE;
	p->grad_size = p->wire.grad_type == WIRE_F32 ? 4 : 2;
	p->weight_size = p->wire.weight_type == WIRE_F32 ? 4 : 2;
	p->accumulate = desc->accumulate > 1 ? desc->accumulate : 1;
	t->sums += p->accumulate > 1;
	p->accumulate_sum = desc->accumulate_sum != 0;
	p->by_queue = has_setting(&p->wire, "dc_lambda");
	p->elems = 1;
	for (uint32_t i = 0; i < p->wire.ndim; i++)
		p->elems *= p->wire.dim[i];
	*out = p;
	return 0;
}

int gs_declare(gs_trainer *t, const struct gs_param_desc *desc, gs_param **out)
{
	if (!desc || !out)
		return err_set(EINVAL, "gs_declare: NULL");
	int rc = trainer_enter(t);
	if (rc < 0)
		return rc;
	rc = declare(t, desc, out);
	trainer_exit(t);
	return rc;
}

uint64_t gs_param_elems(const gs_param *p)
{
	return p->elems;
}

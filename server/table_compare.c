/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trainer declares beside what the server has: every trainer must mean the same parameters.
 */
#include "server/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

void table_shape_text(uint32_t ndim, const uint64_t *dim, char *out, size_t cap)
{
	size_t n = (size_t)snprintf(out, cap, "[");

	for (uint32_t i = 0; i < ndim && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%" PRIu64, i ? ", " : "", dim[i]);
	if (n < cap)
		snprintf(out + n, cap - n, "]");
}

static void shape_text(const struct wire_param *p, char *out, size_t cap)
{
	table_shape_text(p->ndim, p->dim, out, cap);
}

void table_optimizer_text(const struct wire_param *p, char *out, size_t cap)
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

static void schedule_text(const struct wire_param *p, char *out, size_t cap)
{
	snprintf(out, cap, "%s", p->schedule[0] ? p->schedule : "constant");
}

static void formats_text(const struct wire_param *p, char *out, size_t cap)
{
	static const char *const types[] = {"f32", "bf16", "f16"};
	static const char *const reduce[] = {"mean", "sum", "weighted mean"};
	static const char *const policies[] = {"applied", "rejected", "skipped"};

	snprintf(out, cap, "gradients %s, weights %s, %s, non-finite ones %s", types[p->grad_type],
		 types[p->weight_type], reduce[p->reduce], policies[p->nonfinite]);
}

static void storage_text(const struct wire_param *p, char *out, size_t cap)
{
	static const char *const kinds[] = {"dense", "table", "hashed table"};

	if (p->storage == WIRE_DENSE)
		snprintf(out, cap, "%s", kinds[p->storage]);
	else
		snprintf(out, cap,
			 "%s (slot_rows %u, push_rows %u, pull_rows %u, admit_after %u, "
			 "evict_after %" PRIu64 ")",
			 kinds[p->storage], p->slot_rows, p->push_rows, p->pull_rows,
			 p->admit_after, p->evict_after);
}

/* Settings may be left out or come in another order: what they mean is compared. */
static bool same_optimizer(const struct param *p, const struct wire_param *theirs)
{
	struct kern_opt opt;
	bool lazy;

	return table_parse_optimizer(theirs, &opt, &lazy) == 0 && lazy == p->lazy &&
	       kern_opt_same(&opt, &p->opt);
}

static bool same_schedule(const struct param *p, const struct wire_param *theirs)
{
	struct schedule schedule;

	return schedule_parse(theirs->schedule, &schedule) == 0 &&
	       schedule_same(&schedule, &p->schedule);
}

static bool same_formats(const struct wire_param *a, const struct wire_param *b)
{
	return a->grad_type == b->grad_type && a->weight_type == b->weight_type &&
	       a->reduce == b->reduce && a->nonfinite == b->nonfinite;
}

static bool same_storage(const struct wire_param *a, const struct wire_param *b)
{
	return a->storage == b->storage && a->slot_rows == b->slot_rows &&
	       a->push_rows == b->push_rows && a->pull_rows == b->pull_rows &&
	       a->admit_after == b->admit_after && a->evict_after == b->evict_after;
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
	return err_set(EINVAL, "parameter %u \"%s\": %s %s here, %s at the server", i, p->decl.name,
		       what, a, b);
}

static int compare_one(uint32_t i, const struct param *p, const struct wire_param *theirs)
{
	if (strcmp(p->decl.name, theirs->name) != 0)
		return err_set(EINVAL, "parameter %u is \"%s\" here, \"%s\" at the server", i,
			       theirs->name, p->decl.name);
	if (!same_shape(&p->decl, theirs))
		return differs("shape", i, p, theirs, shape_text);
	if (!same_optimizer(p, theirs))
		return differs("optimizer", i, p, theirs, table_optimizer_text);
	if (!same_schedule(p, theirs))
		return differs("schedule", i, p, theirs, schedule_text);
	if (!same_formats(&p->decl, theirs))
		return differs("formats", i, p, theirs, formats_text);
	if (!same_storage(&p->decl, theirs))
		return differs("storage", i, p, theirs, storage_text);
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

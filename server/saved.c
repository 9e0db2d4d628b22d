/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a checkpoint.
 */
#include "server/saved.h"

#include <stdio.h>
#include <string.h>

#include "server/internal.h"
#include "server/rows.h"
#include "server/snapshot.h"

void saved_name(const struct param *p, enum saved_kind kind, char out[STORE_NAME_MAX + 1])
{
	static const char *const names[] = {
	    [SAVED_UPDATES] = "updates", [SAVED_APPLIED] = "applied", [SAVED_KEYS] = "keys",
	    [SAVED_TOUCHED] = "touched", [SAVED_NEWER] = "newer",     [SAVED_OLDER] = "older",
	    [SAVED_MAP] = "map",         [SAVED_SKETCH] = "sketch",
	};

	if (kind < SAVED_UPDATES)
		snprintf(out, STORE_NAME_MAX + 1, "%s/state%u", p->decl.name, kind - SAVED_STATE);
	else
		snprintf(out, STORE_NAME_MAX + 1, "%s/%s", p->decl.name, names[kind]);
}

static void as_declared(const struct param *p, struct store_tensor *out)
{
	out->dtype = STORE_F32;
	out->ndim = p->decl.ndim;
	memcpy(out->dim, p->decl.dim, p->decl.ndim * sizeof(out->dim[0]));
}

void saved_weights(const struct param *p, struct store_tensor *out)
{
	*out = (struct store_tensor){.ndim = 0};
	snprintf(out->name, sizeof(out->name), "%s", p->decl.name);
	as_declared(p, out);
}

static bool line(struct store_tensor *out, enum store_dtype dtype, uint64_t n)
{
	out->dtype = dtype;
	out->ndim = 1;
	out->dim[0] = n;
	return n > 0;
}

static bool state(const struct param *p, unsigned k, struct store_tensor *out)
{
	if (k >= kern_opt_arrays(&p->opt))
		return false;
	as_declared(p, out);
	if (is_table(p))
		out->dim[1] = kern_opt_row_state(&p->opt, k, table_dim(p));
	return true;
}

static bool applied(const struct param *p, struct store_tensor *out)
{
	if (p->srv->opt.mode == SRV_SYNC)
		return false;
	out->dtype = STORE_U64;
	out->ndim = 2;
	out->dim[0] = p->srv->opt.trainers;
	out->dim[1] = param_words(p);
	return true;
}

bool saved_tensor(const struct param *p, enum saved_kind kind, struct store_tensor *out)
{
	uint64_t rows = p->decl.dim[0];

	*out = (struct store_tensor){.ndim = 0};
	saved_name(p, kind, out->name);
	if (kind < SAVED_UPDATES)
		return state(p, kind - SAVED_STATE, out);
	if (kind == SAVED_UPDATES)
		return !is_table(p) && line(out, STORE_U64, p->cut.blocks);
	if (kind == SAVED_APPLIED)
		return applied(p, out);
	if (!is_hashed(p))
		return false;
	switch (kind) {
	case SAVED_KEYS:
		return line(out, STORE_I64, rows);
	case SAVED_TOUCHED:
		return line(out, STORE_U64, rows);
	case SAVED_MAP:
		return line(out, STORE_U64, SNAPSHOT_MAP);
	case SAVED_SKETCH:
		return line(out, STORE_U16, keymap_counters(rows, p->decl.admit_after));
	default: /* newer, older */
		return line(out, STORE_U32, rows);
	}
}

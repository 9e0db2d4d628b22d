/* SPDX-License-Identifier: Apache-2.0
 *
 * One parameter out of a checkpoint, or out of a file of weights.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "proto/layout.h"
#include "server/param.h"
#include "server/restore.h"
#include "server/rows.h"
#include "server/saved.h"

/* ---- does it fit? ---------------------------------------------------------------------------- */

static int check_shape(const struct param *p, uint32_t ndim, const uint64_t *dim)
{
	char now[160], was[160];

	if (ndim == p->decl.ndim && memcmp(dim, p->decl.dim, ndim * sizeof(dim[0])) == 0)
		return 0;
	table_shape_text(p->decl.ndim, p->decl.dim, now, sizeof(now));
	table_shape_text(ndim, dim, was, sizeof(was));
	return err_set(EINVAL, "its shape was %s, it is declared as %s", was, now);
}

static int check_storage(const struct param *p, const struct wire_param *was)
{
	static const char *const kinds[] = {"dense", "a table", "a hashed table"};

	if (was->storage == p->decl.storage)
		return 0;
	return err_set(EINVAL, "it was %s, it is declared as %s", kinds[was->storage],
		       kinds[p->decl.storage]);
}

/* All but the rate, which may be another. */
static int check_optimizer(const struct param *p, const struct wire_param *was, float *lr)
{
	char now_text[320], was_text[320];
	struct kern_opt opt;
	bool lazy;
	int rc = table_parse_optimizer(was, &opt, &lazy);

	if (rc)
		return rc;
	*lr = kern_opt_lr(&opt);
	opt.value[0] = kern_opt_lr(&p->opt);
	if (lazy == p->lazy && kern_opt_same(&opt, &p->opt))
		return 0;
	table_optimizer_text(&p->decl, now_text, sizeof(now_text));
	table_optimizer_text(was, was_text, sizeof(was_text));
	return err_set(EINVAL, "its optimizer was %s, it is declared with %s", was_text, now_text);
}

/* What a file holds under a name, if that is so many elements of a type. */
static int find(const struct store_file *file, const char *name, enum store_dtype dtype,
		uint64_t elems, const void **data)
{
	const struct store_tensor *t = store_find(file, name);

	if (!t)
		return err_set(EBADMSG, "%s has no \"%s\"", store_path(file), name);
	if (t->dtype != dtype || t->len % store_dtype_size(dtype) ||
	    t->len / store_dtype_size(dtype) != elems)
		return err_set(EBADMSG, "%s: \"%s\" is %" PRIu64 " bytes of %s, not %" PRIu64
					" elements of %s",
			       store_path(file), name, t->len, store_dtype_name(t->dtype), elems,
			       store_dtype_name(dtype));
	*data = t->data;
	return 0;
}

static int find_saved(const struct param *p, const struct source *from, enum saved_kind kind,
		      enum store_dtype dtype, uint64_t elems, const void **data)
{
	char name[STORE_NAME_MAX + 1];

	saved_name(p, kind, name);
	return find(checkpoint_state_of(from->checkpoint), name, dtype, elems, data);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* What trainers read, if that is not the weights themselves. */
static void publish(struct param *p)
{
	if (param_has_copy(p))
		kern_narrow(param_weight_type(p), p->weights, p->published, p->cut.elems);
}

static bool widen(enum store_dtype dtype, const void *in, float *out, size_t n)
{
	const double *wide = in;

	switch (dtype) {
	case STORE_F32:
		memcpy(out, in, n * sizeof(float));
		return true;
	case STORE_BF16:
		kern_widen(KERN_BF16, in, out, n);
		return true;
	case STORE_F16:
		kern_widen(KERN_F16, in, out, n);
		return true;
	case STORE_F64:
		for (size_t i = 0; i < n; i++)
			out[i] = (float)wide[i];
		return true;
	default:
		return false;
	}
}

/* Of any program's file: its tensors lie anywhere, so they go through memory that is aligned. */
static int take_foreign(struct param *p, const struct store_tensor *t)
{
	enum { PIECE = 1024 };
	uint64_t each = store_dtype_size(t->dtype);
	double aligned[PIECE];

	if (is_hashed(p))
		return err_set(EINVAL, "it is a hashed table, and a file of weights has no keys");
	if (check_shape(p, t->ndim, t->dim))
		return -EINVAL;
	for (uint64_t at = 0; at < p->cut.elems; at += PIECE) {
		uint64_t n = p->cut.elems - at < PIECE ? p->cut.elems - at : PIECE;

		memcpy(aligned, (const uint8_t *)t->data + at * each, n * each);
		if (!widen(t->dtype, aligned, p->weights + at, n))
			return err_set(EINVAL,
				       "it is of %s there: F64, F32, F16 and BF16 can be "
				       "restored",
				       store_dtype_name(t->dtype));
	}
	publish(p);
	return 0;
}

/* ---- dense ----------------------------------------------------------------------------------- */

static int take_state(struct param *p, const struct source *from, uint64_t rows)
{
	for (unsigned k = 0; k < kern_opt_arrays(&p->opt); k++) {
		uint64_t elems = p->cut.elems, n = elems;
		const void *data;
		int rc;

		if (is_table(p)) {
			uint64_t each = kern_opt_row_state(&p->opt, k, table_dim(p));

			elems = p->decl.dim[0] * each;
			n = rows * each;
		}
		rc = find_saved(p, from, SAVED_STATE + k, STORE_F32, elems, &data);
		if (rc)
			return rc;
		memcpy(p->state[k], data, n * sizeof(float));
	}
	return 0;
}

/* The blocks that were, of which `b` has something: first and last. */
struct span {
	uint64_t first, last;
};

static struct span overlaps(const struct block *b, uint64_t block_elems)
{
	return (struct span){b->first / block_elems, (b->first + b->elems - 1) / block_elems};
}

static bool most_of(const uint64_t *count, struct span s, uint64_t *most)
{
	bool same = true;

	*most = count[s.first];
	for (uint64_t i = s.first + 1; i <= s.last; i++) {
		same &= count[i] == *most;
		*most = count[i] > *most ? count[i] : *most;
	}
	return same;
}

static int check_cut(const struct param *p, const struct checkpoint_param *was)
{
	uint64_t be = was->block_elems;

	if (be && was->blocks == (p->cut.elems + be - 1) / be)
		return 0;
	return err_set(EBADMSG, "%u blocks of %" PRIu64 " elements do not make %" PRIu64,
		       was->blocks, be, p->cut.elems);
}

static int check_count(const char *what, uint64_t n)
{
	return n <= LAYOUT_COUNT_MAX
		   ? 0
		   : err_set(EBADMSG, "%" PRIu64 " %s: no training gets there", n, what);
}

static int take_updates(const struct table *t, struct param *p, const struct source *from,
			const struct checkpoint_param *was)
{
	const void *data;
	bool same = true;
	int rc = find_saved(p, from, SAVED_UPDATES, STORE_U64, was->blocks, &data);

	for (uint32_t i = 0; i < p->cut.blocks && !rc; i++) {
		struct block *b = &t->block[p->place.first_block + i];
		uint64_t updates;

		same &= most_of(data, overlaps(b, was->block_elems), &updates);
		rc = check_count("updates of a block", updates);
		atomic_store(b->version, 2 * updates);
	}
	if (!rc && !same)
		log_warn("\"%s\": blocks that had seen different numbers of updates are cut anew: "
			 "the larger number counts",
			 p->decl.name);
	return rc;
}

/* ---- hashed ---------------------------------------------------------------------------------- */

/* The sketch is another one when admit_after is: then keys earn their rows anew. */
static void take_sketch(const struct param *p, const struct source *from,
			struct keymap_saved *saved)
{
	char name[STORE_NAME_MAX + 1];
	const struct store_tensor *t;
	uint64_t n = p->rows->keys.counts;

	saved_name(p, SAVED_SKETCH, name);
	t = store_find(checkpoint_state_of(from->checkpoint), name);
	if (n && t && t->dtype == STORE_U16 && t->len == n * sizeof(uint16_t))
		saved->sketch = t->data;
	else if (n || t)
		log_warn("\"%s\": admit_after is another, keys begin anew to earn their rows",
			 p->decl.name);
}

static int find_map(const struct param *p, const struct source *from, struct keymap_saved *s)
{
	uint64_t rows = p->decl.dim[0];
	const void *map, *keys, *touched, *newer, *older;
	const uint64_t *number;
	int rc = find_saved(p, from, SAVED_MAP, STORE_U64, SNAPSHOT_MAP, &map);

	if (!rc)
		rc = find_saved(p, from, SAVED_KEYS, STORE_I64, rows, &keys);
	if (!rc)
		rc = find_saved(p, from, SAVED_TOUCHED, STORE_U64, rows, &touched);
	if (!rc)
		rc = find_saved(p, from, SAVED_NEWER, STORE_U32, rows, &newer);
	if (!rc)
		rc = find_saved(p, from, SAVED_OLDER, STORE_U32, rows, &older);
	if (rc)
		return rc;
	number = map;
	*s = (struct keymap_saved){
	    .used = number[SNAPSHOT_USED],
	    .evictions = number[SNAPSHOT_EVICTIONS],
	    .hand = number[SNAPSHOT_HAND],
	    .newest = number[SNAPSHOT_NEWEST],
	    .oldest = number[SNAPSHOT_OLDEST],
	    .keys = keys,
	    .touched = touched,
	    .newer = newer,
	    .older = older,
	};
	take_sketch(p, from, s);
	return 0;
}

static int take_map(struct param *p, const struct source *from)
{
	struct keymap_saved s;
	int rc = find_map(p, from, &s);

	if (!rc)
		rc = keymap_restore(&p->rows->keys, &s);
	if (!rc && s.used && s.touched[s.newest] > p->rows->updates)
		rc = err_set(EBADMSG,
			     "row %" PRIu64 " was touched at update %" PRIu64 " of %" PRIu64,
			     s.newest, s.touched[s.newest], p->rows->updates);
	return rc;
}

/* ---- all of one ------------------------------------------------------------------------------ */

static void take_rate(struct param *p, const struct checkpoint_param *was, float declared)
{
	if (declared != kern_opt_lr(&p->opt)) {
		log_info("\"%s\": the learning rate is declared as %g, it was as %g: from here on "
			 "it is %g",
			 p->decl.name, p->lr, (double)declared, p->lr);
		return;
	}
	if (was->rate != p->lr)
		log_info("\"%s\": the learning rate is %g, as it was set last (declared: %g)",
			 p->decl.name, was->rate, p->lr);
	p->lr = was->rate;
}

/* What a rank's pushes come to in a block: of blocks cut anew the most, for the rest of such a push
 * is in the weights in part, and to apply it again would be worse. Of a parameter that is updated
 * at once the least: a push may have been left out behind it, and is left out again. */
static bool set_applied(const struct table *t, struct param *p, uint32_t rank,
			const uint64_t *count, const struct checkpoint_param *was)
{
	uint32_t blocks = param_words(p);
	uint64_t least = UINT64_MAX, most;
	bool same = true;

	for (uint32_t i = 0; p->whole && i < was->blocks; i++)
		least = count[i] < least ? count[i] : least;
	for (uint32_t i = 0; i < blocks; i++) {
		const struct block *b = &t->block[p->place.first_block + i];
		struct span span =
		    is_table(p) ? (struct span){0, 0} : overlaps(b, was->block_elems);

		same &= most_of(count, span, &most);
		ledger_set(&p->srv->ledger, rank, b->id,
			   p->whole && !is_table(p) ? least : most);
	}
	return same || p->whole;
}

/* Trainers take no more than that: a slot is used again once the slowest block is done with it. */
static int check_applied(const struct param *p, const uint64_t *count, uint32_t blocks)
{
	uint64_t least = count[0], most = count[0];

	for (uint32_t i = 1; i < blocks; i++) {
		least = count[i] < least ? count[i] : least;
		most = count[i] > most ? count[i] : most;
	}
	if (!p->whole && most - least > p->srv->opt.slots)
		return err_set(EBADMSG, "%" PRIu64 " pushes of a rank are in one block, and %" PRIu64
					" in another", most, least);
	return check_count("pushes of a rank", most);
}

/* A checkpoint of sync mode has none: there no push is counted. */
static int take_applied(const struct table *t, struct param *p, const struct source *from,
			const struct checkpoint_param *was)
{
	const struct checkpoint_manifest *m = checkpoint_manifest(from->checkpoint);
	uint32_t blocks = is_table(p) ? 1 : was->blocks, ranks = p->srv->opt.trainers;
	const uint64_t *count;
	const void *data;
	bool same = true;
	int rc;

	if (m->mode == WIRE_SYNC || p->srv->opt.mode == SRV_SYNC)
		return 0;
	rc = find_saved(p, from, SAVED_APPLIED, STORE_U64, (uint64_t)m->trainers * blocks, &data);
	count = data;
	for (uint32_t r = 0; !rc && r < m->trainers && r < ranks; r++)
		rc = check_applied(p, count + (size_t)r * blocks, blocks);
	for (uint32_t r = 0; !rc && r < m->trainers && r < ranks; r++)
		same &= set_applied(t, p, r, count + (size_t)r * blocks, was);
	if (!same)
		log_warn("\"%s\": blocks that had seen different pushes are cut anew: a push that "
			 "is in one of them counts as applied",
			 p->decl.name);
	return rc;
}

static int take(const struct table *t, struct param *p, const struct source *from,
		const struct checkpoint_param *was)
{
	uint64_t rows = p->decl.dim[0]; /* that are in use */
	const void *weights;
	int rc = find(checkpoint_weights_of(from->checkpoint), p->decl.name, STORE_F32,
		      p->cut.elems, &weights);

	if (!rc)
		rc = check_count("updates", was->updates);

	if (!rc && is_hashed(p)) {
		p->rows->updates = was->updates;
		rc = take_map(p, from);
		rows = p->rows->keys.used;
	}
	if (!rc)
		rc = take_state(p, from, rows);
	if (rc)
		return rc;
	memcpy(p->weights, weights,
	       (is_hashed(p) ? rows * table_dim(p) : p->cut.elems) * sizeof(float));
	publish(p);
	if (is_table(p))
		p->rows->updates = was->updates;
	else
		rc = take_updates(t, p, from, was);
	return rc ? rc : take_applied(t, p, from, was);
}

int restore_param(const struct table *t, struct param *p, const struct source *from,
		  const struct checkpoint_param *was)
{
	float declared;
	int rc;

	if (!was)
		return take_foreign(p, store_find(from->file, p->decl.name));
	rc = check_shape(p, was->decl.ndim, was->decl.dim);
	if (!rc)
		rc = check_storage(p, &was->decl);
	if (!rc)
		rc = check_optimizer(p, &was->decl, &declared);
	if (!rc)
		rc = check_cut(p, was);
	if (!rc)
		rc = take(t, p, from, was);
	if (!rc)
		take_rate(p, was, declared);
	return rc;
}

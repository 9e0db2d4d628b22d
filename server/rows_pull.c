/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows on their way to a trainer that asked for them: gathered into one write.
 */
#include "server/rows.h"

#include <inttypes.h>
#include <string.h>

#include "proto/imm.h"
#include "server/param.h"

enum { AHEAD = 16 }; /* rows of which the first line is fetched before they are copied */

struct gather {
	const struct param *p;
	uint32_t n;
};

static uint64_t row_of(const struct param *p, uint32_t i)
{
	const struct rows *r = p->rows;

	return is_hashed(p) ? r->row[r->position[i]] : (uint64_t)r->ids[i];
}

static const uint8_t *published_row(const struct param *p, uint64_t row)
{
	return (const uint8_t *)p->published + row * row_weight_bytes(p);
}

/* A key that has no row yet is answered with what its row would begin with. */
static void write_initial(const struct param *p, int64_t key, void *to)
{
	float *row = p->rows->batch;

	rows_initial(p, key, row);
	if (p->decl.weight_type == WIRE_F32)
		memcpy(to, row, row_weight_bytes(p));
	else
		kern_narrow(param_weight_type(p), row, to, p->rows->dim);
}

static void fill_rows(const void *arg, void *to)
{
	const struct gather *g = arg;
	uint64_t bytes = row_weight_bytes(g->p);
	uint8_t *at = to;

	for (uint32_t i = 0; i < g->n; i++, at += bytes) {
		uint64_t row = row_of(g->p, i);

		if (i + AHEAD < g->n && row_of(g->p, i + AHEAD) != KEYMAP_NONE)
			__builtin_prefetch(published_row(g->p, row_of(g->p, i + AHEAD)));
		if (row == KEYMAP_NONE)
			write_initial(g->p, g->p->rows->ids[i], at);
		else
			memcpy(at, published_row(g->p, row), bytes);
	}
}

static void fill_key(const void *key, void *to)
{
	memcpy(to, key, sizeof(int64_t));
}

static void answer_rows(struct param *p, struct pull *pull, uint32_t n)
{
	struct gather g = {p, n};

	session_answer_pull(pull, &(struct answer){
				      .offset = p->place.landing_off,
				      .len = n * row_weight_bytes(p),
				      .imm = imm_block(IMM_PULLED, p->place.first_block, 0, false),
				      .fill = fill_rows,
				      .arg = &g,
				  });
}

static void answer_refused(struct param *p, struct pull *pull, int64_t key)
{
	session_answer_pull(
	    pull, &(struct answer){
		      .offset = p->place.landing_off,
		      .len = sizeof(key),
		      .imm = imm_block(IMM_PULLED, p->place.first_block, IMM_REFUSED, false),
		      .fill = fill_key,
		      .arg = &key,
		  });
}

/* Copies the request out of the trainer's reach. True: how many rows it is about, and the table has
 * them all. The poller saw it too, but it may be another one by now. */
static bool take_request(struct param *p, struct session *s, uint32_t *n)
{
	const struct layout_request_head *head = rows_request(p, s);
	int64_t *ids = p->rows->ids;

	*n = __atomic_load_n(&head->rows, __ATOMIC_RELAXED);
	if (*n < 1 || *n > p->decl.pull_rows) {
		session_condemn(s, WIRE_E_PROTOCOL,
				"table \"%s\": a pull of %u rows; must be 1 to pull_rows, %u",
				p->decl.name, *n, p->decl.pull_rows);
		return false;
	}
	memcpy(ids, head + 1, *n * sizeof(*ids));
	for (uint32_t i = 0; i < *n; i++)
		if (!row_exists(p, ids[i])) {
			session_condemn(s, WIRE_E_PROTOCOL,
					"table \"%s\": a pull of row %" PRId64 "; it has %" PRIu64
					" rows",
					p->decl.name, ids[i], p->decl.dim[0]);
			return false;
		}
	return true;
}

/* Each key is touched once, however often it was asked for. */
static int touch_wanted(struct param *p, uint32_t n, int64_t *refused)
{
	struct rows *r = p->rows;

	rowset_clear(&r->wanted);
	rowset_add(&r->wanted, r->ids, n, KERN_F32, NULL, r->position);
	return rows_touch(p, r->wanted.id, r->wanted.n, refused);
}

void rows_pull(struct param *p, struct pull *pull)
{
	int64_t key;
	uint32_t n;

	if (!take_request(p, pull->session, &n))
		session_put(pull->session);
	else if (is_hashed(p) && touch_wanted(p, n, &key))
		answer_refused(p, pull, key);
	else
		answer_rows(p, pull, n);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of some rows of a table. A row is worked on in pieces of a tile; most are shorter than one.
 */
#include "kernels/exact.h"
#include "kernels/step.h"

struct row {
	const float *g;
	float *w, *state[KERN_STATE_MAX];
	size_t at, dim; /* at: its first element in the table */
};

static size_t piece_len(const struct row *r, size_t at)
{
	return r->dim - at < KERN_TILE ? r->dim - at : KERN_TILE;
}

/* The piece of the gradient that begins `at` elements into the row, as the rule sees it. */
static const float *piece(const struct work *k, const struct row *r, size_t at, size_t len,
			  float *tile)
{
	if (!k->adjusts)
		return r->g + at;
	for (size_t i = 0; i < len; i++)
		tile[i] = r->g[at + i];
	work_adjust(k, r->at + at, r->w + at, tile, len);
	return tile;
}

/* For a rule with one number a row. */
static void look_at_row(struct work *k, const struct row *r, float *tile)
{
	double lane[KERN_LANES] = {0};

	for (size_t at = 0, m; at < r->dim; at += m) {
		m = piece_len(r, at);
		k->loops->squares(piece(k, r, at, m, tile), m, lane);
	}
	k->rule->row(k->opt->value, k->step, lanes_sum(lane), r->dim, r->state[0], k->c);
}

static bool apply_row(struct work *k, const struct row *r)
{
	float tile[KERN_TILE] __attribute__((aligned(64)));
	bool odd = k->adjusts && k->loops->nonfinite(KERN_F32, r->g, r->dim);

	if (k->rule->row)
		look_at_row(k, r, tile);
	for (size_t at = 0, m; at < r->dim; at += m) {
		float *state[KERN_STATE_MAX];
		const float *g;

		m = piece_len(r, at);
		for (unsigned i = 0; i < k->arrays; i++)
			state[i] = r->state[i] + at;
		g = piece(k, r, at, m, tile);
		/* Of what was adjusted it says nothing. */
		if (work_update(k, r->at + at, r->w + at, state, g, m) && !k->adjusts)
			odd = true;
	}
	return odd;
}

double kern_norm2_rows(const float *values, size_t n, size_t dim)
{
	const struct kern_loops *loops = kern_loops();
	struct exact sum = {{0}, 0};

	for (size_t i = 0; i < n; i++) {
		double lane[KERN_LANES] = {0};

		loops->squares(values + i * dim, dim, lane);
		exact_add(&sum, lanes_sum(lane));
	}
	return exact_value(&sum);
}

bool kern_apply_rows(const struct kern_opt *opt, const struct kern_step *step, const uint64_t *row,
		     const float *values, size_t n, size_t dim, float *w, float *const *state)
{
	bool odd = false;
	struct work k;

	work_start(&k, opt, step);
	for (size_t i = 0; i < n; i++) {
		struct row r = {
		    .g = values + i * dim,
		    .w = w + row[i] * dim,
		    .at = row[i] * dim,
		    .dim = dim,
		};

		for (unsigned a = 0; a < k.arrays; a++)
			r.state[a] = state[a] + row[i] * kern_opt_row_state(opt, a, dim);
		odd |= apply_row(&k, &r);
	}
	return odd;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a table: pulled by READs, gathered by the server, and pushed, in turn. Which rows is
 * drawn anew each time, outside the clock; how often each was pushed is counted, and the table has
 * to say the same at the end.
 */
#include "perf/loops.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

enum { CHECKED_AT_ONCE = 4096 };

struct rows {
	uint64_t state;   /* of the generator */
	int64_t *id;      /* of this operation */
	float *gradient;  /* of as many rows, all alike */
	uint32_t *pushes; /* of each row of the table, by this trainer */
	uint64_t total;   /* their sum */
};

static uint64_t draw(struct rows *r)
{
	r->state ^= r->state << 13;
	r->state ^= r->state >> 7;
	r->state ^= r->state << 17;
	return r->state;
}

/* The k-th most frequent row comes 1/k times as often as the first (Zipf's law, by the integral of
 * 1/k). Neighbours in frequency are not neighbours in the table. */
static uint64_t draw_zipf(struct rows *r, uint64_t rows)
{
	double u = (double)(draw(r) >> 11) * 0x1p-53;
	uint64_t k = (uint64_t)(exp(u * log((double)rows + 1)) - 1);

	return (k < rows ? k : rows - 1) * 2654435761u % rows;
}

/* Anywhere, by Zipf's law, or one behind the other. */
static void draw_ids(struct rows *r, const struct peer_config *c)
{
	for (uint32_t i = 0; i < c->params; i++) {
		if (c->near && i)
			r->id[i] = (r->id[i - 1] + 1) % (int64_t)c->table;
		else
			r->id[i] = (int64_t)(c->zipf ? draw_zipf(r, c->table) : draw(r) % c->table);
	}
}

/* ---- the table ------------------------------------------------------------------------------ */

static int declare(struct peer *p)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = "bench table";
	d.ndim = 2;
	d.shape[0] = p->config->table;
	d.shape[1] = p->elems;
	d.kind = GS_TABLE;
	d.optimizer = p->config->optimizer;
	d.reduce = GS_SUM;
	gs_setting(&d, "lr", PEER_RATE);
	return peer_lib(gs_declare(p->trainer, &d, &p->param[0]));
}

/* Begins at `first`; as many as are left, up to CHECKED_AT_ONCE. */
static int pull_some(struct peer *p, uint64_t first, int64_t *id, size_t *n, float *to)
{
	for (*n = 0; *n < CHECKED_AT_ONCE && first + *n < p->config->table; (*n)++)
		id[*n] = (int64_t)(first + *n);
	memset(to, 0xff, *n * p->elems * sizeof(*to));
	return peer_lib(gs_pull_rows(p->trainer, p->param[0], id, *n,
				     p->config->sync ? GS_ROWS_READ : GS_ROWS_GATHER, to));
}

static int bad_row(const struct peer *p, uint64_t row, float weight, uint32_t pushes)
{
	return err_set(EBADMSG,
		       "a weight of row %" PRIu64 " is %.9g, after %" PRIu32
		       " gradients of this trainer",
		       row, weight, pushes);
}

/* One row: all of its weights alike, as many gradients as there are in them. Of other rules than
 * sgd all that is known is whether it was touched. */
static int check_row(const struct peer *p, uint64_t row, const float *w, bool alone, double *sum)
{
	const struct rows *r = p->extra;
	uint32_t pushes = r->pushes[row];
	bool sgd = !strcmp(p->config->optimizer, "sgd");

	for (size_t k = 0; k < p->elems; k++) {
		float want = -(float)pushes * PEER_UNIT;

		if (!isfinite(w[k]) || w[k] != w[0] || (pushes && !(w[k] < 0)) ||
		    (alone && !pushes && w[k] != 0) || (alone && sgd && w[k] != want) ||
		    (sgd && w[k] > want))
			return bad_row(p, row, w[k], pushes);
	}
	*sum += sgd ? -(double)w[0] / (double)PEER_UNIT : pushes;
	return 0;
}

static int check_table(struct peer *p, bool alone, uint64_t *total)
{
	int64_t *id = malloc(CHECKED_AT_ONCE * sizeof(*id));
	float *w = malloc(CHECKED_AT_ONCE * p->elems * sizeof(*w));
	double sum = 0;
	int rc = id && w ? 0 : err_set(ENOMEM, "no memory for %d rows", CHECKED_AT_ONCE);
	size_t n = 0;

	for (uint64_t first = 0; first < p->config->table && rc == 0; first += n) {
		rc = pull_some(p, first, id, &n, w);
		for (size_t i = 0; i < n && rc == 0; i++)
			rc = check_row(p, first + i, w + i * p->elems, alone, &sum);
	}
	free(id);
	free(w);
	*total = (uint64_t)sum;
	return rc;
}

static int verify(struct peer *p, struct peer_result *out)
{
	const struct rows *r = p->extra;

	out->pushed = r->total;
	return check_table(p, p->info.trainers == 1, &out->after);
}

/* ---- operations ----------------------------------------------------------------------------- */

static void release(struct peer *p)
{
	struct rows *r = p->extra;

	if (!r)
		return;
	free(r->id);
	free(r->gradient);
	free(r->pushes);
	free(r);
}

static int prepare(struct peer *p)
{
	const struct peer_config *c = p->config;
	struct rows *r = p->extra = calloc(1, sizeof(*r));

	if (r) {
		*r = (struct rows){
		    .state = 88172645463325252u + p->info.rank,
		    .id = malloc(c->params * sizeof(*r->id)),
		    .gradient = malloc(c->params * p->elems * sizeof(float)),
		    .pushes = calloc(c->table, sizeof(*r->pushes)),
		};
	}
	if (!r || !r->id || !r->gradient || !r->pushes)
		return err_set(ENOMEM, "no memory for %" PRIu32 " rows of %" PRIu64, c->params,
			       c->table);
	for (size_t i = 0; i < c->params * p->elems; i++)
		r->gradient[i] = PEER_GRADIENT;
	return 0;
}

/* Until it is applied. */
static int push(struct peer *p, const struct rows *r)
{
	int rc =
	    peer_lib(gs_push_rows(p->trainer, p->param[0], r->id, r->gradient, p->config->params));

	if (rc < 0)
		return rc;
	return peer_lib(p->config->sync ? gs_step_end(p->trainer)
					: gs_wait_applied(p->trainer, p->param[0]));
}

static int count(const struct peer *p, struct rows *r)
{
	uint32_t most = PEER_GRADIENTS_MAX / p->info.trainers;

	for (uint32_t i = 0; i < p->config->params; i++) {
		if (++r->pushes[r->id[i]] > most)
			return err_set(
			    EOVERFLOW,
			    "row %" PRId64 " was pushed more than %" PRIu32
			    " times, which its weights can't count: take fewer --iters, or a "
			    "larger --table",
			    r->id[i], most);
	}
	r->total += p->config->params;
	return 0;
}

static int once(struct peer *p, uint64_t ns[PEER_SERIES])
{
	struct rows *r = p->extra;
	uint32_t n = p->config->params;

	draw_ids(r, p->config);
	uint64_t began = clock_ns();
	int rc =
	    peer_lib(gs_pull_rows(p->trainer, p->param[0], r->id, n, GS_ROWS_READ, p->weights));
	uint64_t read = clock_ns();
	if (rc == 0)
		rc = peer_lib(
		    gs_pull_rows(p->trainer, p->param[0], r->id, n, GS_ROWS_GATHER, p->weights));
	uint64_t gathered = clock_ns();
	if (rc == 0)
		rc = push(p, r);
	uint64_t pushed = clock_ns();

	ns[0] = read - began;
	ns[1] = gathered - read;
	ns[2] = pushed - gathered;
	return rc < 0 ? rc : count(p, r);
}

static uint32_t rows_of(const struct peer_config *c)
{
	return 3 * c->params;
}

static uint64_t moved(const struct peer_config *c)
{
	return 3 * c->bytes * c->params;
}

const struct peer_loop perf_rows = {
    .name = "rows",
    .unit = "rows",
    .count = "rows",
    .series = {"read", "gather", "push"},
    .declare = declare,
    .prepare = prepare,
    .once = once,
    .verify = verify,
    .release = release,
    .messages = rows_of,
    .moved = moved,
};

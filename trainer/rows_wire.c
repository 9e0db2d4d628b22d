/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows read over a network, one-sided. Rows that follow one another in the table, within a block,
 * and are asked for in that order, are one READ (a *run*). All runs of a batch are under way at
 * once; where weights may change meanwhile the version words of their blocks are read before all of
 * them and after all of them, with two fences in between: a run is whole if both say the same even
 * number. All take the table's rail: a fence holds within one alone.
 */
#include "trainer/trainer.h"

struct run {
	size_t first, n; /* of the ids */
};

struct batch {
	gs_param *p;
	const int64_t *ids;
	size_t n;
	bool checked; /* with version words */
};

/* The run that begins at ids[at]. */
static struct run run_at(const struct batch *b, size_t at)
{
	uint32_t block = param_row_block(b->p, b->ids[at]);
	struct run run = {at, 1};

	while (at + run.n < b->n && b->ids[at + run.n] == b->ids[at] + (int64_t)run.n &&
	       param_row_block(b->p, b->ids[at + run.n]) == block)
		run.n++;
	return run;
}

uint64_t rows_count_reads(gs_param *p, const int64_t *ids, size_t n, bool still)
{
	struct batch b = {p, ids, n, !still};
	uint64_t runs = 0;

	for (size_t at = 0; at < n; at += run_at(&b, at).n)
		runs++;
	return still ? runs : 3 * runs;
}

/* Two words for each run, at its first id's place: before and after. Odd: not read. */
static uint64_t *versions(const struct batch *b, const struct run *run)
{
	return b->p->row_versions + 2 * run->first;
}

static bool is_whole(const struct batch *b, const struct run *run)
{
	const uint64_t *v = versions(b, run);

	return v[0] == v[1] && v[0] % 2 == 0;
}

static void forget(const struct batch *b, const struct run *run)
{
	versions(b, run)[0] = versions(b, run)[1] = 1;
}

/* ---- reads ----------------------------------------------------------------------------------- */

static struct tp_op read_rows(const struct batch *b, const struct run *run)
{
	gs_param *p = b->p;
	uint64_t row = param_row_bytes(p);

	return (struct tp_op){
	    .kind = TP_OP_READ,
	    .flags = TP_F_SIGNAL,
	    .local = param_landing(p) + run->first * row,
	    .region = p->t->link.landing_region,
	    .remote = p->t->link.weights,
	    .offset = p->weights_off + (uint64_t)b->ids[run->first] * row,
	    .len = run->n * row,
	    .cookie = (uintptr_t)p,
	};
}

static struct tp_op read_version(const struct batch *b, const struct run *run, int which)
{
	gs_param *p = b->p;

	return (struct tp_op){
	    .kind = TP_OP_READ,
	    .flags = TP_F_SIGNAL,
	    .local = versions(b, run) + which,
	    .region = p->t->link.local_region,
	    .remote = p->t->link.weights,
	    .offset = layout_version_off(param_row_block(p, b->ids[run->first])),
	    .len = sizeof(uint64_t),
	    .cookie = (uintptr_t)p,
	};
}

enum pass { BEFORE, ROWS, AFTER };

/* Of every run that is not whole. The first one waits for the pass before: the NIC keeps the order.
 */
static int post_pass(struct chain *chain, const struct batch *b, enum pass pass)
{
	unsigned fence = pass == BEFORE || !b->checked ? 0 : TP_F_FENCE;
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < b->n;) {
		struct run run = run_at(b, at);
		struct tp_op op =
		    pass == ROWS ? read_rows(b, &run) : read_version(b, &run, pass == AFTER);

		at += run.n;
		if (b->checked && is_whole(b, &run))
			continue;
		op.flags |= fence;
		op.rail = trainer_rail(b->p->t, b->p->first_block);
		fence = 0;
		b->p->pull_left++;
		rc = chain_add(chain, &op);
	}
	return rc;
}

/* With the lock. */
static int read_once(const struct batch *b)
{
	struct pull pull = {.param = (gs_param *const *)&b->p, .n = 1};
	struct chain chain = {.t = b->p->t};
	int rc = b->checked ? post_pass(&chain, b, BEFORE) : 0;

	if (rc == 0)
		rc = post_pass(&chain, b, ROWS);
	if (rc == 0 && b->checked)
		rc = post_pass(&chain, b, AFTER);
	if (rc == 0)
		rc = chain_flush(&chain);
	return rc < 0 ? rc : pull_wait(b->p->t, &pull);
}

/* ---- what is whole, and what is not ---------------------------------------------------------- */

/* Forgets what is not whole, for the next try; how many runs those are. */
static uint32_t forget_torn(const struct batch *b)
{
	uint32_t torn = 0;

	for (size_t at = 0; at < b->n;) {
		struct run run = run_at(b, at);

		at += run.n;
		if (is_whole(b, &run))
			continue;
		forget(b, &run);
		torn++;
	}
	return torn;
}

static int read_checked(const struct batch *b)
{
	uint32_t torn = 1;
	int rc = 0;

	for (size_t at = 0; at < b->n; at += run_at(b, at).n) {
		struct run run = run_at(b, at);

		forget(b, &run);
	}
	for (int try = 0; rc == 0 && torn > 0 && try < PULL_TRIES; try++) {
		rc = read_once(b);
		torn = rc < 0 ? 0 : forget_torn(b);
	}
	return rc;
}

/* The landing area is an answer's as well: what was read is copied out of it before anything is
 * asked for. */
static int ask_for_torn(const struct batch *b, uint8_t *dst)
{
	uint64_t row = param_row_bytes(b->p);
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < b->n;) {
		struct run run = run_at(b, at);

		if (!is_whole(b, &run))
			rc = rows_gather(b->p, b->ids + at, (uint32_t)run.n, dst + at * row);
		at += run.n;
	}
	return rc;
}

int rows_read_wire(gs_param *p, const int64_t *ids, uint32_t n, bool still, void *dst)
{
	struct batch b = {p, ids, n, !still};

	pthread_mutex_lock(&p->t->lock);
	int rc = still ? read_once(&b) : read_checked(&b);
	pthread_mutex_unlock(&p->t->lock);
	if (rc < 0)
		return rc;
	memcpy(dst, param_landing(p), n * param_row_bytes(p));
	return still ? 0 : ask_for_torn(&b, dst);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Relaxed reads over a network, in as few READs as there need be: a READ costs both sides something
 * of its own, whatever its length. Parameters that are neighbours, in the list and in memory, make
 * a *run*, which is read like one; what is long is read in pieces, all of them under way at once,
 * and a piece that landed where it has to be copied out is, while those behind it are still coming.
 * A parameter that is read straight to where it is wanted is a run of its own.
 *
 * Of one rail READs end in the order in which they were posted: so counting is enough to know which pieces
 * are there. Of several, a parameter's blocks are read by theirs, and all is waited for; a run of several
 * parameters takes its first block's. A run's READs are counted at its first parameter.
 */
#include "trainer/trainer.h"

/* Long enough that what a READ costs beside its bytes is little, short enough that copying the last
 * one, which nothing hides, is too. Nothing is copied of what is read straight. */
#define PIECE_BYTES    (UINT64_C(128) << 10)
#define STRAIGHT_BYTES (UINT64_C(1) << 20)

/* Parameters first .. end-1 of the list. */
struct run {
	uint32_t first, end;
	uint64_t bytes, piece;
};

/* b is right behind a: in the server's weights, in the landing area, and in the order of blocks. */
static bool follows(const gs_param *a, const gs_param *b)
{
	uint64_t step = layout_align(param_weight_bytes(a), LAYOUT_ALIGN);

	return b->first_block == a->first_block + a->blocks &&
	       b->weights_off == a->weights_off + step && b->landing_off == a->landing_off + step &&
	       !param_reads_straight(b);
}

static struct run run_at(const struct pull *pull, uint32_t first)
{
	const gs_param *p = pull->param[first];
	struct run run = {first, first + 1, param_weight_bytes(p), PIECE_BYTES};

	if (param_reads_straight(p)) {
		run.piece = STRAIGHT_BYTES;
		return run;
	}
	for (; run.end < pull->n; run.end++) {
		const gs_param *next = pull->param[run.end];
		uint64_t bytes = next->weights_off - p->weights_off + param_weight_bytes(next);

		if (!follows(pull->param[run.end - 1], next) || bytes > PIECE_BYTES)
			break;
		run.bytes = bytes;
	}
	return run;
}

/* ---- posting --------------------------------------------------------------------------------- */

static uint64_t piece_len(const struct run *run, uint64_t at)
{
	return run->bytes - at < run->piece ? run->bytes - at : run->piece;
}

/* Parameters from `at` on whose version words are one READ: a run's, which has to see them on its rail;
 * of one rail, all whose blocks follow one another. */
static uint32_t words_end(const struct pull *pull, uint32_t at)
{
	uint32_t end = run_at(pull, at).end;

	if (pull->param[at]->t->link.rails > 1)
		return end;
	while (end < pull->n && pull->param[end]->first_block ==
				    pull->param[end - 1]->first_block + pull->param[end - 1]->blocks)
		end++;
	return end;
}

/* Of each parameter the first block's counts; all blocks that lie between are of parameters that this pull
 * has taken. */
static int read_words(struct chain *chain, const struct pull *pull)
{
	int rc = 0;

	for (uint32_t k = 0, end; rc == 0 && k < pull->n; k = end) {
		gs_param *p = pull->param[k];

		end = words_end(pull, k);
		rc = pull_read_words(chain, p, p->first_block,
				     pull->param[end - 1]->first_block + 1, PULL_BEFORE, 0);
	}
	return rc;
}

static int read_run(struct chain *chain, const struct pull *pull, const struct run *run)
{
	gs_param *p = pull->param[run->first];

	if (run->end > run->first + 1)
		return pull_read_bytes(chain, p, 0, run->bytes, trainer_rail(p->t, p->first_block), 0);
	return pull_read_blocks(chain, p, 0, p->blocks, run->piece);
}

static int read_all(gs_trainer *t, const struct pull *pull)
{
	struct chain chain;
	struct run run;
	int rc = 0;

	chain_begin(&chain, t);
	/* Before all data. In sync mode no gradient is old. */
	if (!trainer_is_sync(t))
		rc = read_words(&chain, pull);
	for (uint32_t k = 0; rc == 0 && k < pull->n; k = run.end) {
		run = run_at(pull, k);
		rc = read_run(&chain, pull, &run);
	}
	return rc < 0 ? rc : chain_flush(&chain);
}

/* ---- taking ---------------------------------------------------------------------------------- */

struct awaited {
	const gs_param *p;
	uint64_t left;
};

static bool has_come(gs_trainer *t, void *arg)
{
	const struct awaited *a = arg;

	return a->p->pull_left <= a->left;
}

static void take_piece(const struct pull *pull, const struct run *run, uint64_t at)
{
	if (run->end == run->first + 1)
		pull_take(pull, run->first, at, piece_len(run, at));
	for (uint32_t k = run->first; run->end > run->first + 1 && k < run->end; k++)
		pull_take(pull, k, 0, param_weight_bytes(pull->param[k]));
}

/* Each piece when it is there, without the lock: those behind it come meanwhile. */
static int take_run(gs_trainer *t, const struct pull *pull, const struct run *run)
{
	uint64_t behind = t->link.rails == 1 ? (run->bytes - 1) / run->piece : 0;
	struct awaited a = {pull->param[run->first], behind};
	int rc = 0;

	if (param_reads_straight(a.p))
		return 0;
	for (uint64_t at = 0; rc == 0 && at < run->bytes; at += run->piece, a.left -= a.left > 0) {
		rc = trainer_wait(t, has_come, &a, 0, "weights");
		pthread_mutex_unlock(&t->lock);
		if (rc == 0)
			take_piece(pull, run, at);
		pthread_mutex_lock(&t->lock);
	}
	return rc;
}

int pull_runs(gs_trainer *t, struct pull *pull)
{
	int rc = pull_begin(t, pull);
	struct run run;

	if (rc < 0)
		return rc;
	lend_targets(t, pull);
	rc = read_all(t, pull);
	for (uint32_t k = 0; rc == 0 && k < pull->n; k = run.end) {
		run = run_at(pull, k);
		rc = take_run(t, pull, &run);
	}
	if (rc == 0)
		rc = pull_wait(t, pull);
	if (rc == 0 && !trainer_is_sync(t))
		pull_note_seen(pull);
	pull_end(t, pull);
	return rc;
}

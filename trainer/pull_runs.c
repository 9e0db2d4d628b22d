/* SPDX-License-Identifier: Apache-2.0
 *
 * Relaxed reads over a network, in as few READs as there need be: a READ costs both sides something
 * of its own, whatever its length. Parameters that are neighbours, in the list and in memory, make
 * a *run*, which is read like one; what is long is read in pieces, all of them under way at once,
 * and a piece is copied out while those behind it are still coming.
 *
 * All READs of a run take one rail, where they end in the order in which they were posted: so counting is
 * enough to know which pieces are there. A run's READs are counted at its first parameter.
 */
#include "trainer/trainer.h"

#include <string.h>

/* Long enough that what a READ costs beside its bytes is little, short enough that copying the last
 * one, which nothing hides, is too. */
#define PIECE_BYTES (UINT64_C(128) << 10)

/* Parameters first .. end-1 of the list. */
struct run {
	uint32_t first, end;
	uint64_t bytes;
};

static uint64_t weight_bytes(const gs_param *p)
{
	return p->weight_size * p->elems;
}

/* b is right behind a: in the server's weights, in the landing area, and in the order of blocks. */
static bool follows(const gs_param *a, const gs_param *b)
{
	uint64_t step = layout_align(weight_bytes(a), LAYOUT_ALIGN);

	return b->first_block == a->first_block + a->blocks &&
	       b->weights_off == a->weights_off + step && b->landing_off == a->landing_off + step;
}

static struct run run_at(const struct pull *pull, uint32_t first)
{
	const gs_param *p = pull->param[first];
	struct run run = {first, first + 1, weight_bytes(p)};

	for (; run.end < pull->n; run.end++) {
		const gs_param *next = pull->param[run.end];
		uint64_t bytes = next->weights_off - p->weights_off + weight_bytes(next);

		if (!follows(pull->param[run.end - 1], next) || bytes > PIECE_BYTES)
			break;
		run.bytes = bytes;
	}
	return run;
}

/* ---- posting --------------------------------------------------------------------------------- */

static int add(struct chain *chain, gs_param *p, struct tp_op op)
{
	op.kind = TP_OP_READ;
	op.flags = TP_F_SIGNAL;
	op.remote = p->t->link.weights;
	op.cookie = (uintptr_t)p;
	op.rail = trainer_rail(p->t, p->first_block);
	p->pull_left++;
	return chain_add(chain, &op);
}

/* The version words of the run's parameters, of which the first block's counts. All blocks that
 * lie between are of parameters that this pull has taken. */
static int read_words(struct chain *chain, const struct pull *pull, const struct run *run)
{
	gs_param *p = pull->param[run->first];
	const gs_param *last = pull->param[run->end - 1];

	return add(chain, p,
		   (struct tp_op){
		       .local = pull_scratch(p->t, p->first_block, PULL_BEFORE),
		       .region = p->t->link.local_region,
		       .offset = layout_version_off(p->first_block),
		       .len = (last->first_block - p->first_block + 1) * sizeof(uint64_t),
		   });
}

static uint64_t piece_len(const struct run *run, uint64_t at)
{
	return run->bytes - at < PIECE_BYTES ? run->bytes - at : PIECE_BYTES;
}

static int read_run(struct chain *chain, const struct pull *pull, const struct run *run)
{
	gs_param *p = pull->param[run->first];
	/* In sync mode no gradient is old. */
	int rc = trainer_is_sync(p->t) ? 0 : read_words(chain, pull, run);

	for (uint64_t at = 0; rc == 0 && at < run->bytes; at += PIECE_BYTES)
		rc = add(chain, p,
			 (struct tp_op){
			     .local = param_landing(p) + at,
			     .region = p->t->link.landing_region,
			     .offset = p->weights_off + at,
			     .len = piece_len(run, at),
			 });
	return rc;
}

static int read_all(gs_trainer *t, const struct pull *pull)
{
	struct chain chain;
	struct run run;
	int rc = 0;

	chain_begin(&chain, t);
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

/* A word was read before its data: an age that is counted from it is never too small. */
static void note_seen(const struct pull *pull, const struct run *run)
{
	for (uint32_t k = run->first; k < run->end; k++) {
		gs_param *p = pull->param[k];

		p->seen = 1 + *pull_scratch(p->t, p->first_block, PULL_BEFORE) / 2;
	}
}

static void copy_piece(const struct pull *pull, const struct run *run, uint64_t at)
{
	const gs_param *p = pull->param[run->first];

	if (run->end == run->first + 1) {
		memcpy((uint8_t *)pull->dst[run->first] + at, param_landing(p) + at,
		       piece_len(run, at));
		return;
	}
	for (uint32_t k = run->first; k < run->end; k++)
		memcpy(pull->dst[k], param_landing(pull->param[k]), weight_bytes(pull->param[k]));
}

/* Each piece when it is there, without the lock: those behind it come meanwhile. */
static int take_run(gs_trainer *t, const struct pull *pull, const struct run *run)
{
	struct awaited a = {pull->param[run->first], (run->bytes - 1) / PIECE_BYTES};
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && at < run->bytes; at += PIECE_BYTES, a.left--) {
		rc = trainer_wait(t, has_come, &a, 0, "weights");
		if (rc == 0 && at == 0 && !trainer_is_sync(t))
			note_seen(pull, run);
		pthread_mutex_unlock(&t->lock);
		if (rc == 0)
			copy_piece(pull, run, at);
		pthread_mutex_lock(&t->lock);
	}
	return rc;
}

int pull_runs(gs_trainer *t, const struct pull *pull)
{
	int rc = pull_begin(t, pull);
	struct run run;

	if (rc < 0)
		return rc;
	rc = read_all(t, pull);
	for (uint32_t k = 0; rc == 0 && k < pull->n; k = run.end) {
		run = run_at(pull, k);
		rc = take_run(t, pull, &run);
	}
	pull_end(t, pull);
	return rc;
}

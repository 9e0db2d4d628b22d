/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_step_pull over a network. It goes in rounds: the version words of what may have moved are
 * read, then, in one chain, the blocks that have and the version words again. What came in one
 * round is copied to where it is wanted while the next is under way. A READ begins after the one
 * that told of the block has ended, so it sees what the word stands for.
 */
#include "trainer/step_pull.h"

#include <string.h>

#include "base/clock.h"

/* A round in which nothing has moved is followed by a pause, each twice as long as the one before.
 */
#define PAUSE_NS     (16 * NS_PER_US)
#define PAUSE_MAX_NS (1024 * NS_PER_US)
/* Of one READ. */
#define READ_BYTES (UINT64_C(1) << 20)

/* ---- READs ----------------------------------------------------------------------------------- */

static bool wants_words(const struct step_pull *r, const gs_param *p, bool rest)
{
	return rest || step_pull_may_move(r, p);
}

/* Version words of parameters whose blocks follow one another, in one READ. */
static int read_words(struct step_pull *r, struct chain *chain, bool rest)
{
	const struct pull *pull = &r->pull;
	int rc = 0;

	for (uint32_t k = rest ? 0 : r->first; rc == 0 && k < pull->n; k++) {
		gs_param *p = pull->param[k];
		uint32_t end = p->first_block + p->blocks;

		if (!wants_words(r, p, rest))
			continue;
		while (k + 1 < pull->n && pull->param[k + 1]->first_block == end &&
		       wants_words(r, pull->param[k + 1], rest))
			end += pull->param[++k]->blocks;
		rc = pull_read_words(chain, p, p->first_block, end, PULL_BEFORE, 0);
	}
	return rc;
}

/* Blocks up to `end`. */
static int read_blocks(struct chain *chain, gs_param *p, uint32_t end)
{
	uint32_t first = p->pulled;

	p->pulled = end;
	return pull_read_blocks(chain, p, first, end, READ_BYTES);
}

/* Those that the words which were read last tell of. The number of READs, or an error. */
static int read_moved(struct step_pull *r, struct chain *chain)
{
	int rc = 0, n = 0;

	for (uint32_t k = r->first; rc == 0 && k < r->pull.n; k++) {
		gs_param *p = r->pull.param[k];
		const uint64_t *word = pull_words(p);
		uint32_t end = p->pulled;

		if (!step_pull_may_move(r, p))
			continue;
		while (end < p->blocks && step_pull_has_moved(p, end, word[end]))
			end++;
		n += end > p->pulled;
		rc = read_blocks(chain, p, end);
	}
	return rc < 0 ? rc : n;
}

/* ---- what came ------------------------------------------------------------------------------- */

/* Blocks whose READs have ended. */
static void note_landed(struct step_pull *r)
{
	for (uint32_t k = 0; k < r->pull.n; k++)
		r->pull.param[k]->landed = r->pull.param[k]->pulled;
}

/* Copies those of them that are not where they are wanted; lets go of the lock meanwhile. */
static void copy_landed(struct step_pull *r)
{
	pthread_mutex_unlock(&r->t->lock);
	for (uint32_t k = 0; k < r->pull.n; k++) {
		gs_param *p = r->pull.param[k];
		uint64_t at = block_at(p, p->copied);

		if (p->copied == p->landed)
			continue;
		pull_take(&r->pull, k, at, block_at(p, p->landed) - at);
		p->copied = p->landed;
	}
	pthread_mutex_lock(&r->t->lock);
}

/* Sends the chain; meanwhile copies what came before. */
static int finish_round(struct step_pull *r, struct chain *chain)
{
	int rc = chain_flush(chain);

	if (rc < 0)
		return rc;
	copy_landed(r);
	rc = pull_wait(r->t, &r->pull);
	if (rc == 0)
		note_landed(r);
	return rc;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int first_words(struct step_pull *r)
{
	struct chain chain = {.t = r->t};
	int rc = read_words(r, &chain, false);

	return rc < 0 ? rc : finish_round(r, &chain);
}

/* The number of blocks' runs that had moved, or an error. */
static int one_round(struct step_pull *r)
{
	struct chain chain = {.t = r->t};
	int n = read_moved(r, &chain);
	int rc = n < 0 ? n : read_words(r, &chain, false);

	if (rc == 0)
		rc = finish_round(r, &chain);
	return rc < 0 ? rc : n;
}

int step_wire_ahead(struct step_pull *r)
{
	uint64_t pause = PAUSE_NS;
	int rc = 0;

	if (step_pull_skip_done(r))
		rc = first_words(r);
	while (rc == 0 && !step_pull_over(r) && step_pull_skip_done(r)) {
		rc = one_round(r);
		if (rc > 0) {
			step_pull_moved(r);
			pause = PAUSE_NS;
			rc = 0;
		} else if (rc == 0) {
			rc = step_pull_pause(r, pause);
			pause = pause < PAUSE_MAX_NS ? 2 * pause : PAUSE_MAX_NS;
		}
	}
	return rc;
}

int step_wire_rest(struct step_pull *r)
{
	struct chain chain = {.t = r->t};
	int rc = 0;

	for (uint32_t k = 0; rc == 0 && k < r->pull.n; k++)
		rc = read_blocks(&chain, r->pull.param[k], r->pull.param[k]->blocks);
	if (rc == 0)
		rc = read_words(r, &chain, true);
	if (rc == 0)
		rc = finish_round(r, &chain);
	if (rc < 0)
		return rc;
	for (uint32_t k = 0; k < r->pull.n; k++) {
		gs_param *p = r->pull.param[k];

		memcpy(r->t->link.base + p->first_block, pull_words(p),
		       p->blocks * sizeof(uint64_t));
		p->base_step = r->step + 1;
	}
	copy_landed(r);
	return 0;
}

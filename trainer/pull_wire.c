/* SPDX-License-Identifier: Apache-2.0
 *
 * Consistent reads over a network, block by block: a block's READs take its rail. Relaxed ones are
 * pull_runs.c's.
 */
#include "trainer/trainer.h"

/* ---- consistent ------------------------------------------------------------------------------ */

/* The fences make the NIC, not this CPU, keep the order: a READ begins when those before it ended.
 */
static int read_checked(struct chain *chain, gs_param *p, uint32_t i)
{
	uint32_t block = p->first_block + i;
	int rc = pull_read_words(chain, p, block, block + 1, PULL_BEFORE, 0);

	if (rc == 0)
		rc = pull_read_bytes(chain, p, block_at(p, i), block_at(p, i + 1) - block_at(p, i),
				     trainer_rail(p->t, block), TP_F_FENCE);
	if (rc == 0)
		rc = pull_read_words(chain, p, block, block + 1, PULL_AFTER, TP_F_FENCE);
	return rc;
}

static bool is_whole(gs_param *p, uint32_t i)
{
	uint64_t before = *pull_scratch(p->t, p->first_block + i, PULL_BEFORE);

	return before == *pull_scratch(p->t, p->first_block + i, PULL_AFTER) && before % 2 == 0;
}

static void forget(gs_param *p)
{
	for (uint32_t i = 0; i < p->blocks; i++)
		*pull_scratch(p->t, p->first_block + i, PULL_BEFORE) = 1; /* odd: not whole */
}

/* One round of the blocks that are not whole yet. How many those were, or an error. */
static int read_round(gs_trainer *t, const struct pull *pull)
{
	struct chain chain = {.t = t};
	int rc = 0, n = 0;

	for (uint32_t k = 0; rc == 0 && k < pull->n; k++) {
		gs_param *p = pull->param[k];

		for (uint32_t i = 0; rc == 0 && i < p->blocks; i++) {
			if (is_whole(p, i))
				continue;
			rc = read_checked(&chain, p, i);
			n++;
		}
	}
	if (rc == 0 && n > 0)
		rc = chain_flush(&chain);
	if (rc == 0)
		rc = pull_wait(t, pull);
	return rc < 0 ? rc : n;
}

static int ask_for_the_rest(gs_trainer *t, const struct pull *pull)
{
	int rc = 0;

	for (uint32_t k = 0; rc == 0 && k < pull->n; k++) {
		gs_param *p = pull->param[k];

		for (uint32_t i = 0; rc == 0 && i < p->blocks; i++) {
			if (!is_whole(p, i))
				rc = pull_queue_ask(p, i, i + 1);
		}
	}
	return rc < 0 ? rc : pull_wait(t, pull);
}

/* What is not where it is wanted. The queue's answers land in the landing area always. */
static void take_blocks(const struct pull *pull, uint32_t k)
{
	gs_param *p = pull->param[k];

	pull_take(pull, k, 0, param_weight_bytes(p));
	for (uint32_t i = 0; param_reads_straight(p) && i < p->blocks; i++) {
		uint64_t at = block_at(p, i);

		if (!is_whole(p, i))
			pull_copy(pull, (uint8_t *)pull->dst[k] + at, param_landing(p) + at,
				  block_at(p, i + 1) - at);
	}
}

static int read_blocks(gs_trainer *t, const struct pull *pull)
{
	int rc = 1;

	for (uint32_t k = 0; k < pull->n; k++)
		forget(pull->param[k]);
	for (int try = 0; rc > 0 && try < PULL_TRIES; try++)
		rc = read_round(t, pull);
	if (rc == 0)
		pull_note_seen(pull);
	return rc > 0 ? ask_for_the_rest(t, pull) : rc;
}

int pull_wire_consistent(gs_trainer *t, struct pull *pull)
{
	int rc = pull_begin(t, pull);

	if (rc < 0)
		return rc;
	lend_targets(t, pull);
	rc = read_blocks(t, pull);
	trainer_exit(t);
	for (uint32_t k = 0; rc == 0 && k < pull->n; k++)
		take_blocks(pull, k);
	pthread_mutex_lock(&t->lock);
	pull_end(t, pull);
	return rc;
}

int pull_wire_version(gs_param *p, uint32_t block, uint64_t *word)
{
	gs_trainer *t = p->t;
	struct pull pull = {.param = &p, .n = 1};
	struct chain chain = {.t = t};
	int rc = pull_begin(t, &pull);

	if (rc < 0)
		return rc;
	rc = pull_read_words(&chain, p, block, block + 1, PULL_BEFORE, 0);
	if (rc == 0)
		rc = chain_flush(&chain);
	if (rc == 0)
		rc = pull_wait(t, &pull);
	if (rc == 0)
		*word = *pull_scratch(t, block, PULL_BEFORE);
	pull_end(t, &pull);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided reads over a network. Data lands where it would in an ordered pull (the mailbox's
 * landing area is registered memory of the right shape, and one pull at a time uses a parameter's
 * part of it) and is copied out from there. Version words land in the local arena: of all blocks, those
 * from before, then those from after. Relaxed reads are pull_runs.c's.
 *
 * Every READ is signalled: only its completion says that its bytes are there. A block's READs, version
 * words included, take its rail.
 */
#include "trainer/trainer.h"

/* Blocks i .. end-1. */
static struct tp_op read_data(gs_param *p, uint32_t i, uint32_t end, unsigned flags)
{
	gs_trainer *t = p->t;
	uint64_t at = block_first_elem(p, i) * p->weight_size;
	uint64_t to = end < p->blocks ? block_first_elem(p, end) : p->elems;

	return (struct tp_op){
	    .kind = TP_OP_READ,
	    .flags = TP_F_SIGNAL | flags,
	    .local = param_landing(p) + at,
	    .region = t->link.landing_region,
	    .remote = t->link.weights,
	    .offset = p->weights_off + at,
	    .len = to * p->weight_size - at,
	    .cookie = (uintptr_t)p,
	    .rail = trainer_rail(t, p->first_block + i),
	};
}

static struct tp_op read_version(gs_param *p, uint32_t block, enum pull_scratch which, unsigned flags)
{
	gs_trainer *t = p->t;

	return (struct tp_op){
	    .kind = TP_OP_READ,
	    .flags = TP_F_SIGNAL | flags,
	    .local = pull_scratch(t, block, which),
	    .region = t->link.local_region,
	    .remote = t->link.weights,
	    .offset = layout_version_off(block),
	    .len = 8,
	    .cookie = (uintptr_t)p,
	    .rail = trainer_rail(t, block),
	};
}

static int add(struct chain *chain, gs_param *p, struct tp_op op)
{
	p->pull_left++;
	return chain_add(chain, &op);
}

static void note_seen(const struct pull *pull)
{
	for (uint32_t i = 0; i < pull->n; i++) {
		gs_param *p = pull->param[i];

		p->seen = 1 + *pull_scratch(p->t, p->first_block, PULL_BEFORE) / 2;
	}
}

int pull_read_blocks(struct chain *chain, gs_param *p, uint32_t first, uint32_t end)
{
	struct tp_op op = read_data(p, first, end, 0);

	/* One rail for all of a parameter's: they have to end in their order. */
	op.rail = trainer_rail(p->t, p->first_block);
	return add(chain, p, op);
}

int pull_read_words(struct chain *chain, gs_param *p, uint32_t first, uint32_t end)
{
	struct tp_op op = read_version(p, first, PULL_BEFORE, 0);

	op.rail = trainer_rail(p->t, p->first_block);
	op.len = (end - first) * sizeof(uint64_t);
	return add(chain, p, op);
}

const uint64_t *pull_words(const gs_param *p)
{
	return pull_scratch(p->t, p->first_block, PULL_BEFORE);
}

/* ---- consistent ------------------------------------------------------------------------------ */

/* The fences make the NIC, not this CPU, keep the order: a READ begins when those before it ended.
 */
static int read_checked(struct chain *chain, gs_param *p, uint32_t i)
{
	uint32_t block = p->first_block + i;
	int rc = add(chain, p, read_version(p, block, PULL_BEFORE, 0));

	if (rc == 0)
		rc = add(chain, p, read_data(p, i, i + 1, TP_F_FENCE));
	if (rc == 0)
		rc = add(chain, p, read_version(p, block, PULL_AFTER, TP_F_FENCE));
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

int pull_wire_consistent(gs_trainer *t, const struct pull *pull)
{
	int rc = pull_begin(t, pull);

	if (rc < 0)
		return rc;
	for (uint32_t k = 0; k < pull->n; k++)
		forget(pull->param[k]);
	rc = 1;
	for (int try = 0; rc > 0 && try < PULL_TRIES; try++)
		rc = read_round(t, pull);
	if (rc == 0)
		note_seen(pull);
	if (rc > 0)
		rc = ask_for_the_rest(t, pull);
	return pull_finish(t, pull, rc);
}

int pull_wire_version(gs_param *p, uint32_t block, uint64_t *word)
{
	gs_trainer *t = p->t;
	struct pull pull = {.param = &p, .n = 1};
	struct chain chain = {.t = t};
	int rc = pull_begin(t, &pull);

	if (rc < 0)
		return rc;
	rc = add(&chain, p, read_version(p, block, PULL_BEFORE, 0));
	if (rc == 0)
		rc = chain_flush(&chain);
	if (rc == 0)
		rc = pull_wait(t, &pull);
	if (rc == 0)
		*word = *pull_scratch(t, block, PULL_BEFORE);
	pull_end(t, &pull);
	return rc;
}

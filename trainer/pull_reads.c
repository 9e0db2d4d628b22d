/* SPDX-License-Identifier: Apache-2.0
 *
 * READs of weights over a network, and where they land: in the mailbox's landing area (registered memory
 * of the right shape, of which one pull at a time uses a parameter's part), to be copied from there; or
 * straight where the program wants them (lend.c). Version words land in the local arena: of all blocks,
 * those from before, then those from after.
 *
 * Every READ is signalled, and counted at a parameter: only its completion says that its bytes are there.
 * Of one rail they end in the order in which they were posted.
 */
#include "trainer/trainer.h"

static int add(struct chain *chain, gs_param *p, struct tp_op op)
{
	op.kind = TP_OP_READ;
	op.flags |= TP_F_SIGNAL;
	op.remote = p->t->link.weights;
	op.cookie = (uintptr_t)p;
	p->pull_left++;
	return chain_add(chain, &op);
}

int pull_read_bytes(struct chain *chain, gs_param *p, uint64_t at, uint64_t len, uint8_t rail,
		    unsigned flags)
{
	return add(chain, p,
		   (struct tp_op){
		       .flags = flags,
		       .local = p->read_to + at,
		       .region = p->read_region,
		       .offset = p->weights_off + at,
		       .len = len,
		       .rail = rail,
		   });
}

static int read_in_pieces(struct chain *chain, gs_param *p, uint64_t at, uint64_t end, uint64_t piece,
			  uint8_t rail)
{
	int rc = 0;

	for (; rc == 0 && at < end; at += piece)
		rc = pull_read_bytes(chain, p, at, end - at < piece ? end - at : piece, rail, 0);
	return rc;
}

/* Rail by rail, so that each gets its own as one chain. */
int pull_read_blocks(struct chain *chain, gs_param *p, uint32_t first, uint32_t end, uint64_t piece)
{
	uint32_t rails = p->t->link.rails;
	int rc = 0;

	if (rails == 1)
		return read_in_pieces(chain, p, block_at(p, first), block_at(p, end), piece, 0);
	for (uint32_t k = 0; k < rails; k++) {
		for (uint32_t i = first + k; rc == 0 && i < end; i += rails)
			rc = read_in_pieces(chain, p, block_at(p, i), block_at(p, i + 1), piece,
					    trainer_rail(p->t, p->first_block + i));
	}
	return rc;
}

int pull_read_words(struct chain *chain, gs_param *p, uint32_t first, uint32_t end,
		    enum pull_scratch which, unsigned flags)
{
	gs_trainer *t = p->t;

	return add(chain, p,
		   (struct tp_op){
		       .flags = flags,
		       .local = pull_scratch(t, first, which),
		       .region = t->link.local_region,
		       .offset = layout_version_off(first),
		       .len = (end - first) * sizeof(uint64_t),
		       .rail = trainer_rail(t, first),
		   });
}

const uint64_t *pull_words(const gs_param *p)
{
	return pull_scratch(p->t, p->first_block, PULL_BEFORE);
}

/* A word was read before its data: an age that is counted from it is never too small. */
void pull_note_seen(const struct pull *pull)
{
	for (uint32_t k = 0; k < pull->n; k++)
		pull->param[k]->seen = 1 + pull_words(pull->param[k])[0] / 2;
}

void pull_take(const struct pull *pull, uint32_t k, uint64_t at, uint64_t len)
{
	const gs_param *p = pull->param[k];

	if (!param_reads_straight(p))
		pull_copy(pull, (uint8_t *)pull->dst[k] + at, param_landing(p) + at, len);
}

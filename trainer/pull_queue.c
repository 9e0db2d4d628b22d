/* SPDX-License-Identifier: Apache-2.0
 *
 * Ordered pulls: the server is asked, block by block, in the order in which gradients go; it writes
 * the weights into the landing area once it gets there. A block that is updated by itself is asked for
 * behind its gradient, by the same rail. One that is updated with all of its parameter has to wait for
 * gradients that take other rails: there the parameter's pushes are waited for first.
 */
#include "trainer/trainer.h"

int pull_queue_ask(gs_param *p, uint32_t first, uint32_t end)
{
	gs_trainer *t = p->t;
	struct chain chain = {.t = t};
	int rc = 0;

	/* A word that carries nothing, from and to padding; not the barrier's. */
	uint8_t *source = ((struct layout_mailbox_head *)(void *)t->link.mail)->pad + 8;
	for (uint32_t i = first; rc == 0 && i < end; i++) {
		struct tp_op op = {
		    .kind = TP_OP_WRITE,
		    .flags = TP_F_IMM,
		    .imm = imm_block(IMM_PULL, p->first_block + i, 0, false),
		    .local = source,
		    .region = t->link.mailbox_region,
		    .remote = t->link.slot_mem,
		    .offset = offsetof(struct layout_slots_head, pad),
		    .len = 8,
		    .rail = trainer_rail(t, p->first_block + i),
		};

		t->link.pull_asked[p->first_block + i] = 1;
		p->pull_left++;
		rc = chain_add(&chain, &op);
	}
	return rc < 0 ? rc : chain_flush(&chain);
}

int pull_queue(gs_trainer *t, const struct pull *pull)
{
	int rc = pull_begin(t, pull);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; rc == 0 && i < pull->n; i++)
		rc = push_await_rails(pull->param[i]);
	for (uint32_t i = 0; rc == 0 && i < pull->n; i++)
		rc = pull_queue_ask(pull->param[i], 0, pull->param[i]->blocks);
	for (uint32_t i = 0; i < pull->n; i++)
		pull->param[i]->seen = 0; /* the server knows */
	if (rc == 0)
		rc = pull_wait(t, pull);
	return pull_finish(t, pull, rc);
}

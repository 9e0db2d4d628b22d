/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger: words and tokens of ranks.
 */
#include "server/ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int ledger_init(struct ledger *l, uint32_t ranks)
{
	*l = (struct ledger){.ranks = ranks};
	l->rank = calloc(ranks, sizeof(*l->rank));
	return l->rank ? 0 : err_set(ENOMEM, "no memory for a ledger of %u ranks", ranks);
}

int ledger_reserve(struct ledger *l, uint32_t blocks)
{
	_Atomic uint64_t *word = calloc((size_t)l->ranks * blocks, sizeof(*word));

	if (!word)
		return err_set(ENOMEM, "no memory to keep %u blocks of %u ranks", blocks, l->ranks);
	free(l->word);
	l->word = word;
	l->blocks = blocks;
	return 0;
}

void ledger_fini(struct ledger *l)
{
	free(l->word);
	free(l->rank);
	*l = (struct ledger){0};
}

/* ---- words ------------------------------------------------------------------------------------- */

void ledger_has(struct ledger *l, uint32_t rank, uint32_t block, uint64_t step)
{
	if (step > ledger_look(l, rank, block))
		ledger_set(l, rank, block, step);
}

void ledger_forget(struct ledger *l, uint32_t rank)
{
	for (uint32_t b = 0; b < l->blocks; b++)
		ledger_set(l, rank, b, 0);
}

/* ---- tokens ------------------------------------------------------------------------------------ */

void ledger_issue(struct ledger *l, uint32_t rank, const uint8_t token[WIRE_SESSION_LEN])
{
	struct ledger_rank *r = &l->rank[rank];

	memcpy(r->newest, token, WIRE_SESSION_LEN);
	r->has_newest = true;
}

void ledger_resume(struct ledger *l, uint32_t rank, const uint8_t shown[WIRE_SESSION_LEN])
{
	struct ledger_rank *r = &l->rank[rank];

	memcpy(r->last, shown, WIRE_SESSION_LEN);
	r->has_last = true;
}

bool ledger_settle(struct ledger *l, uint32_t rank)
{
	struct ledger_rank *r = &l->rank[rank];
	bool lost = r->lost;

	memcpy(r->last, r->newest, WIRE_SESSION_LEN);
	r->has_last = r->has_newest;
	r->lost = false;
	return lost;
}

bool ledger_train(struct ledger *l, uint32_t rank)
{
	bool first = !l->rank[rank].trained;

	l->rank[rank].trained = true;
	return first;
}

void ledger_lose(struct ledger *l, uint32_t rank)
{
	l->rank[rank].lost = true;
}

void ledger_revoke(struct ledger *l, uint32_t rank)
{
	l->rank[rank] = (struct ledger_rank){0};
}

bool ledger_knows(const struct ledger *l, uint32_t rank, const uint8_t token[WIRE_SESSION_LEN])
{
	const struct ledger_rank *r = &l->rank[rank];

	return (r->has_newest && memcmp(r->newest, token, WIRE_SESSION_LEN) == 0) ||
	       (r->has_last && memcmp(r->last, token, WIRE_SESSION_LEN) == 0);
}

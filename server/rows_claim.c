/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trainer claims of a piece of a push, or of a pull of rows. Heads lie in memory that it can
 * write at any time: each word is read once, and what was read and checked is kept.
 */
#include "server/rows.h"

#include <inttypes.h>

#include "proto/imm.h"
#include "server/internal.h"

static uint32_t read_once(const uint32_t *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

/* Tables are spoken of by their first block. */
static struct param *claimed_table(struct session *s, const struct imm *imm)
{
	struct param *p = srv_table(s->srv)->block[imm->block].param;

	if (imm->block == p->place.first_block)
		return p;
	violation(s, "block %u: table \"%s\" is block %u", imm->block, p->decl.name,
		  p->place.first_block);
	return NULL;
}

/* Not more rows than the slot holds, nor, over its pieces, than a push may have; in sync mode one
 * push a step. */
static bool count_rows(struct session *s, const struct param *p, uint32_t rows, bool more)
{
	struct part_claim *c = &s->claim[p - srv_table(s->srv)->param];
	bool sync = s->srv->opt.mode == SRV_SYNC;

	/* As its actor does: what it keeps of a push is bounded by what is counted here. */
	if (sync && c->step != s->posting)
		*c = (struct part_claim){
			.step = s->posting,
			/* by its rank's last session */
			.done = session_kept(s, p->place.first_block) == s->posting,
		};
	if (c->done) {
		violation(s, "table \"%s\": a second push in step %" PRIu64, p->decl.name, c->step);
		return false;
	}
	if (rows > p->decl.slot_rows) {
		violation(s, "table \"%s\": %u rows in a slot, the limit is slot_rows, %u",
			  p->decl.name, rows, p->decl.slot_rows);
		return false;
	}
	if (rows > p->decl.push_rows - c->rows) {
		violation(s,
			  "table \"%s\": %u rows behind %u of the same push, the limit is "
			  "push_rows, %u",
			  p->decl.name, rows, c->rows, p->decl.push_rows);
		return false;
	}
	c->rows = more ? c->rows + rows : 0;
	c->done = !more && sync;
	return true;
}

struct slot *rows_claim_push(struct session *s, const struct imm *imm, uint32_t len)
{
	const struct param *p = claimed_table(s, imm);
	struct slot *slot = p ? poller_slot(s, imm) : NULL;
	uint32_t rows, flags;

	if (!slot)
		return NULL;
	rows = read_once(&slot->head->rows);
	flags = read_once(&slot->head->flags);
	if (flags & ~(uint32_t)LAYOUT_MORE_ROWS) {
		violation(s, "table \"%s\": flags 0x%x of a slot, known is 0x%x", p->decl.name,
			  flags, LAYOUT_MORE_ROWS);
		return NULL;
	}
	if (!count_rows(s, p, rows, flags & LAYOUT_MORE_ROWS) ||
	    !poller_length(s, imm, len, layout_slot_bytes(rows, row_grad_bytes(p))) ||
	    !poller_head(s, slot))
		return NULL;
	slot->rows = rows;
	slot->more = flags & LAYOUT_MORE_ROWS;
	return slot;
}

bool rows_claim_pull(struct session *s, const struct imm *imm, uint32_t len)
{
	const struct param *p = claimed_table(s, imm);
	uint32_t rows;

	if (!p)
		return false;
	rows = read_once(&rows_request(p, s)->rows);
	return poller_length(s, imm, len, layout_request_bytes(rows));
}

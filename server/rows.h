/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables: parameters whose rows are pushed and pulled by number, or (hashed) by any 64-bit key.
 *
 * A push comes in pieces, a slot each. A piece is checked as a whole, then merged into what its
 * trainer has pushed so far (its *part*), and its slot is free again; so a push may be longer than
 * the slots. A part whose last piece came is complete, and only those are ever applied.
 *
 *   slot ──▶ part of each trainer ──complete──▶ (sync: merged, in rank order) ──▶ rows updated
 *
 *  rows_memory.c  what a table takes            rows_apply.c  an update of some rows
 *  rows.c         pieces, parts, steps          rows_pull.c   rows on their way to a trainer
 *  rows_claim.c   what a trainer claims of a piece or a request (its poller)
 *
 * Invariants:
 *  1. Ids are read once out of memory that the trainer can write: copied first, then checked.
 *  2. A part holds push_rows rows at most: the poller counts them.
 *  3. Sync: by_rank holds the complete parts of the step that is being made, each with a reference
 *     to its session.
 */
#ifndef GS_SERVER_ROWS_H
#define GS_SERVER_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/keymap.h"
#include "server/rowset.h"
#include "server/session.h"
#include "server/table.h"

enum { ROWS_BATCH = 32 }; /* that go to a kernel at once */

/* What a table's actor keeps beside weights and state. */
struct rows {
	uint64_t updates; /* of the table: the clock of ages, of bias corrections, of schedules */
	uint64_t dim;
	uint64_t settled_step;    /* sync: the last step that is in the weights */
	uint32_t delivered;       /* sync: parts in by_rank */
	struct part **by_rank;    /* sync */
	struct rowset total;      /* sync: of several parts */
	const struct rowset *due; /* sync: what the step's update is of; NULL: nothing */

	struct keymap keys;   /* hashed */
	struct keymap_watch watch; /* hashed: of the map, while it is copied out */
	struct rowset wanted; /* hashed: the keys of a pull, each once */

	/* Scratch, for one item: */
	int64_t *ids;       /* a slot's, or a request's */
	uint64_t *row;      /* of each key of a part, or of a pull */
	uint32_t *position; /* of each id of a pull in `wanted` */
	float *batch;       /* some rows of gradients, or one row of weights */
};

/* What one trainer has pushed of a table; the table's actor's. */
struct part {
	struct session *session;
	struct rowset set;
	uint64_t step; /* sync: of its pieces */
	float weight, scale;
	bool broken;  /* a piece was wrong: nothing more is taken */
	bool entered; /* whole parameters, sync: a gradient has come */
};

/* What the poller knows of the push that is under way. */
struct part_claim {
	uint64_t step; /* sync: of its pieces */
	uint32_t rows; /* that came */
	bool done;     /* sync: it is complete */
};

/* ---- rows_memory.c ---- */

/* The declaration fits what tables can do. -EINVAL. */
int rows_check(const struct param *p);
/* Bytes that a table takes beside weights and state, and those for each trainer. */
uint64_t rows_bytes(const struct param *p, uint32_t ranks);
uint64_t rows_part_bytes(const struct param *p);
/* p->rows. -ENOMEM. */
int rows_create(struct param *p, uint32_t ranks);
void rows_destroy(struct rows *rows);
/* For each parameter a part; those of tables hold something. -ENOMEM. */
int rows_create_parts(struct session *s);
void rows_destroy_parts(struct session *s);

/* ---- rows.c ---- */

void rows_gradient(struct param *p, struct slot *slot);
void rows_measure(struct param *p);
void rows_settle(struct param *p);
/* Gives rows to the keys of a push or a pull: r->row[i] is keys[i]'s. -ENOSPC: *refused is in the
 * way. */
int rows_touch(struct param *p, const int64_t *keys, uint32_t n, int64_t *refused);

/* ---- rows_apply.c ---- */

/* One update of the table, with the gradient times `clip`. True: it held an infinity or a NaN. */
bool rows_update(struct param *p, const struct rowset *set, float clip, uint64_t clock);
double rows_norm2(const struct rowset *set);
/* What clip_norm multiplies it by. */
float rows_own_clip(const struct param *p, const struct rowset *set);
/* What a key's row begins with. It depends on the table's seed and on the key alone. */
void rows_initial(const struct param *p, int64_t key, float *out);
/* Makes a row a key's: initial values, no state. */
void rows_begin_row(void *param, int64_t key, uint64_t row);

/* ---- rows_pull.c ---- */

void rows_pull(struct param *p, struct pull *pull);

/* ---- rows_claim.c: the poller's ---- */

struct imm;
/* The slot that holds a piece of a push, with what its head says; NULL: the session was ended. */
struct slot *rows_claim_push(struct session *s, const struct imm *imm, uint32_t len);
/* A pull is asked for, in a request as long as it says itself. False: the session was ended. Its
 * actor looks again, and further: the trainer may write another meanwhile. */
bool rows_claim_pull(struct session *s, const struct imm *imm, uint32_t len);

static inline bool is_hashed(const struct param *p)
{
	return p->decl.storage == WIRE_HASHED;
}

static inline bool is_table(const struct param *p)
{
	return p->storage != WIRE_DENSE;
}

/* How many of its blocks have words of their own in the ledger and the mailbox: of a table, the first
 * speaks for all. */
static inline uint32_t param_words(const struct param *p)
{
	return is_table(p) ? 1 : p->cut.blocks;
}

static inline uint64_t table_dim(const struct param *p)
{
	return p->decl.dim[1];
}

static inline uint64_t row_grad_bytes(const struct param *p)
{
	return table_dim(p) * kern_size(param_grad_type(p));
}

static inline uint64_t row_weight_bytes(const struct param *p)
{
	return table_dim(p) * kern_size(param_weight_type(p));
}

/* Where a trainer writes what it pulls; its ids lie behind. */
static inline const struct layout_request_head *rows_request(const struct param *p,
							     const struct session *s)
{
	return (const struct layout_request_head *)(const void *)((const uint8_t *)tp_arena_base(
								      s->slot_mem) +
								  p->place.request_off);
}

static inline bool row_exists(const struct param *p, int64_t id)
{
	return is_hashed(p) || (uint64_t)id < p->decl.dim[0];
}

#endif

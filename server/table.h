/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters and their blocks, with the memory of the weights and of the optimizers. Made once,
 * when the first trainer has declared them all; nothing is added later.
 *
 * Ownership: what is marked "actor" is touched only while the parameter's actor runs.
 */
#ifndef GS_SERVER_TABLE_H
#define GS_SERVER_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/line.h"
#include "kernels/kern.h"
#include "kernels/schedule.h"
#include "proto/wire.h"
#include "server/actor.h"
#include "server/ages.h"
#include "server/geometry.h"
#include "server/memory.h"
#include "server/snapshot.h"

struct srv;
struct session;
struct slot;
struct delivery;
struct rows;
struct tp_arena;

/* Credits of one session's blocks that follow one another, moved and not yet written: at most until the
 * actor's run is over. */
struct credit_run {
	struct session *session; /* NULL: none */
	uint32_t first, n;
};

struct param {
	struct actor actor; /* first: an actor is its parameter, but for a joint pack's */

	/* What every gradient needs comes first, in few cache lines: of many small parameters there is
	 * nothing else to wait for. */
	struct srv *srv;
	struct actor *home; /* what its items go to: `actor`, or that of its pack */
	struct pack *joint; /* that pack; NULL: it has a queue of its own */
	uint32_t id;
	struct block *block; /* its first */
	float *weights;   /* the server's own */
	unsigned arrays;  /* kern_opt_arrays */
	void *published;  /* what trainers read: the weights, or a copy in weight_type */
	float *state[KERN_STATE_MAX];
	struct rows *rows; /* tables; else NULL */
	bool whole;     /* an update needs the whole gradient: all blocks are updated together */
	bool global;    /* sync: an update needs the gradients of all such parameters */
	bool steady;    /* its schedule changes nothing */
	bool lazy;      /* tables: an update leaves the rows alone that it does not name */
	uint8_t grad_type, weight_type, storage, reduce; /* decl's */
	uint32_t units; /* what the round counts: blocks, or 1 where they go together */
	uint32_t longest_run; /* of credits */

	/* The actor writes. What pollers read for each gradient stands above; `place` they look at for one
	 * that brings its push head. */
	_Atomic uint64_t settled LINE_BEGINS; /* units settled, over all steps. (A joint pack counts its
					       * parameters' itself.) */
	struct credit_run credits;
	double lr; /* without the schedule */
	struct kern_opt opt;

	struct wire_place place;
	uint32_t full;       /* actor; sync, whole: blocks that all members delivered */
	bool measured;       /* actor; sync, global: of this step, before it is applied: */
	bool nonfinite;      /* round reads */
	float clip;          /* clip_norm's */
	double norm2;        /* after it; round reads */
	struct geometry cut;
	struct snapshot snapshot;
	struct schedule schedule;

	uint64_t backup_off; /* dc_lambda: in each session's backups, bytes */
	struct item settle;  /* ITEM_MEASURE, ITEM_SETTLE: on its way at most once a phase */
	struct ages ages;
	struct wire_param decl;
};
_Static_assert(offsetof(struct param, settled) % LINE == 0 &&
		   offsetof(struct param, grad_type) < offsetof(struct param, settled),
	       "what pollers read of a parameter lies in no line that its actor writes");

struct block {
	struct param *param;
	uint32_t id;
	uint32_t delivered;       /* actor; sync: gradients in by_rank, which has no others */
	uint64_t elems, first;    /* first: its first element in the parameter */
	uint64_t settled_step;    /* actor; sync: the last step that is in the weights */
	struct slot **by_rank;    /* actor; sync: this step's gradients */
	_Atomic uint64_t *version; /* proto/layout.h; actor writes, trainers read */
	bool initialised;         /* actor; by a trainer */
};
_Static_assert(sizeof(struct block) == 64, "a line each");

/* Small parameters that lie together in the slots (proto/layout.h), with their blocks. A joint pack
 * (joint.h) is an actor, too: its parameters share a queue, and what is below belongs to its consumer. */
struct pack {
	struct actor actor; /* first */
	struct param *first;
	uint32_t id, param, block, n; /* its number, from 0; the first's; how many */
	uint64_t bytes;               /* of a slot of all of them */
	bool joint;
	bool runs_known;              /* run_end */
	uint32_t delivered;           /* in by_rank */
	uint32_t snapshots;           /* parameters of which one is under way */
	uint64_t settled_step;        /* the last step that was settled as one */
	uint64_t loose_step;          /* the last that each parameter settles by itself */
	uint16_t *run_end;            /* [n]: behind the last that can be updated along with it */
	struct delivery **by_rank;    /* this step's gradients, of those who pushed the pack as one */
	struct item settle;           /* ITEM_SETTLE */
	_Atomic uint64_t settled;     /* units, over all steps; the round reads it */
};

struct table {
	struct param *param;
	struct block *block;
	struct pack *pack;
	uint32_t params, blocks, packs, units, ranks, slots;
	uint32_t globals; /* global parameters */
	uint64_t slots_len; /* of one trainer's slot region */
	uint64_t mailbox_len;
	uint64_t backups_len; /* of one trainer's copies of weights (dc_lambda) */
	uint64_t max_block_bytes;
	_Atomic uint32_t init_left; /* blocks that a trainer still has to initialise */
	struct memory_plan plan;
	unsigned arena_flags; /* tp_arena_flags of what trainers reach */
	struct tp_arena *weights, *state;
	struct slot **by_rank; /* of all blocks */
};

/* Checks the declarations (names, optimizers, sizes), cuts them and says where everything goes and
 * what memory it takes; allocates only the description itself.
 * Errors: -EINVAL (the text names the parameter), -ENOMEM. */
int table_create(struct srv *srv, const struct wire_param *decl, uint32_t n, struct table **out);
/* Allocates weights and optimizer state and fills what is not initialised by a trainer. -ENOMEM. */
int table_allocate(struct table *table);
/* Elements first .. first + n - 1 of the parameter's initial values, seeded with `seed`. */
void table_initial(const struct param *p, uint64_t seed, uint64_t first, float *out, uint64_t n);
/* NULL is allowed. */
void table_destroy(struct table *table);

/* The optimizer of a declaration and, of a table, its setting `lazy`. -EINVAL. */
int table_parse_optimizer(const struct wire_param *decl, struct kern_opt *out, bool *lazy);

/* Compares what a trainer declares with the table (table_compare.c). -EINVAL: the text names both
 * sides. */
int table_compare(const struct table *table, const struct wire_param *decl, uint32_t n);
/* "[2, 3]"; "adam(lr=0.1, ...)". */
void table_shape_text(uint32_t ndim, const uint64_t *dim, char *out, size_t cap);
void table_optimizer_text(const struct wire_param *decl, char *out, size_t cap);

/* Wire types are numbered as the kernels'. */
static inline enum kern_dtype param_grad_type(const struct param *p)
{
	return (enum kern_dtype)p->grad_type;
}

static inline enum kern_dtype param_weight_type(const struct param *p)
{
	return (enum kern_dtype)p->weight_type;
}

/* What trainers read is a copy in another type, and the server's own weights are private. */
static inline bool param_has_copy(const struct param *p)
{
	return p->weight_type != WIRE_F32;
}

/* Bytes of a block's gradient in a slot, and of its weights as trainers read them. */
static inline uint64_t block_grad_bytes(const struct block *b)
{
	return b->elems * kern_size(param_grad_type(b->param));
}

static inline uint64_t block_weight_bytes(const struct block *b)
{
	return b->elems * kern_size(param_weight_type(b->param));
}

static inline void *block_published(const struct block *b)
{
	return (uint8_t *)b->param->published + b->first * kern_size(param_weight_type(b->param));
}

/* Updates that the block has seen. Its actor's, or a look that may be old. */
static inline uint64_t block_updates(const struct block *b)
{
	return atomic_load_explicit(b->version, memory_order_relaxed) / 2;
}

#endif

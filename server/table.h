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
#include <stdint.h>

#include "kernels/kern.h"
#include "proto/wire.h"
#include "server/actor.h"
#include "server/geometry.h"
#include "server/memory.h"

struct srv;
struct slot;
struct tp_arena;

enum { TABLE_MAX_STATE = 4 }; /* optimizer arrays of one parameter */

struct param {
	struct actor actor; /* first: an actor is its parameter */
	struct srv *srv;
	struct wire_param decl;
	struct wire_place place;
	struct geometry cut;
	struct kern_opt opt;
	float *weights;
	float *state[TABLE_MAX_STATE];
	struct item settle;       /* ITEM_SETTLE: on its way at most once a step */
	_Atomic uint64_t settled; /* blocks settled, over all steps; actor writes */
};

struct block {
	struct param *param;
	uint32_t id;
	uint32_t delivered;       /* actor; sync: gradients in by_rank */
	uint64_t elems, first;    /* first: its first element in the parameter */
	uint64_t settled_step;    /* actor; sync: the last step that is in the weights */
	struct slot **by_rank;    /* actor; sync: this step's gradients */
	_Atomic uint64_t *version; /* proto/layout.h; actor writes, trainers read */
	bool initialised;         /* actor; by a trainer */
};

struct table {
	struct param *param;
	struct block *block;
	uint32_t params, blocks, ranks, slots;
	uint64_t slots_len; /* of one trainer's slot region */
	uint64_t max_block_bytes;
	_Atomic uint32_t init_left; /* blocks that a trainer still has to initialise */
	struct memory_plan plan;
	struct tp_arena *weights, *state;
	struct slot **by_rank; /* of all blocks */
};

/* Checks the declarations (names, optimizers, sizes), cuts them and says where everything goes and
 * what memory it takes; allocates only the description itself.
 * Errors: -EINVAL (the text names the parameter), -ENOMEM. */
int table_create(struct srv *srv, const struct wire_param *decl, uint32_t n, struct table **out);
/* Allocates weights and optimizer state and fills what is not initialised by a trainer. -ENOMEM. */
int table_allocate(struct table *table);
/* NULL is allowed. */
void table_destroy(struct table *table);

/* Compares what a trainer declares with the table. -EINVAL: the text names both sides. */
int table_compare(const struct table *table, const struct wire_param *decl, uint32_t n);

/* Bytes of a block. */
static inline uint64_t block_bytes(const struct block *b)
{
	return b->elems * sizeof(float);
}

#endif

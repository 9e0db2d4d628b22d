/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter as it was at one moment, its *cut*, copied out while training goes on.
 *
 * The copy is made in units, each as long as a block of weights or less: the blocks; of a hashed
 * table also pieces of its map and of its sketch. The first item that comes makes the cut: it
 * copies nothing but numbers. Each further one copies a unit, in between whatever else is in the
 * queue; and who is about to change a unit that is not copied yet copies it first. So what a
 * snapshot costs an update is the copy of what it changes, once.
 *
 * All of it runs in the parameter's actor. When no snapshot is under way, the cost is one look at
 * `active` for each block that is updated.
 *
 * Invariants:
 *  1. While `active`, what is in a unit that is not marked as copied is what was in it at the cut.
 *  2. `to` belongs to who asked for the snapshot until the cut, and once all is copied; to the
 *     actor in between.
 */
#ifndef GS_SERVER_SNAPSHOT_H
#define GS_SERVER_SNAPSHOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kern.h"
#include "server/actor.h"

struct block;
struct param;

/* Numbers of a hashed table's map, in the order in which they are saved. */
enum snapshot_map {
	SNAPSHOT_USED,
	SNAPSHOT_EVICTIONS,
	SNAPSHOT_HAND,
	SNAPSHOT_NEWEST,
	SNAPSHOT_OLDEST,
	SNAPSHOT_MAP
};

/* Where it goes. What the parameter does not have is NULL. */
struct snapshot_to {
	float *weights;
	float *state[KERN_STATE_MAX];
	uint64_t *updates; /* dense: of each block */
	uint64_t *applied; /* async, ssp: of each rank, of each of its blocks (of tables: one) */
	/* hashed: of each row */
	int64_t *keys;
	uint64_t *touched;
	uint32_t *newer, *older;
	uint64_t *map;    /* [SNAPSHOT_MAP] */
	uint16_t *sketch; /* where keys have to earn their rows */
};

struct snapshot {
	struct item item; /* ITEM_SNAPSHOT */
	struct snapshot_to to;
	bool due;         /* the next item makes the cut; set before it is posted */
	bool active;      /* actor: units are left to copy */
	double rate;      /* of the cut */
	uint64_t updates; /* of the cut: of the table, or of the first block */
	uint32_t units, left, next;
	uint8_t *copied;       /* [units] */
	_Atomic bool complete; /* all of `to` is there */
	uint64_t by_update;    /* units that updates had to copy, over all snapshots */
};

/* How many units a parameter has: bytes that snapshot_create takes. */
uint32_t snapshot_units(const struct param *p);
/* -ENOMEM. */
int snapshot_create(struct param *p);
void snapshot_destroy(struct param *p);

/* ITEM_SNAPSHOT: makes the cut, or copies a unit; then tells the saver (server/checkpoint.h). */
void snapshot_item(struct param *p);

/* Before something changes, while it is active: a block; all of the parameter. */
void snapshot_block(const struct block *b);
void snapshot_all(struct param *p);

#endif

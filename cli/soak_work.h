/* SPDX-License-Identifier: Apache-2.0
 *
 * What soak trains: whole numbers that are added up, so that the sum after each step is known
 * exactly, whoever died meanwhile. One parameter of each kind that the server treats in its own way,
 * and one with momentum, whose weights depend on everything that was before (sync mode alone).
 */
#ifndef GS_CLI_SOAK_WORK_H
#define GS_CLI_SOAK_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "gradslot/gradslot.h"

enum soak_param {
	SOAK_BLOCKS, /* several blocks, each updated as its gradients come */
	SOAK_WHOLE,  /* several blocks, updated together */
	SOAK_ROWS,   /* a table, pushed in several pieces */
	SOAK_MOVING, /* momentum */
	SOAK_PARAMS,
};

enum {
	SOAK_BLOCK_BYTES = 1024, /* --block-size of the server */
	SOAK_TABLE_ROWS = 64,
	SOAK_DIM = 4,
	SOAK_PUSH_ROWS = 20,
	SOAK_MAX_ELEMS = 1024, /* of any parameter */
	/* Beyond, sums would no longer be whole in float32: at most 6 a trainer and step. */
	SOAK_MAX_SUM = 1 << 24,
};

/* How many of them a mode trains: async mode has no weights that are known for `moving`. */
static inline unsigned soak_params(bool steps)
{
	return steps ? SOAK_PARAMS : SOAK_MOVING;
}

int soak_declare(gs_trainer *t, unsigned param, gs_param **out);

/* What `rank` pushes of a parameter the n-th time, from 1 (sync mode: in step n). `weights`: of
 * `moving`, as they are then. */
int soak_push(gs_trainer *t, gs_param *p, unsigned param, uint32_t rank, uint64_t n,
	      const float *weights);

/* Sums after so many steps (or pushes of each trainer). */
struct soak_sums {
	uint32_t trainers;
	uint64_t n;
	uint64_t dense; /* of an even element; an odd one's is twice that */
	uint64_t row[SOAK_TABLE_ROWS];
};
void soak_sums_to(struct soak_sums *sums, uint64_t n);

/* Reads all parameters into `out` (SOAK_PARAMS rows) and compares them with the sums. Negative, with
 * the first element that is wrong as err_text(). */
int soak_check(gs_trainer *t, gs_param *const *p, bool steps, const struct soak_sums *sums,
	       float out[SOAK_PARAMS][SOAK_MAX_ELEMS]);
/* Of all weights. */
uint64_t soak_checksum(bool steps, float weights[SOAK_PARAMS][SOAK_MAX_ELEMS]);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank and its lives: bare trainers that die at any point and come back, each going on from what the
 * server says that it has (kept words). All pushes are whole numbers into `add`, so the sum at the end
 * is exact: a gradient that was lost or counted twice shows.
 */
#ifndef GS_TESTS_E2E_LIFE_H
#define GS_TESTS_E2E_LIFE_H

#include "raw.h"

enum {
	LIFE_DENSE = 256 * 3 + 7, /* 4 blocks of 1 KiB, updated block by block */
	LIFE_WHOLE = 256 * 2 + 5, /* 3 blocks, updated together */
	LIFE_ROWS = 32,           /* a table; a push is LIFE_PUSH of them, in two pieces */
	LIFE_DIM = 4,
	LIFE_PUSH = 6,
	LIFE_SLOT_ROWS = 4,
};

enum { LIFE_PARAMS = 3, LIFE_P_DENSE = 0, LIFE_P_WHOLE, LIFE_P_TABLE };

struct life {
	const char *uri;
	enum srv_mode mode;
	uint32_t rank;
	uint64_t steps;  /* sync: steps, else pushes, to be made */
	uint32_t odds;   /* it dies at one of so many points; 0: never */
	uint32_t deaths; /* that it may still die */
	uint32_t pause_us; /* between steps */
	uint64_t rng;
	uint32_t died, resumed;
	bool has_token, started;
	uint8_t token[WIRE_SESSION_LEN]; /* of its last welcome that it got, and that it may show */
};

/* Lives and dies until all is pushed, then leaves. */
void life_run(struct life *l);
/* For trainers of the library: the same parameters, what is pushed of each, and which rows. */
void life_declare(gs_trainer *t, gs_param *out[LIFE_PARAMS]);
float life_value(uint32_t rank, uint64_t push, uint32_t p);
void life_rows(uint64_t push, int64_t ids[LIFE_PUSH]);
/* What each element of parameter p comes to after so many steps. */
double life_sum(uint32_t ranks, uint64_t steps, uint32_t p);
/* What each element of each parameter, and all elements of the table together, must come to. */
void life_verify(const char *uri, uint32_t ranks, uint64_t steps);

#endif

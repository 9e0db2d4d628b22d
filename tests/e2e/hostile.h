/* SPDX-License-Identifier: Apache-2.0
 *
 * Chance against the server: what the plays, those who live in them and the declarations at their
 * limits have in common.
 */
#ifndef GS_TESTS_E2E_HOSTILE_H
#define GS_TESTS_E2E_HOSTILE_H

#include <pthread.h>

#include "raw.h"

enum { HOSTILE_TRAINERS = 4, HOSTILE_PARAMS = 5, HOSTILE_CAPACITY = 40 };

/* What is trained. */
struct hostile_model {
	struct wire_param p[HOSTILE_PARAMS];
	uint32_t n;
	struct srv_options opt;
};

/* A trainer of the library that must never fail. */
struct hostile_good {
	const struct hostile_model *model;
	const char *uri;
	uint32_t rank;
	uint64_t leave_at; /* steps; 0: when `end` says so */
	_Atomic bool *end;
	_Atomic uint64_t made;
	gs_trainer *t;
	gs_param *p[HOSTILE_PARAMS];
	uint64_t rng;
	pthread_t thread;
};

/* One that breaks the protocol now and then, a process of its own. */
struct hostile_bad {
	struct hostile_model model;
	struct raw r;
	uint64_t rng;
	uint32_t evil; /* one deed in so many breaks the protocol; 0: none */
	uint8_t *mem;  /* the slots, mapped; NULL: over a network */
	uint64_t pushes[HOSTILE_PARAMS];
	uint64_t step;
	uint64_t scribbles; /* chance of the thread that scribbles */
};

static inline bool chance(uint64_t *rng, uint32_t one_in)
{
	return rnd(rng, one_in) == 0;
}

/* ---- hostile_pick.c: parameters of all kinds, in every mode ------------------------------------
 */

void hostile_pick(struct hostile_model *m, uint64_t seed);
void hostile_pick_rule(struct wire_param *p, uint64_t *rng);
void hostile_pick_settings(struct wire_param *p, uint64_t *rng, enum srv_mode mode);
void hostile_pick_ids(const struct wire_param *p, uint64_t *rng, int64_t *id, uint32_t n);

/* ---- hostile_good.c ----------------------------------------------------------------------------
 */

/* A thread; its argument is the trainer. */
void *hostile_good_main(void *good);
/* It may die anywhere. */
int hostile_mortal(struct hostile_good *g, long steps);

/* ---- hostile_bad.c; its role is child.h's ------------------------------------------------------
 */

/* Waits for a message of the kind; false: it is over. */
bool hostile_next(struct hostile_bad *b, enum wire_kind kind, struct wire_msg *msg);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A job of all kinds of parameters whose every step is a function of the seed, the rank and the step:
 * so what trainer 0 sees at the beginning of each is the same however often the job was interrupted.
 */
#ifndef GS_TESTS_E2E_SAGA_H
#define GS_TESTS_E2E_SAGA_H

#include "harness.h"

enum { SAGA_PARAMS = 16, SAGA_STEPS = 60 };

struct saga {
	enum srv_mode mode;
	struct gs_param_desc desc[SAGA_PARAMS];
	uint32_t n;
	uint32_t nap_us; /* between steps */
	bool lasting;    /* trainers come back when the server is lost */
	_Atomic uint64_t brisk; /* the steps beyond are slow, half a second each; 0: none */
	_Atomic uint32_t came_back; /* how often they did */
	uint64_t seen[SAGA_STEPS + 2][SAGA_PARAMS]; /* checksums; 0: not yet */
};

void saga_init(struct saga *s, enum srv_mode mode);

/* `ranks` trainers make the steps up to `last`, from the one on that the server says (async: from
 * `first` on); trainer 0 notes what it sees at the beginning of each and at the end, or checks that it
 * is what was seen before. They leave. In async mode only one trainer's steps are the same every
 * time. */
void saga_run(struct saga *s, const char *uri, uint32_t ranks, uint64_t first, uint64_t last);

/* The same step by step, for one trainer of its own. */
struct actor_of {
	struct saga *s;
	gs_trainer *t;
	gs_param *p[SAGA_PARAMS];
	uint32_t rank;
	float *buf;
};
void saga_join(struct actor_of *a, struct saga *s, const char *uri, uint32_t rank);
void saga_start(struct actor_of *a);
uint64_t saga_step(struct actor_of *a);
/* Each gives 0, or what the library gave. */
int saga_look(struct actor_of *a, uint64_t step);
int saga_push(struct actor_of *a, uint64_t step);
int saga_end_step(struct actor_of *a);
void saga_leave(struct actor_of *a);

#endif

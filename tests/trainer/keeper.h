/* SPDX-License-Identifier: Apache-2.0
 *
 * A server that keeps its books: it applies what comes, each gradient once (a second one is a
 * failed test), and ends connections where it is told to; then it goes on with whoever comes back,
 * telling what it has. And a trainer that goes on.
 */
#ifndef GS_TESTS_TRAINER_KEEPER_H
#define GS_TESTS_TRAINER_KEEPER_H

#include "fake.h"

enum { CONNECTIONS = 3, TABLE_ROWS = 40, DIM = 7, SLOT_ROWS = 3, NO_STAGE = -1 };

struct keeper {
	struct rig r;
	/* Connection i is ended after so many immediates (-1: not by it), or at this stage of its
	 * talk.
	 */
	int end_after[CONNECTIONS], end_at[CONNECTIONS];
	bool mute; /* the last immediate before an end is not answered */

	uint64_t count[FAKE_BLOCKS]; /* as kept words */
	uint64_t base[FAKE_BLOCKS];  /* of the block's parameter */
	uint64_t step;               /* that is being made */
	bool answers;

	/* Tables. */
	uint64_t pieces;
	float part[TABLE_ROWS * DIM];

	/* The trainer's. */
	gs_param *table;
	int cut_again; /* within the next gs_reconnect */
	bool pulls;    /* it ends steps with gs_step_pull */
	bool views;    /* or with gs_step_view, where it can */
	int returns;
};

/* The fake's script. */
void keeper_main(struct fake *f);
void keeper_init(struct keeper *k, enum wire_mode mode, uint32_t slots);
/* Connected and started; closed. */
void keeper_up(struct keeper *k);
void keeper_down(struct keeper *k);
/* gs_reconnect, to a server that kept this trainer's place. */
void keeper_come_back(struct keeper *k);

#define LIVES(call)                                                                         \
	do {                                                                                \
		int live_rc;                                                                \
		while ((live_rc = (call)) == -ECONNRESET)                                   \
			keeper_come_back(k);                                                \
		ck_assert_msg(live_rc == 0, "%s: %d: %s", #call, live_rc, gs_last_error()); \
	} while (0)

enum { KEEPER_TURNS = 3 };

/* Element i of the gradient of a turn; n of them; what so many turns have made of the weights. */
float keeper_grad(int turn, int i);
void keeper_make(float *g, int n, int turn);
void keeper_check_sum(const float *w, int n, int turns);
/* All turns, whatever is lost meanwhile. */
void keeper_train(struct keeper *k);

#endif

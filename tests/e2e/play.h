/* SPDX-License-Identifier: Apache-2.0
 *
 * A play: some parameters of any description, trained in sync mode by trainers on threads. What
 * each of them must see at the beginning of each step is foreseen, bit for bit, by a model that has
 * one gradient a step: the merged one, made with plain loops, and one kern_apply of whole tensors.
 */
#ifndef GS_TESTS_E2E_PLAY_H
#define GS_TESTS_E2E_PLAY_H

#include "harness.h"
#include "kernels/kern.h"

enum { PLAY_PARAMS = 40, PLAY_RANKS = 4, PLAY_STEPS = 8 };

struct play {
	struct gs_param_desc desc[PLAY_PARAMS];
	uint32_t n, ranks, steps;
	uint64_t seed;

	/* What the trainers do; NULL: all push, one sample, scale 1, numbers as they are. */
	bool (*pushes)(uint32_t rank, uint64_t step, uint32_t p);
	double (*samples)(uint32_t rank, uint64_t step);
	double (*scale)(uint32_t rank, uint64_t step);
	void (*change)(uint32_t rank, uint64_t step, uint32_t p, float *grad, uint64_t n);

	/* Foreseen, at the beginning of each step; the last is what is left. */
	void *seen[PLAY_STEPS + 2][PLAY_PARAMS]; /* in weight_dtype */
	uint64_t updates[PLAY_STEPS + 2][PLAY_PARAMS];
	uint64_t nonfinite[PLAY_STEPS + 2][PLAY_RANKS], skipped[PLAY_STEPS + 2];
};

/* An empty one. */
struct play *play_create(uint64_t seed, uint32_t ranks, uint32_t steps);
void play_free(struct play *play);
/* Adds a parameter with lr 0.05 and uniform weights from -1 to 1. The strings must last. */
struct gs_param_desc *play_add(struct play *play, const char *name, const char *optimizer,
			       uint64_t rows, uint64_t columns);
uint64_t play_elems(const struct gs_param_desc *d);
/* What it pushes, before it is multiplied by the scale: a number of the gradient's type. */
void play_gradient(const struct play *play, uint32_t rank, uint64_t step, uint32_t p, float *out);
/* Runs the model. */
void play_foresee(struct play *play);
/* Foreseen: runs it on a server with these options, and checks all that is seen. */
void play_run(const struct play *play, const struct srv_options *opt);

#endif

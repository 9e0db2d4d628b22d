/* SPDX-License-Identifier: Apache-2.0
 *
 * A made training job: parameters of odd shapes, gradients that are a function of (seed, rank,
 * step, parameter, element), a ledger of who pushed what in which step and what each trainer saw at
 * the beginning of each step. From the ledger job_verify computes what must have been seen, bit for
 * bit, with the kernels alone.
 */
#ifndef GS_TESTS_E2E_JOB_H
#define GS_TESTS_E2E_JOB_H

#include "harness.h"

enum { JOB_PARAMS = 8, JOB_RANKS = 8, JOB_STEPS = 80 };

struct job_param {
	const char *name, *optimizer;
	uint32_t ndim;
	uint64_t dim[3];
	double momentum;
};

struct job {
	const struct job_param *param;
	uint32_t n;
	uint64_t seed;
	uint32_t skip;     /* one push in so many is left out; 0: none */
	uint32_t delay_us; /* the longest pause before a push */
	bool zero_copy;    /* every other push computes into gs_grad_buffer */
	_Atomic uint8_t pushed[JOB_STEPS + 2][JOB_RANKS][JOB_PARAMS];
	_Atomic uint64_t seen[JOB_STEPS + 2][JOB_RANKS][JOB_PARAMS]; /* checksums; 0: not seen */
};

/* Odd shapes, all optimizers. */
struct job *job_create(uint64_t seed);
uint64_t job_elems(const struct job *job, uint32_t p);
void job_gradient(const struct job *job, uint32_t rank, uint64_t step, uint32_t p, float *out);

/* A trainer of a job. */
struct hand {
	struct job *job;
	gs_trainer *t;
	gs_param *param[JOB_PARAMS];
	uint32_t rank;
	uint64_t rng;
	float *buf; /* the longest parameter */
	/* job_run_all */
	const char *uri;
	uint32_t steps;
	pthread_t thread;
};

/* Connects as `rank` (or -1), declares, starts. */
void hand_join(struct hand *h, struct job *job, const char *uri, int32_t rank);
uint64_t hand_step(struct hand *h);
/* Notes what it sees of all parameters at the beginning of the step that is being made. */
void hand_look(struct hand *h);
/* Pushes what the job says for this step, in some order. */
void hand_push(struct hand *h);
/* look, push, barrier. */
void hand_make_step(struct hand *h);
/* Says bye, frees. */
void hand_leave(struct hand *h);
/* Frees, without a bye. */
void hand_drop(struct hand *h);

/* `ranks` trainers on threads make steps[r] steps each, look a last time, and leave. */
void job_run_all(struct job *job, const char *uri, uint32_t ranks, const uint32_t *steps);
/* Checks all that was seen. Returns the checksum of the weights after `steps` steps. */
uint64_t job_verify(const struct job *job, uint64_t steps);
/* Steps up to `steps` in which somebody pushed parameter p. */
uint64_t job_updates(const struct job *job, uint64_t steps, uint32_t p);

#endif

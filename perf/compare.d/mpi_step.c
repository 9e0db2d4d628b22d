/* SPDX-License-Identifier: Apache-2.0
 *
 * compare_mpi BYTES OPTIMIZER MILLISECONDS: a training step without a parameter server. Every rank
 * has a gradient; MPI_Allreduce sums them, and each rank takes the optimizer's step on its own copy
 * of the weights, with the same loops as gradslot's server. Two ways, in turn: the sum goes where
 * the gradient was (MPI_IN_PLACE), or elsewhere.
 *
 * Rank 0 prints one JSON object: its own times of a step, from the end of the one before.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "kernels/kern.h"

enum { WARMUP = 5, STEPS_MIN = 5, STEPS_MAX = 200000, WAYS = 2, IN_PLACE = 0 };

static const char *const names[WAYS] = {"in_place", "apart"};

struct rank {
	int number, ranks;
	size_t len;
	struct kern_opt opt;
	uint64_t t;
	float *w, *state[KERN_STATE_MAX];
	float *grad, *sum; /* apart: from the one to the other */
	float *zeros; /* in place: a sum of nothing, which stays nothing however often it is added
			 up */
};

static _Noreturn void die(const char *why)
{
	fprintf(stderr, "compare_mpi: %s\n", why);
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

static float *array(size_t len, float value)
{
	const size_t page = 2 << 20, bytes = (len * sizeof(float) + page - 1) / page * page;
	float *p = aligned_alloc(page, bytes);

	if (!p)
		die("no memory");
	/* Huge pages if there are any; refused is as good. */
	madvise(p, bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < len; i++)
		p[i] = value;
	return p;
}

static void prepare(struct rank *r, size_t bytes, const char *optimizer)
{
	const struct kern_setting lr = {"lr", 0x1p-10};

	MPI_Comm_rank(MPI_COMM_WORLD, &r->number);
	MPI_Comm_size(MPI_COMM_WORLD, &r->ranks);
	r->len = bytes / sizeof(float);
	if (kern_opt_parse(optimizer, &lr, 1, &r->opt))
		die(err_text());
	r->w = array(r->len, 0);
	for (unsigned i = 0; i < kern_opt_arrays(&r->opt); i++)
		r->state[i] = array(r->len, 0);
	r->grad = array(r->len, 0x1p-10f);
	r->sum = array(r->len, 0);
	r->zeros = array(r->len, 0);
}

static void step(struct rank *r, bool in_place)
{
	const void *const merged[] = {in_place ? r->zeros : r->sum};
	const struct kern_grads g = {.data = merged, .scale = 1.0f / (float)r->ranks, .n = 1};
	const struct kern_step s = {.t = ++r->t, .lr = 0x1p-10f, .clip = 1, .ratio = 1};

	if (in_place)
		MPI_Allreduce(MPI_IN_PLACE, r->zeros, (int)r->len, MPI_FLOAT, MPI_SUM,
			      MPI_COMM_WORLD);
	else
		MPI_Allreduce(r->grad, r->sum, (int)r->len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	kern_apply(&r->opt, &s, &g, r->w, r->state, r->len);
}

static uint64_t time_step(struct rank *r, bool in_place)
{
	uint64_t began = clock_ns();

	step(r, in_place);
	return clock_ns() - began;
}

/* How many steps of each way fit; the same for all ranks. */
static int count_steps(struct rank *r, uint64_t milliseconds)
{
	uint64_t took = 0;
	int n;

	for (int i = 0; i < 2 * WARMUP; i++) {
		uint64_t both = 0;

		for (int way = 0; way < WAYS; way++)
			both += time_step(r, way == IN_PLACE);
		/* The first touch pages. */
		took += i < WARMUP ? 0 : both;
	}
	took = took / WARMUP + 1;
	n = (int)(milliseconds * NS_PER_MS / took > STEPS_MAX ? STEPS_MAX
							      : milliseconds * NS_PER_MS / took);
	n = n < STEPS_MIN ? STEPS_MIN : n;
	MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return n;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void print(uint64_t *ns[WAYS], int n)
{
	printf("{");
	for (int way = 0; way < WAYS; way++) {
		qsort(ns[way], (size_t)n, sizeof(*ns[way]), by_value);
		printf("\"%s_us\": %.3f, \"%s_p99_us\": %.3f, ", names[way],
		       (double)ns[way][(n - 1) / 2] / 1e3, names[way],
		       (double)ns[way][(n - 1) * 99L / 100] / 1e3);
	}
	printf("\"samples\": %d}\n", n);
}

int main(int argc, char **argv)
{
	struct rank r = {0};
	uint64_t *ns[WAYS];
	long bytes = argc == 4 ? atol(argv[1]) : 0, milliseconds = argc == 4 ? atol(argv[3]) : 0;

	MPI_Init(&argc, &argv);
	if (bytes < 4 || bytes % 4 || bytes > 1L << 30 || milliseconds < 1)
		die("usage: compare_mpi BYTES OPTIMIZER MILLISECONDS");
	prepare(&r, (size_t)bytes, argv[2]);
	int n = count_steps(&r, (uint64_t)milliseconds);
	for (int way = 0; way < WAYS; way++) {
		ns[way] = calloc((size_t)n, sizeof(**ns));
		if (!ns[way])
			die("no memory");
	}
	/* Some of each in turn: one that follows its like finds its memory in the caches. */
	for (int done = 0; done < n; done += STEPS_MIN) {
		for (int way = 0; way < WAYS; way++) {
			for (int i = done; i < n && i < done + STEPS_MIN; i++)
				ns[way][i] = time_step(&r, way == IN_PLACE);
		}
	}
	if (!(r.w[0] < 0 && r.w[r.len - 1] == r.w[0]))
		die("the weights did not move");
	if (r.number == 0)
		print(ns, n);
	MPI_Finalize();
	return 0;
}

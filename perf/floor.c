/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring the floor.
 *
 * The trainers' copies are one range of trainers × bytes, which the threads share evenly: so one
 * trainer's copy, too, is made by all cores where that is faster.
 */
#include "perf/floor.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/copy.h"
#include "base/err.h"
#include "kernels/kern.h"
#include "perf/crew.h"
#include "perf/percentile.h"

enum {
	ROUNDS_MIN = 5,
	ROUNDS_MAX = 201,
	/* Short work is repeated, so that the clock's own cost does not count. */
	WORK_MIN_BYTES = 1 << 20,
	LINE = 64,
	WAYS_MAX = 4,
};

/* Small, so that the weights stay ordinary numbers however often the pass is made. */
static const double rate = 1e-6;

struct bench {
	const struct floor_job *job;
	struct kern_opt opt;
	float *w, *state[KERN_STATE_MAX];
	float *slot[FLOOR_TRAINERS_MAX]; /* the server's memory for gradients */
	float *own[FLOOR_TRAINERS_MAX];  /* the trainers' memory */
	struct crew *one, *all;
};

/* ---- memory ------------------------------------------------------------------------------ */

static float *array(size_t bytes)
{
	float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* Huge pages if there are any; refused is as good. */
	madvise(p, bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < bytes / sizeof(float); i++)
		p[i] = 0x1p-10f;
	return p;
}

static void release(struct bench *b)
{
	float **const groups[] = {&b->w, b->state, b->slot, b->own};
	const unsigned sizes[] = {1, KERN_STATE_MAX, FLOOR_TRAINERS_MAX, FLOOR_TRAINERS_MAX};

	for (unsigned g = 0; g < 4; g++) {
		for (unsigned i = 0; i < sizes[g]; i++) {
			if (groups[g][i])
				munmap(groups[g][i], b->job->bytes);
		}
	}
	crew_destroy(b->all);
	crew_destroy(b->one);
}

static bool take_memory(struct bench *b)
{
	const struct floor_job *job = b->job;
	bool ok = (b->w = array(job->bytes));

	for (unsigned i = 0; ok && i < kern_opt_arrays(&b->opt); i++)
		ok = (b->state[i] = array(job->bytes));
	for (unsigned t = 0; ok && t < job->trainers; t++)
		ok = (b->slot[t] = array(job->bytes)) && (b->own[t] = array(job->bytes));
	return ok;
}

static int prepare(struct bench *b, const struct floor_job *job)
{
	const struct kern_setting lr = {"lr", rate};

	*b = (struct bench){.job = job};
	if (job->bytes < sizeof(float) || job->bytes % sizeof(float))
		return err_set(EINVAL, "%zu bytes are no whole number of floats", job->bytes);
	if (job->trainers < 1 || job->trainers > FLOOR_TRAINERS_MAX)
		return err_set(EINVAL, "%u trainers: there may be 1 to %d", job->trainers,
			       FLOOR_TRAINERS_MAX);
	if (job->threads < 1 || job->threads > CREW_MAX)
		return err_set(EINVAL, "%u threads: there may be 1 to %d", job->threads, CREW_MAX);
	int rc = kern_opt_parse(job->optimizer, &lr, 1, &b->opt);
	if (rc)
		return rc;
	rc = crew_create(1, &b->one);
	if (rc == 0 && job->threads > 1)
		rc = crew_create(job->threads, &b->all);
	if (rc == 0 && !take_memory(b))
		rc = err_set(ENOMEM, "no memory for the floor of %u trainers with %zu bytes",
			     job->trainers, job->bytes);
	if (rc)
		release(b);
	return rc;
}

/* ---- the parts --------------------------------------------------------------------------- */

typedef void copy_fn(void *to, const void *from, size_t bytes);

static void copy_plain(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

struct task {
	const struct bench *b;
	void (*part)(const struct task *t, unsigned trainer, size_t at, size_t bytes);
	copy_fn *copy;
	unsigned trainers, threads, times;
};

static void part_in(const struct task *t, unsigned trainer, size_t at, size_t bytes)
{
	t->copy((char *)t->b->slot[trainer] + at, (char *)t->b->own[trainer] + at, bytes);
}

static void part_out(const struct task *t, unsigned trainer, size_t at, size_t bytes)
{
	t->copy((char *)t->b->own[trainer] + at, (char *)t->b->w + at, bytes);
}

static void part_read(const struct task *t, unsigned trainer, size_t at, size_t bytes)
{
	const float *w = t->b->w + at / sizeof(float);
	uint32_t all = 0, word;

	for (size_t i = 0; i < bytes / sizeof(float); i++) {
		memcpy(&word, &w[i], sizeof(word));
		all |= word;
	}
	/* The compiler may not leave the loads out. */
	__asm__ volatile("" ::"r"(all));
}

/* Of all trainers' gradients at once. */
static void part_update(const struct task *t, unsigned trainer, size_t at, size_t bytes)
{
	const struct bench *b = t->b;
	const void *grads[FLOOR_TRAINERS_MAX];
	float *state[KERN_STATE_MAX] = {0};
	unsigned n = b->job->trainers;
	const struct kern_grads g = {.data = grads, .scale = 1.0f / (float)n, .n = n};
	const struct kern_step step = {.t = 2, .lr = (float)rate, .clip = 1, .ratio = 1};

	at /= sizeof(float);
	for (unsigned i = 0; i < n; i++)
		grads[i] = b->slot[i] + at;
	for (unsigned i = 0; i < kern_opt_arrays(&b->opt); i++)
		state[i] = b->state[i] + at;
	kern_apply(&b->opt, &step, &g, b->w + at, state, bytes / sizeof(float));
}

/* Thread k's share of the range of trainers × bytes, cut at lines. */
static void do_share(const struct task *t, unsigned k)
{
	size_t bytes = t->b->job->bytes, all = bytes * t->trainers;
	size_t share = (all / t->threads + LINE - 1) / LINE * LINE;
	size_t from = share * k, end = share * (k + 1) < all ? share * (k + 1) : all;

	while (from < end) {
		size_t at = from % bytes;
		size_t len = end - from < bytes - at ? end - from : bytes - at;

		t->part(t, (unsigned)(from / bytes), at, len);
		from += len;
	}
}

static void do_task(void *arg, unsigned k)
{
	const struct task *t = arg;

	for (unsigned i = 0; i < t->times; i++) {
		do_share(t, k);
		/* Each repetition counts: the compiler may not see that it changes nothing. */
		__asm__ volatile("" ::: "memory");
	}
}

/* ---- timing ------------------------------------------------------------------------------ */

/* One of the four parts, and the ways in which it may be done. */
struct part {
	struct task way[WAYS_MAX];
	unsigned ways;
	double us[WAYS_MAX][ROUNDS_MAX];
};

static double median(double *v, unsigned n)
{
	perf_sort_real(v, n);
	return v[n / 2];
}

/* By the wall's clock, as the steps are timed. */
static double time_us(const struct task *t)
{
	struct crew *crew = t->threads > 1 ? t->b->all : t->b->one;
	uint64_t began = clock_ns(), took = crew_run(crew, do_task, (void *)t);

	if (t->threads == 1)
		took = clock_ns() - began;
	return (double)took / 1000.0 / t->times;
}

static void list_ways(struct part *p, const struct bench *b, struct task task, bool copies)
{
	copy_fn *const stores[] = {copy_plain, copy_streaming};

	task.b = b;
	task.times = b->job->bytes < WORK_MIN_BYTES ? WORK_MIN_BYTES / (unsigned)b->job->bytes : 1;
	p->ways = 0;
	for (unsigned threads = 1; threads <= b->job->threads; threads += b->job->threads - 1) {
		task.threads = threads;
		for (unsigned s = 0; s < (copies ? 2 : 1); s++) {
			task.copy = stores[s];
			p->way[p->ways++] = task;
		}
		if (b->job->threads == 1)
			break;
	}
}

static double best(struct part *p, unsigned rounds)
{
	double least = median(p->us[0], rounds);

	for (unsigned i = 1; i < p->ways; i++) {
		double us = median(p->us[i], rounds);

		least = us < least ? us : least;
	}
	return least;
}

enum { PART_IN, PART_UPDATE, PART_OUT, PART_READ, PARTS };

/* Returns the number of rounds. */
static unsigned take_turns(struct part *parts, unsigned budget_ms)
{
	uint64_t until;
	unsigned rounds = 0;

	for (unsigned k = 0; k < PARTS; k++) {
		for (unsigned i = 0; i < parts[k].ways; i++)
			time_us(&parts[k].way[i]);
	}
	until = clock_ns() + budget_ms * NS_PER_MS;
	while (rounds < ROUNDS_MIN || (rounds < ROUNDS_MAX && clock_ns() < until)) {
		for (unsigned k = 0; k < PARTS; k++) {
			for (unsigned i = 0; i < parts[k].ways; i++)
				parts[k].us[i][rounds] = time_us(&parts[k].way[i]);
		}
		rounds++;
	}
	return rounds;
}

int floor_measure(const struct floor_job *job, struct floor_parts *out)
{
	const unsigned n = job->trainers;
	struct part *parts;
	struct bench b;
	int rc = prepare(&b, job);

	if (rc)
		return rc;
	parts = calloc(PARTS, sizeof(*parts));
	if (!parts) {
		release(&b);
		return err_set(ENOMEM, "no memory for the floor's times");
	}
	list_ways(&parts[PART_IN], &b, (struct task){.part = part_in, .trainers = n}, true);
	list_ways(&parts[PART_UPDATE], &b, (struct task){.part = part_update, .trainers = 1},
		  false);
	list_ways(&parts[PART_OUT], &b, (struct task){.part = part_out, .trainers = n}, true);
	list_ways(&parts[PART_READ], &b, (struct task){.part = part_read, .trainers = n}, false);
	unsigned rounds = take_turns(parts, job->budget_ms);
	*out = (struct floor_parts){
	    .in = best(&parts[PART_IN], rounds),
	    .update = best(&parts[PART_UPDATE], rounds),
	    .out = best(&parts[PART_OUT], rounds),
	    .read = best(&parts[PART_READ], rounds),
	};
	free(parts);
	release(&b);
	return 0;
}

double floor_total(const struct floor_parts *parts, enum floor_kind kind)
{
	if (kind == FLOOR_VIEW)
		return parts->update + parts->read;
	return parts->update + parts->out + (kind == FLOOR_COPY ? parts->in : 0);
}

int floor_step_us(size_t bytes, unsigned arrays, bool copy, double *us)
{
	static const char *const optimizers[] = {"sgd", "momentum", "adam"};
	const struct floor_job job = {.bytes = bytes,
				      .optimizer = optimizers[arrays < 2 ? arrays : 2],
				      .trainers = 1,
				      .threads = 1,
				      .budget_ms = 400};
	struct floor_parts parts;
	int rc = floor_measure(&job, &parts);

	if (rc == 0)
		*us = floor_total(&parts, copy ? FLOOR_COPY : FLOOR_PULL);
	return rc;
}

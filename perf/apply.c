/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing the update loops.
 */
#include "perf/apply.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "kernels/kern.h"
#include "perf/crew.h"
#include "perf/percentile.h"

enum {
	STATE_MAX = 2, /* arrays of the rules at their defaults */
	REFERENCES = 3,
	TRIAD = 1, /* among the references */
	/* Short work is repeated up to this many bytes, so that the clock's own cost doesn't count.
	 */
	WORK_BYTES = 4 << 20,
};

_Static_assert((int)APPLY_THREADS_MAX == (int)CREW_MAX, "as many threads as a crew may have");

struct arrays {
	float *w, *state[STATE_MAX], *out, *grads[APPLY_GRADS_MAX];
};

struct subject {
	const char *name, *isa; /* isa is "" for references */
	void (*run)(const struct subject *s, const struct arrays *a, unsigned grads, size_t len);
	struct kern_opt opt;
	enum kern_dtype dtype; /* of the gradients, and of the copy of the weights if any */
	unsigned streams;      /* arrays read, plus arrays written, without the gradients */
	bool takes_grads;
	uint64_t ns[APPLY_ROUNDS_MAX];  /* of one call */
	double ratio[APPLY_ROUNDS_MAX]; /* to triad of the same round */
};

/* ---- what is measured ------------------------------------------------------------------- */

/* Small steps, so that the weights stay ordinary numbers however often they are taken. */
static const float rate = 1e-6f;

static void run_memcpy(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	memcpy(a->out, a->grads[0], len * sizeof(float));
}

static void run_triad(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	float *restrict out = a->out;
	const float *restrict b = a->w, *restrict c = a->grads[0];

	for (size_t i = 0; i < len; i++)
		out[i] = b[i] + rate * c[i];
}

static void run_saxpy(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	kern_saxpy(len, -rate, a->grads[0], a->w);
}

static void run_apply(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	const struct kern_grads g = {
	    .data = (const void *const *)a->grads,
	    .scale = 1.0f / (float)grads,
	    .n = grads,
	    .dtype = s->dtype,
	};
	const struct kern_step step = {
	    .t = 2,
	    .lr = rate,
	    .clip = 1,
	    .ratio = 1,
	    .copy = s->dtype == KERN_F32 ? NULL : a->out,
	    .copy_dtype = s->dtype,
	};

	kern_apply(&s->opt, &step, &g, a->w, a->state, len);
}

static void run_mean(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	kern_mean(a->out, (const float *const *)a->grads, grads, len);
}

/* The rule in one instruction set, if this CPU has it. */
static void list_rule(struct subject *s, unsigned *n, const char *rule, const char *isa,
		      enum kern_dtype dtype)
{
	const struct kern_setting setting = {"lr", rate};
	struct kern_opt opt;

	if (kern_isa_use(isa) || kern_opt_parse(rule, &setting, 1, &opt))
		return;
	if (kern_opt_prepares(&opt) || !kern_opt_dense(&opt))
		return;
	s[(*n)++] = (struct subject){
	    .name = kern_opt_name(&opt),
	    .isa = kern_isa(),
	    .run = run_apply,
	    .opt = opt,
	    .dtype = dtype,
	    .streams = 2 + 2 * kern_opt_arrays(&opt),
	    .takes_grads = true,
	};
}

static const char *widest(void)
{
	if (kern_isa_use(NULL))
		abort();
	return kern_isa();
}

/* The references first; three rules in each instruction set, the others in the widest; and two with
 * gradients, and a copy of the weights, of 16 bits. */
static unsigned list_subjects(struct subject *s)
{
	static const struct subject references[] = {
	    {.name = "memcpy", .isa = "", .run = run_memcpy, .streams = 2},
	    {.name = "triad", .isa = "", .run = run_triad, .streams = 3},
	    {.name = "saxpy", .isa = "", .run = run_saxpy, .streams = 3},
	};
	static const char *const firsts[] = {"sgd", "momentum", "adam"};
	const char *best = widest();
	unsigned n = 0;

	for (; n < REFERENCES; n++)
		s[n] = references[n];
	for (unsigned l = 0; l < 3; l++)
		for (unsigned i = 0; kern_isa_at(i); i++)
			list_rule(s, &n, firsts[l], kern_isa_at(i), KERN_F32);
	for (unsigned r = 0; kern_opt_at(r); r++)
		if (strcmp(kern_opt_at(r), "sgd") && strcmp(kern_opt_at(r), "momentum") &&
		    strcmp(kern_opt_at(r), "adam"))
			list_rule(s, &n, kern_opt_at(r), best, KERN_F32);
	for (unsigned dtype = KERN_BF16; dtype <= KERN_F16; dtype++)
		list_rule(s, &n, "sgd", best, dtype);
	if (kern_isa_use(best) == 0)
		s[n++] = (struct subject){.name = "mean",
					  .isa = best,
					  .run = run_mean,
					  .streams = 1,
					  .takes_grads = true};
	return n;
}

/* ---- timing ----------------------------------------------------------------------------- */

/* What a thread of the crew does: its part of the arrays, some times. */
struct task {
	const struct subject *s;
	const struct arrays *a;
	unsigned grads, threads, times;
	size_t len;
};

static void do_part(void *arg, unsigned k)
{
	const struct task *t = arg;
	size_t len = t->len / t->threads, at = k * len;
	struct arrays a = {.w = t->a->w + at, .out = t->a->out + at};

	for (unsigned i = 0; i < STATE_MAX; i++)
		a.state[i] = t->a->state[i] + at;
	for (unsigned i = 0; i < t->grads; i++)
		a.grads[i] = t->a->grads[i] + at;
	for (unsigned i = 0; i < t->times; i++) {
		t->s->run(t->s, &a, t->grads, len);
		__asm__ volatile("" ::: "memory");
	}
}

static uint64_t time_one(struct crew *crew, const struct apply_config *c, const struct subject *s,
			 const struct arrays *a, size_t bytes)
{
	struct task task = {
	    .s = s,
	    .a = a,
	    .grads = c->grads,
	    .threads = c->threads,
	    .times = 1,
	    .len = bytes / sizeof(float),
	};

	/* The set was tried when the subjects were listed. */
	if (s->isa[0] && kern_isa_use(s->isa))
		abort();
	if (bytes < WORK_BYTES) {
		/* Once beforehand: what fits in a cache is there. */
		crew_run(crew, do_part, &task);
		task.times = (unsigned)(WORK_BYTES / bytes);
	}
	return crew_run(crew, do_part, &task) / task.times;
}

/* Bytes: each array that is read, and each that is written. */
static double moved(const struct subject *s, unsigned grads, size_t bytes)
{
	double streams = s->streams;

	if (s->takes_grads)
		streams += grads * (double)kern_size(s->dtype) / sizeof(float);
	if (s->dtype != KERN_F32)
		streams += 0.5; /* the copy */
	return streams * (double)bytes;
}

static void sort_rounds(struct subject *s, unsigned rounds)
{
	perf_sort(s->ns, rounds);
	perf_sort_real(s->ratio, rounds);
}

/* Returns the number of rounds. */
static unsigned measure(struct crew *crew, const struct apply_config *c, struct subject *s,
			unsigned n, const struct arrays *a)
{
	size_t bytes = (size_t)c->bytes;
	uint64_t until;
	unsigned rounds = 0;

	for (unsigned i = 0; i < n; i++)
		time_one(crew, c, &s[i], a, bytes);
	until = clock_ns() + c->duration_ms * NS_PER_MS;
	while (rounds < c->rounds || (rounds < APPLY_ROUNDS_MAX && clock_ns() < until)) {
		for (unsigned i = 0; i < n; i++)
			s[i].ns[rounds] = time_one(crew, c, &s[i], a, bytes);
		for (unsigned i = 0; i < n; i++)
			s[i].ratio[rounds] =
			    moved(&s[i], c->grads, bytes) / (double)s[i].ns[rounds] /
			    (moved(&s[TRIAD], c->grads, bytes) / (double)s[TRIAD].ns[rounds]);
		rounds++;
	}
	for (unsigned i = 0; i < n; i++)
		sort_rounds(&s[i], rounds);
	return rounds;
}

static double gbs(const struct subject *s, unsigned grads, size_t bytes, unsigned rounds,
		  unsigned per_10000)
{
	return moved(s, grads, bytes) / (double)perf_percentile(s->ns, rounds, per_10000);
}

/* ---- the result -------------------------------------------------------------------------- */

static struct apply_figure figure_of(const struct subject *s, const struct apply_config *c,
				     unsigned rounds)
{
	static const char *const dtypes[] = {"f32", "bf16", "f16"};
	size_t bytes = (size_t)c->bytes;

	return (struct apply_figure){
	    .name = s->name,
	    .isa = s->isa,
	    .dtype = dtypes[s->dtype],
	    .us = (double)perf_percentile(s->ns, rounds, 5000) / 1e3,
	    .us_p99 = (double)perf_percentile(s->ns, rounds, 9900) / 1e3,
	    .us_max = (double)perf_percentile(s->ns, rounds, 10000) / 1e3,
	    .gb_per_s = gbs(s, c->grads, bytes, rounds, 5000),
	    .gb_per_s_p10 = gbs(s, c->grads, bytes, rounds, 9000),
	    .gb_per_s_p90 = gbs(s, c->grads, bytes, rounds, 1000),
	    .of_triad = s->ratio[rounds / 2],
	    .rounds = rounds,
	};
}

static float *array(size_t bytes, uint64_t seed)
{
	float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		err_set(ENOMEM, "no memory for an array of %zu bytes", bytes);
		return NULL;
	}
	/* Huge pages if there are any, as the server asks for them; refused is as good. */
	madvise(p, bytes, MADV_HUGEPAGE);
	kern_init_fill(KERN_INIT_UNIFORM, seed, -1, 1, 0, p, bytes / sizeof(float));
	return p;
}

static void free_array(float *p, size_t bytes)
{
	if (p)
		munmap(p, bytes);
}

static void free_arrays(const struct apply_config *c, struct arrays *a)
{
	free_array(a->w, c->bytes);
	free_array(a->out, c->bytes);
	for (unsigned k = 0; k < STATE_MAX; k++)
		free_array(a->state[k], c->bytes);
	for (unsigned k = 0; k < c->grads; k++)
		free_array(a->grads[k], c->bytes);
}

static int make_arrays(const struct apply_config *c, struct arrays *a)
{
	size_t bytes = (size_t)c->bytes;

	a->w = array(bytes, 1);
	a->out = array(bytes, 2);
	if (!a->w || !a->out)
		return -ENOMEM;
	for (unsigned k = 0; k < STATE_MAX; k++) {
		a->state[k] = array(bytes, 30 + k);
		if (!a->state[k])
			return -ENOMEM;
		/* Sums of squares among them. */
		for (size_t i = 0; i < bytes / sizeof(float); i++)
			a->state[k][i] = a->state[k][i] * a->state[k][i] + 0.1f;
	}
	for (unsigned k = 0; k < c->grads; k++) {
		a->grads[k] = array(bytes, 4 + k);
		if (!a->grads[k])
			return -ENOMEM;
	}
	return 0;
}

int apply_measure(const struct apply_config *config, struct apply_figure *figure, unsigned *n)
{
	static struct subject subjects[APPLY_SUBJECTS_MAX];
	struct arrays a = {0};
	struct crew *crew = NULL;

	*n = list_subjects(subjects);
	int rc = make_arrays(config, &a);
	if (rc == 0)
		rc = crew_create(config->threads, &crew);
	if (rc == 0) {
		unsigned rounds = measure(crew, config, subjects, *n, &a);

		for (unsigned i = 0; i < *n; i++)
			figure[i] = figure_of(&subjects[i], config, rounds);
	}
	crew_destroy(crew);
	free_arrays(config, &a);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_kernels: how fast the update loops run, for each rule, instruction set and size, beside
 * memcpy, STREAM's triad and OpenBLAS's saxpy, on one thread or several.
 *
 * A machine's memory speed changes with what else it does, so only figures of one run are compared,
 * and in that run everything takes turns: one round times each subject once. Bytes are those that a
 * loop must move: each array read or written counts once each way. The references are compiled like
 * the baseline (memcpy and saxpy pick what the CPU has by themselves).
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "kernels/kern.h"
#include "perf/crew.h"
#include "perf/percentile.h"

enum {
	SIZES_MAX = 16,
	GRADS_MAX = 16,
	STATE_MAX = 2, /* arrays of the rules at their defaults */
	SUBJECTS_MAX = 40,
	REFERENCES = 3,
	TRIAD = 1, /* among the references */
	ROUNDS_MIN = 9,
	ROUNDS_MAX = 301,
	/* Short work is repeated up to this many bytes, so that the clock's own cost doesn't count.
	 */
	WORK_BYTES = 4 << 20,
};

struct options {
	size_t sizes[SIZES_MAX];
	unsigned n_sizes, grads, threads, budget_ms;
	bool json;
};

struct arrays {
	float *w, *state[STATE_MAX], *out, *grads[GRADS_MAX];
};

struct subject {
	const char *name, *isa; /* isa is "" for references */
	void (*run)(const struct subject *s, const struct arrays *a, unsigned grads, size_t len);
	struct kern_opt opt;
	enum kern_dtype dtype; /* of the gradients, and of the copy of the weights if any */
	unsigned streams;      /* arrays read, plus arrays written, without the gradients */
	bool takes_grads;
	uint64_t ns[ROUNDS_MAX];  /* of one call */
	double ratio[ROUNDS_MAX]; /* to triad of the same round */
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

static uint64_t time_one(struct crew *crew, const struct options *o, const struct subject *s,
			 const struct arrays *a, size_t bytes)
{
	struct task task = {
	    .s = s,
	    .a = a,
	    .grads = o->grads,
	    .threads = o->threads,
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

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the number of rounds. */
static unsigned measure(struct crew *crew, const struct options *o, struct subject *s, unsigned n,
			const struct arrays *a, size_t bytes)
{
	uint64_t until;
	unsigned rounds = 0;

	for (unsigned i = 0; i < n; i++)
		time_one(crew, o, &s[i], a, bytes);
	until = clock_ns() + o->budget_ms * NS_PER_MS;
	while (rounds < ROUNDS_MIN || (rounds < ROUNDS_MAX && clock_ns() < until)) {
		for (unsigned i = 0; i < n; i++)
			s[i].ns[rounds] = time_one(crew, o, &s[i], a, bytes);
		for (unsigned i = 0; i < n; i++)
			s[i].ratio[rounds] =
			    moved(&s[i], o->grads, bytes) / (double)s[i].ns[rounds] /
			    (moved(&s[TRIAD], o->grads, bytes) / (double)s[TRIAD].ns[rounds]);
		rounds++;
	}
	for (unsigned i = 0; i < n; i++) {
		perf_sort(s[i].ns, rounds);
		qsort(s[i].ratio, rounds, sizeof(s[i].ratio[0]), by_value);
	}
	return rounds;
}

static double gbs(const struct subject *s, unsigned grads, size_t bytes, unsigned rounds,
		  unsigned per_10000)
{
	return moved(s, grads, bytes) / (double)perf_percentile(s->ns, rounds, per_10000);
}

/* ---- output ----------------------------------------------------------------------------- */

static const char *const dtypes[] = {"f32", "bf16", "f16"};

static void print_text(const struct options *o, const struct subject *s, unsigned n, size_t bytes,
		       unsigned rounds)
{
	printf("%zu KiB, %u gradient%s, %u thread%s, %u rounds\n", bytes / 1024, o->grads,
	       o->grads == 1 ? "" : "s", o->threads, o->threads == 1 ? "" : "s", rounds);
	for (unsigned i = 0; i < n; i++)
		printf("  %-16s %-9s %-4s %8.2f GB/s  (%.2f .. %.2f)  %5.2f of triad\n", s[i].name,
		       s[i].isa, dtypes[s[i].dtype], gbs(&s[i], o->grads, bytes, rounds, 5000),
		       gbs(&s[i], o->grads, bytes, rounds, 9000),
		       gbs(&s[i], o->grads, bytes, rounds, 1000), s[i].ratio[rounds / 2]);
}

/* One object a line. */
static void print_json(const struct options *o, const struct subject *s, unsigned n, size_t bytes,
		       unsigned rounds)
{
	for (unsigned i = 0; i < n; i++)
		printf("{\"name\": \"%s\", \"isa\": \"%s\", \"dtype\": \"%s\", \"bytes\": %zu, "
		       "\"gradients\": %u, \"threads\": %u, \"rounds\": %u, \"gb_per_s\": %.3f, "
		       "\"gb_per_s_p10\": %.3f, \"gb_per_s_p90\": %.3f, \"of_triad\": %.3f}\n",
		       s[i].name, s[i].isa, dtypes[s[i].dtype], bytes, o->grads, o->threads, rounds,
		       gbs(&s[i], o->grads, bytes, rounds, 5000),
		       gbs(&s[i], o->grads, bytes, rounds, 9000),
		       gbs(&s[i], o->grads, bytes, rounds, 1000), s[i].ratio[rounds / 2]);
}

/* ---- the program ------------------------------------------------------------------------ */

static const char help[] =
    "usage: perf_kernels [--sizes KIB,KIB,...] [--gradients N] [--threads N] [--budget MS] "
    "[--json]\n"
    "\n"
    "Measures the update loops of each optimizer and instruction set, beside memcpy,\n"
    "triad and OpenBLAS's saxpy, taking turns. Prints the median in 10^9 bytes a second,\n"
    "the range that holds 80 % of the rounds, and the median of the ratios to the same\n"
    "round's triad.\n"
    "\n"
    "  --sizes KIB,...   bytes of the weights, in KiB, 1 to 1048576, at most 16 sizes\n"
    "                    (4,16,64,256,1024,4096,16384,65536,262144)\n"
    "  --gradients N     gradients that an update merges, 1 to 16 (1)\n"
    "  --threads N       threads that share the arrays, 1 to 16 (1)\n"
    "  --budget MS       time for each size, and 9 rounds at least; 1 to 600000 (2000)\n"
    "  --json            one JSON object a line\n"
    "  --help            this text\n";

static int parse_number(const char *name, const char *text, char **end, unsigned max, unsigned *out)
{
	unsigned long v = *text >= '0' && *text <= '9' ? strtoul(text, end, 10) : 0;

	if (v < 1 || v > max)
		return err_set(EINVAL, "%s %s: must be 1 to %u", name, text, max);
	*out = (unsigned)v;
	return 0;
}

static int parse_sizes(struct options *o, const char *text)
{
	char *end;

	for (o->n_sizes = 0;; text = end + 1) {
		unsigned kib = 0;
		int rc;

		if (o->n_sizes == SIZES_MAX)
			return err_set(EINVAL, "--sizes: there may be at most %d", SIZES_MAX);
		rc = parse_number("--sizes", text, &end, 1 << 20, &kib);
		if (rc)
			return rc;
		o->sizes[o->n_sizes++] = (size_t)kib * 1024;
		if (*end == 0)
			return 0;
		if (*end != ',')
			return err_set(EINVAL, "--sizes: \"%s\" is not a comma", end);
	}
}

static int parse_one(const char *name, const char *text, unsigned max, unsigned *out)
{
	char *end = "";
	int rc = parse_number(name, text, &end, max, out);

	if (!rc && *end)
		return err_set(EINVAL, "%s %s: not a number", name, text);
	return rc;
}

/* Returns 1 when the program is done (--help). */
static int parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
	    {"sizes", required_argument, NULL, 's'},
	    {"gradients", required_argument, NULL, 'g'},
	    {"threads", required_argument, NULL, 't'},
	    {"budget", required_argument, NULL, 'b'},
	    {"json", no_argument, NULL, 'j'},
	    {"help", no_argument, NULL, 'h'},
	    {0},
	};
	int c, rc = 0;

	while (!rc && (c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			rc = parse_sizes(o, optarg);
			break;
		case 'g':
			rc = parse_one("--gradients", optarg, GRADS_MAX, &o->grads);
			break;
		case 't':
			rc = parse_one("--threads", optarg, CREW_MAX, &o->threads);
			break;
		case 'b':
			rc = parse_one("--budget", optarg, 600000, &o->budget_ms);
			break;
		case 'j':
			o->json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 1;
		default: /* getopt has said what it is */
			return err_set(EINVAL, "see --help");
		}
	}
	if (!rc && optind < argc)
		return err_set(EINVAL, "%s: there are no arguments, only options", argv[optind]);
	return rc;
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

static int make_arrays(const struct options *o, struct arrays *a)
{
	size_t bytes = 0;

	for (unsigned i = 0; i < o->n_sizes; i++)
		bytes = o->sizes[i] > bytes ? o->sizes[i] : bytes;
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
	for (unsigned k = 0; k < o->grads; k++) {
		a->grads[k] = array(bytes, 4 + k);
		if (!a->grads[k])
			return -ENOMEM;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = {
	    .sizes = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20,
		      256 << 20},
	    .n_sizes = 9,
	    .grads = 1,
	    .threads = 1,
	    .budget_ms = 2000,
	};
	static struct subject subjects[SUBJECTS_MAX];
	struct arrays a = {0};
	struct crew *crew = NULL;
	unsigned n;
	int rc = parse(argc, argv, &o);

	if (rc) {
		if (rc < 0)
			fprintf(stderr, "perf_kernels: %s\n", err_text());
		return rc < 0 ? 2 : 0;
	}
	n = list_subjects(subjects);
	if (make_arrays(&o, &a) || crew_create(o.threads, &crew)) {
		fprintf(stderr, "perf_kernels: %s\n", err_text());
		return 1;
	}
	for (unsigned i = 0; i < o.n_sizes; i++) {
		unsigned rounds = measure(crew, &o, subjects, n, &a, o.sizes[i]);

		(o.json ? print_json : print_text)(&o, subjects, n, o.sizes[i], rounds);
		fflush(stdout);
	}
	crew_destroy(crew);
	return 0;
}

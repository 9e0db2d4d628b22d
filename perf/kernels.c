/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_kernels: how fast the update loops run, for each rule, instruction set and size, beside
 * memcpy, STREAM's triad and OpenBLAS's saxpy.
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
#include "perf/percentile.h"

enum {
	SIZES_MAX = 16,
	GRADS_MAX = 16,
	SUBJECTS_MAX = 32,
	ROUNDS_MIN = 9,
	ROUNDS_MAX = 301,
	/* Short work is repeated up to this many bytes, so that the clock's own cost doesn't count.
	 */
	WORK_BYTES = 4 << 20,
};

struct options {
	size_t sizes[SIZES_MAX];
	unsigned n_sizes, grads, budget_ms;
	bool json;
};

struct arrays {
	float *w, *buf, *out, *grads[GRADS_MAX];
};

struct subject {
	const char *name, *isa; /* isa is "" for references */
	void (*run)(const struct subject *s, const struct arrays *a, unsigned grads, size_t len);
	struct kern_opt opt;
	float rate;
	unsigned streams; /* arrays read, plus arrays written, without the gradients */
	bool takes_grads;
	uint64_t ns[ROUNDS_MAX]; /* of one call */
};

/* ---- what is measured ------------------------------------------------------------------- */

static void run_memcpy(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	memcpy(a->out, a->grads[0], len * sizeof(float));
}

static void run_triad(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	float *restrict out = a->out;
	const float *restrict b = a->w, *restrict c = a->grads[0];

	for (size_t i = 0; i < len; i++)
		out[i] = b[i] + s->rate * c[i];
}

static void run_saxpy(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	kern_saxpy(len, -s->rate, a->grads[0], a->w);
}

static void run_apply(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	kern_apply_mean(&s->opt, 2, a->w, &a->buf, (const float *const *)a->grads, grads, len);
}

static void run_mean(const struct subject *s, const struct arrays *a, unsigned grads, size_t len)
{
	kern_mean(a->out, (const float *const *)a->grads, grads, len);
}

static unsigned list_subjects(struct subject *s)
{
	/* Small steps, so that the weights stay ordinary numbers however often they are taken. */
	static const float lr = 1e-6f;
	static const struct subject references[] = {
	    {.name = "memcpy", .isa = "", .run = run_memcpy, .streams = 2},
	    {.name = "triad", .isa = "", .run = run_triad, .streams = 3, .rate = lr},
	    {.name = "saxpy", .isa = "", .run = run_saxpy, .streams = 3, .rate = lr},
	};
	static const struct subject loops[] = {
	    {.name = "sgd", .run = run_apply, .streams = 2},
	    {.name = "momentum",
	     .run = run_apply,
	     .streams = 4},
	    {.name = "nesterov",
	     .run = run_apply,
	     .streams = 4},
	    {.name = "mean", .run = run_mean, .streams = 1},
	};
	const struct kern_setting setting = {"lr", lr};
	unsigned n = 0;

	for (unsigned i = 0; i < 3; i++)
		s[n++] = references[i];
	for (unsigned l = 0; l < 4; l++)
		for (unsigned i = 0; kern_isa_at(i); i++) {
			if (kern_isa_use(kern_isa_at(i)))
				continue; /* this CPU lacks it */
			s[n] = loops[l];
			if (loops[l].run == run_apply &&
			    kern_opt_parse(loops[l].name, &setting, 1, &s[n].opt))
				abort();
			s[n].isa = kern_isa_at(i);
			s[n++].takes_grads = true;
		}
	return n;
}

/* ---- timing ----------------------------------------------------------------------------- */

/* This thread's own time: what other processes do on its core in between doesn't count. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t time_one(const struct subject *s, const struct arrays *a, unsigned grads,
			 size_t bytes)
{
	unsigned times = bytes < WORK_BYTES ? (unsigned)(WORK_BYTES / bytes) : 1;
	uint64_t began;

	/* The set was tried when the subjects were listed. */
	if (s->isa[0] && kern_isa_use(s->isa))
		abort();
	/* Once beforehand: what fits in a cache is there. */
	if (times > 1)
		s->run(s, a, grads, bytes / sizeof(float));
	began = cpu_ns();
	for (unsigned i = 0; i < times; i++) {
		s->run(s, a, grads, bytes / sizeof(float));
		__asm__ volatile("" ::: "memory");
	}
	return (cpu_ns() - began) / times;
}

/* Returns the number of rounds. */
static unsigned measure(const struct options *o, struct subject *s, unsigned n,
			const struct arrays *a, size_t bytes)
{
	uint64_t until;
	unsigned rounds = 0;

	for (unsigned i = 0; i < n; i++)
		time_one(&s[i], a, o->grads, bytes);
	until = clock_ns() + o->budget_ms * NS_PER_MS;
	while (rounds < ROUNDS_MIN || (rounds < ROUNDS_MAX && clock_ns() < until)) {
		for (unsigned i = 0; i < n; i++)
			s[i].ns[rounds] = time_one(&s[i], a, o->grads, bytes);
		rounds++;
	}
	for (unsigned i = 0; i < n; i++)
		perf_sort(s[i].ns, rounds);
	return rounds;
}

static double gbs(const struct subject *s, unsigned grads, size_t bytes, unsigned rounds,
		  unsigned per_10000)
{
	double streams = s->streams + (s->takes_grads ? grads : 0);

	return streams * (double)bytes / (double)perf_percentile(s->ns, rounds, per_10000);
}

/* ---- output ----------------------------------------------------------------------------- */

static void print_text(const struct options *o, const struct subject *s, unsigned n, size_t bytes,
		       unsigned rounds)
{
	const double memcpy_gbs = gbs(&s[0], o->grads, bytes, rounds, 5000);

	printf("%zu KiB, %u gradient%s, %u rounds\n", bytes / 1024, o->grads,
	       o->grads == 1 ? "" : "s", rounds);
	for (unsigned i = 0; i < n; i++)
		printf("  %-10s %-9s %8.2f GB/s  (%.2f .. %.2f)  %5.2f of memcpy\n", s[i].name,
		       s[i].isa, gbs(&s[i], o->grads, bytes, rounds, 5000),
		       gbs(&s[i], o->grads, bytes, rounds, 9000),
		       gbs(&s[i], o->grads, bytes, rounds, 1000),
		       gbs(&s[i], o->grads, bytes, rounds, 5000) / memcpy_gbs);
}

/* One object a line. */
static void print_json(const struct options *o, const struct subject *s, unsigned n, size_t bytes,
		       unsigned rounds)
{
	for (unsigned i = 0; i < n; i++)
		printf("{\"name\": \"%s\", \"isa\": \"%s\", \"bytes\": %zu, \"gradients\": %u, "
		       "\"rounds\": %u, \"gb_per_s\": %.3f, \"gb_per_s_p10\": %.3f, "
		       "\"gb_per_s_p90\": %.3f}\n",
		       s[i].name, s[i].isa, bytes, o->grads, rounds,
		       gbs(&s[i], o->grads, bytes, rounds, 5000),
		       gbs(&s[i], o->grads, bytes, rounds, 9000),
		       gbs(&s[i], o->grads, bytes, rounds, 1000));
}

/* ---- the program ------------------------------------------------------------------------ */

static const char help[] =
    "usage: perf_kernels [--sizes KIB,KIB,...] [--gradients N] [--budget MS] [--json]\n"
    "\n"
    "Measures the update loops of each optimizer and instruction set, beside memcpy,\n"
    "triad and OpenBLAS's saxpy, taking turns. Prints the median in 10^9 bytes a second,\n"
    "and the range that holds 80 % of the rounds.\n"
    "\n"
    "  --sizes KIB,...   bytes of the weights, in KiB, 1 to 1048576, at most 16 sizes\n"
    "                    (4,16,64,256,1024,4096,16384,65536,262144)\n"
    "  --gradients N     gradients that an update merges, 1 to 16 (1)\n"
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
	    {"sizes", required_argument, NULL, 's'},  {"gradients", required_argument, NULL, 'g'},
	    {"budget", required_argument, NULL, 'b'}, {"json", no_argument, NULL, 'j'},
	    {"help", no_argument, NULL, 'h'},         {0},
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
	a->buf = array(bytes, 2);
	a->out = array(bytes, 3);
	if (!a->w || !a->buf || !a->out)
		return -ENOMEM;
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
	    .budget_ms = 2000,
	};
	static struct subject subjects[SUBJECTS_MAX];
	struct arrays a = {0};
	unsigned n;
	int rc = parse(argc, argv, &o);

	if (rc) {
		if (rc < 0)
			fprintf(stderr, "perf_kernels: %s\n", err_text());
		return rc < 0 ? 2 : 0;
	}
	n = list_subjects(subjects);
	if (make_arrays(&o, &a)) {
		fprintf(stderr, "perf_kernels: %s\n", err_text());
		return 1;
	}
	for (unsigned i = 0; i < o.n_sizes; i++) {
		unsigned rounds = measure(&o, subjects, n, &a, o.sizes[i]);

		(o.json ? print_json : print_text)(&o, subjects, n, o.sizes[i], rounds);
		fflush(stdout);
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench apply`: the update loops alone, with no server and no trainers.
 */
#include "cli/bench.h"
#include "cli/json.h"
#include "cli/numlist.h"
#include "cli/opt.h"
#include "cli/plot.h"

#include "base/err.h"
#include "base/log.h"
#include "perf/apply.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct bench {
	struct numlist sizes;
	int64_t grads, threads, iters, duration_s;
	bool json;
	const char *plot;
	struct plot *picture; /* NULL: none is wanted */
};

static void print_table(const struct bench *b, int64_t bytes, const struct apply_figure *f,
			unsigned n)
{
	char size[32];

	printf("%s of weights, %" PRId64 " gradient%s, %" PRId64 " thread%s, %u rounds\n",
	       opt_size_text(bytes, size), b->grads, b->grads == 1 ? "" : "s", b->threads,
	       b->threads == 1 ? "" : "s", f[0].rounds);
	printf("  %-16s %-9s %-5s %12s %12s %12s %9s %17s %9s\n", "rule", "set", "dtype", "us p50",
	       "p99", "max", "GB/s", "80 % of rounds", "of triad");
	for (unsigned i = 0; i < n; i++)
		printf("  %-16s %-9s %-5s %12.2f %12.2f %12.2f %9.2f %8.2f-%-8.2f %9.2f\n",
		       f[i].name, f[i].isa, f[i].dtype, f[i].us, f[i].us_p99, f[i].us_max,
		       f[i].gb_per_s, f[i].gb_per_s_p10, f[i].gb_per_s_p90, f[i].of_triad);
	printf("\n");
	fflush(stdout);
}

static json_t *figure_json(const struct apply_figure *f)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:{s:f, s:f, s:f}, s:f, s:f, s:f, s:f}", "rule",
			 f->name, "isa", f->isa, "dtype", f->dtype, "samples",
			 (json_int_t)f->rounds, "us", "p50", f->us, "p99", f->us_p99, "max",
			 f->us_max, "gb_per_s", f->gb_per_s, "gb_per_s_p10", f->gb_per_s_p10,
			 "gb_per_s_p90", f->gb_per_s_p90, "of_triad", f->of_triad);
}

static void add_point(json_t *points, int64_t bytes, const struct apply_figure *f, unsigned n)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, figure_json(&f[i]));
	json_array_append_new(points,
			      json_pack("{s:I, s:o}", "bytes", (json_int_t)bytes, "rules", list));
}

/* ---- the picture ---------------------------------------------------------------------------- */

/* The references and the rules as boxes: one group a rule, one box a size. Data are
 * written as they come, what is drawn of them at the end. */
static void draw_size(const struct bench *b, unsigned i, const struct apply_figure *f, unsigned n)
{
	FILE *to = plot_script(b->picture);

	fprintf(to, "$size%u << EOD\n", i);
	for (unsigned k = 0; k < n; k++)
		fprintf(to, "\"%s %s%s%s\" %.6g\n", f[k].name, f[k].isa,
			strcmp(f[k].dtype, "f32") ? " " : "",
			strcmp(f[k].dtype, "f32") ? f[k].dtype : "", f[k].gb_per_s);
	fprintf(to, "EOD\n");
}

static int draw(const struct bench *b)
{
	FILE *to = plot_script(b->picture);
	char size[32];

	fprintf(to,
		"set title 'gradslot bench apply, gradients: %" PRId64 ", threads: %" PRId64 "'\n",
		b->grads, b->threads);
	fprintf(to, "set style data histograms\nset style fill solid 0.8\nset xtics rotate by -60 "
		    "noenhanced\n"
		    "set grid ytics\nset yrange [0:*]\nset xlabel 'rule, and instruction set'\n"
		    "set ylabel 'GB/s (10^{9} bytes a second)'\nset key outside right top Left "
		    "reverse\nplot ");
	for (unsigned i = 0; i < b->sizes.n; i++)
		fprintf(to, "%s$size%u using 2:xtic(1) title '%sB of weights'", i ? ", " : "", i,
			opt_size_text(b->sizes.value[i], size));
	fprintf(to, "\n");
	return plot_end(b->picture);
}

/* ---- measuring ------------------------------------------------------------------------------ */

static int measure(const struct bench *b, json_t *points)
{
	struct apply_figure f[APPLY_SUBJECTS_MAX];
	unsigned n;

	for (unsigned i = 0; i < b->sizes.n; i++) {
		const struct apply_config c = {
		    .bytes = (uint64_t)b->sizes.value[i],
		    .grads = (unsigned)b->grads,
		    .threads = (unsigned)b->threads,
		    .rounds = (unsigned)b->iters,
		    .duration_ms = (unsigned)(b->duration_s * 1000),
		};
		int rc = apply_measure(&c, f, &n);

		if (rc < 0)
			return rc;
		if (b->json)
			add_point(points, b->sizes.value[i], f, n);
		else
			print_table(b, b->sizes.value[i], f, n);
		if (b->picture)
			draw_size(b, i, f, n);
	}
	return b->picture ? draw(b) : 0;
}

static int run(struct bench *b)
{
	json_t *points = json_array();
	int rc = b->plot ? plot_begin(b->plot, &b->picture) : 0;

	if (rc == 0)
		rc = measure(b, points);

	if (rc == 0 && b->json)
		return json_result(json_pack("{s:s, s:{s:I, s:I, s:I, s:I}, s:o}", "benchmark",
					     "apply", "config", "gradients", (json_int_t)b->grads,
					     "threads", (json_int_t)b->threads, "iters",
					     (json_int_t)b->iters, "duration_s",
					     (json_int_t)b->duration_s, "points", points));
	json_decref(points);
	return rc;
}

int bench_apply(int argc, char **argv)
{
	struct bench b = {
	    .sizes = {.value = {16 << 10, 1 << 20, 64 << 20},
		      .n = 3,
		      .min = 1 << 10,
		      .max = 1 << 30,
		      .multiple = 1 << 10,
		      .sizes = true},
	    .grads = 1,
	    .threads = 1,
	    .iters = APPLY_ROUNDS_MIN,
	    .duration_s = 2,
	};
	const struct opt opts[] = {
	    {"size", OPT_PARSED, &b.sizes, "LIST",
	     "bytes of weights: 4K, or 4K,64K,1M, or 4K:4M for powers of two",
	     .parse = numlist_parse, .shown = "16K,1M,64M"},
	    {"gradients", OPT_NUMBER, &b.grads, "N", "that an update merges", .min = 1,
	     .max = APPLY_GRADS_MAX},
	    {"threads", OPT_NUMBER, &b.threads, "N", "that share the arrays", .min = 1,
	     .max = APPLY_THREADS_MAX},
	    {"iters", OPT_NUMBER, &b.iters, "N", "rounds; with --duration: at least", .min = 1,
	     .max = APPLY_ROUNDS_MAX},
	    {"duration", OPT_NUMBER, &b.duration_s, "SECONDS",
	     "for each size, and up to 301 rounds; 0: --iters alone says", .min = 0, .max = 3600},
	    {"json", OPT_FLAG, &b.json, NULL, .help = "print the result as one JSON object"},
	    {"plot", OPT_TEXT, &b.plot, "FILE.svg", .help = "draw the figures, with gnuplot"},
	    {NULL},
	};
	const struct opt_command cmd = {"gradslot bench apply",
					"Times the update loops of each optimizer and instruction "
					"set, beside memcpy, triad and\n"
					"OpenBLAS's saxpy, taking turns.",
					"GB/s: what a loop must move, by the median; of triad: the "
					"median of the ratios to the same\n"
					"round's triad.\n",
					opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	if (b.plot && plot_check(b.plot) < 0)
		return opt_usage(&cmd, "--plot %s: %s", b.plot, err_text());
	rc = run(&b);
	if (rc < 0)
		log_error("%s", err_text());
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}

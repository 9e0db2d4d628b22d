/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep as a picture: times, or rates, over what was swept.
 */
#include "cli/bench_frame.h"

#include "cli/plot.h"

#include <inttypes.h>
#include <string.h>

/* What the x axis is: what has most values. */
enum axis { BYTES, COUNT, TRAINERS };

static int64_t value_of(const struct bench_point *p, enum axis axis)
{
	return axis == BYTES ? p->bytes : axis == COUNT ? p->params : p->trainers;
}

static enum axis pick_axis(const struct bench_frame *f)
{
	if (f->sizes.n >= f->params.n && f->sizes.n >= f->trainers.n)
		return BYTES;
	return f->params.n >= f->trainers.n ? COUNT : TRAINERS;
}

static const char *value_text(int64_t value, enum axis axis, char buf[32])
{
	if (axis == BYTES)
		return opt_size_text(value, buf);
	snprintf(buf, 32, "%" PRId64, value);
	return buf;
}

/* Two points of one curve: alike but for where they are on the axis. */
static bool same_curve(const struct bench_point *a, const struct bench_point *b, enum axis axis)
{
	for (enum axis k = BYTES; k <= TRAINERS; k++) {
		if (k != axis && value_of(a, k) != value_of(b, k))
			return false;
	}
	return true;
}

static bool first_of_curve(const struct bench_point *p, unsigned i, enum axis axis)
{
	for (unsigned k = 0; k < i; k++) {
		if (same_curve(&p[k], &p[i], axis))
			return false;
	}
	return true;
}

/* A block of data a curve, named by its first point: x, GB/s, units/s, and each series' p50 and
 * p99. */
static void print_data(FILE *to, const struct bench_frame *f, const struct bench_point *p,
		       unsigned n, enum axis axis)
{
	for (unsigned i = 0; i < n; i++) {
		if (!first_of_curve(p, i, axis))
			continue;
		fprintf(to, "$curve%u << EOD\n", i);
		for (unsigned k = i; k < n; k++) {
			if (!same_curve(&p[i], &p[k], axis))
				continue;
			fprintf(to, "%" PRId64 " %.6g %.6g", value_of(&p[k], axis), p[k].gb_per_s,
				p[k].per_s);
			for (unsigned s = 0; f->loop->series[s]; s++)
				fprintf(to, " %.6g %.6g", bench_us(&p[k], s, 5000),
					bench_us(&p[k], s, 9900));
			fprintf(to, "\n");
		}
		fprintf(to, "EOD\n");
	}
}

/* What tells this curve from others: "16 params, 4 trainers". */
static void print_curve_name(FILE *to, const struct bench_frame *f, const struct bench_point *p,
			     enum axis axis)
{
	char size[32];

	if (axis != BYTES && f->sizes.n > 1)
		fprintf(to, ", %sB", opt_size_text(p->bytes, size));
	if (axis != COUNT && f->params.n > 1)
		fprintf(to, ", %" PRId64 " %s", p->params, f->loop->count);
	if (axis != TRAINERS && f->trainers.n > 1)
		fprintf(to, ", trainers: %" PRId64, p->trainers);
}

/* Of the point that begins a curve; *color goes on from curve to curve. */
static void print_times(FILE *to, const struct bench_frame *f, const struct bench_point *p,
			unsigned i, enum axis axis, unsigned *color)
{
	for (unsigned s = 0; f->loop->series[s]; s++) {
		fprintf(
		    to,
		    "%s$curve%u using 1:%u with linespoints lw 2 pt 7 ps 0.6 lc %u title '%s, p50",
		    *color ? ", " : "", i, 2 * s + 4, *color + 1, f->loop->series[s]);
		print_curve_name(to, f, &p[i], axis);
		fprintf(to, "', $curve%u using 1:%u with lines lw 1 dt 2 lc %u title '%s, p99", i,
			2 * s + 5, *color + 1, f->loop->series[s]);
		print_curve_name(to, f, &p[i], axis);
		fprintf(to, "'");
		++*color;
	}
}

static void print_rates(FILE *to, const struct bench_frame *f, const struct bench_point *p,
			unsigned i, enum axis axis, unsigned *color)
{
	fprintf(to, "%s$curve%u using 1:2 with linespoints lw 2 pt 7 ps 0.6 lc %u title 'GB/s",
		*color ? ", " : "", i, *color + 1);
	print_curve_name(to, f, &p[i], axis);
	fprintf(to,
		"', $curve%u using 1:3 axes x1y2 with linespoints lw 2 dt 2 pt 6 ps 0.6 lc %u "
		"title '%s/s",
		i, *color + 2, f->loop->unit);
	print_curve_name(to, f, &p[i], axis);
	fprintf(to, "'");
	*color += 2;
}

/* A mark for each value that was measured. */
static void print_ticks(FILE *to, const struct bench_point *p, unsigned n, enum axis axis)
{
	double least = (double)value_of(&p[0], axis), most = least;
	unsigned marks = 0;
	char text[32];

	fprintf(to, "set xtics (");
	for (unsigned i = 0; i < n; i++) {
		double value = (double)value_of(&p[i], axis);

		if (!same_curve(&p[0], &p[i], axis))
			continue;
		fprintf(to, "%s'%s' %.0f", marks++ ? ", " : "",
			value_text(value_of(&p[i], axis), axis, text), value);
		least = value < least ? value : least;
		most = value > most ? value : most;
	}
	fprintf(to, ")%s\nset xrange [%g:%g]\n", marks > 8 ? " rotate by -45" : "", least / 1.3,
		most * 1.3);
}

static void print_axes(FILE *to, const struct bench_frame *f, const struct bench_point *p,
		       unsigned n, enum axis axis)
{
	bool rows = !strcmp(f->loop->count, "rows");
	const char *labels[] = {rows ? "bytes of a row" : "bytes of each parameter",
				rows ? "rows at once" : "parameters", "trainers"};

	fprintf(to, "set logscale x\nset xlabel '%s'\n", labels[axis]);
	print_ticks(to, p, n, axis);
	fprintf(to, "set grid\nset key outside right top Left reverse\n");
	if (f->loop->rates)
		fprintf(
		    to,
		    "set ylabel 'GB/s (10^{9} bytes a second)'\nset yrange [0:*]\nset ytics "
		    "nomirror\n"
		    "set y2label '%s a second'\nset logscale y2\nset y2tics format '%%.0s%%c'\n",
		    f->loop->unit);
	else
		fprintf(to, "set ylabel 'time, µs'\nset logscale y\n");
}

static void print_title(FILE *to, const struct bench_frame *f, const struct bench_point *p)
{
	char title[256];

	snprintf(title, sizeof(title), "gradslot bench %s over %s, %s", f->name, p->transport,
		 bench_modes[f->mode]);
	/* Names of devices have underscores, which would lower what follows. */
	fprintf(to, "set title ");
	plot_print_quoted(to, title);
	fprintf(to, " noenhanced\n");
}

int bench_plot(const struct bench_frame *f, const struct bench_point *p, unsigned n)
{
	enum axis axis = pick_axis(f);
	unsigned color = 0;
	struct plot *plot;
	int rc = plot_begin(f->plot, &plot);

	if (rc < 0)
		return rc;
	FILE *to = plot_script(plot);
	print_title(to, f, p);
	print_data(to, f, p, n, axis);
	print_axes(to, f, p, n, axis);
	fprintf(to, "plot ");
	for (unsigned i = 0; i < n; i++) {
		if (first_of_curve(p, i, axis))
			(f->loop->rates ? print_rates : print_times)(to, f, p, i, axis, &color);
	}
	fprintf(to, "\n");
	return plot_end(plot);
}

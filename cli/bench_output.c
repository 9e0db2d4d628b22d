/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures, for people and for programs.
 */
#include "cli/bench_frame.h"

#include "base/err.h"
#include "cli/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- for people ----------------------------------------------------------------------------- */

static const char *spin_text(const struct bench_frame *f, char buf[32])
{
	if (f->server.opt.spin_us == SRV_SPIN_FOREVER)
		return "forever";
	snprintf(buf, 32, "%" PRId64 " us", f->server.opt.spin_us);
	return buf;
}

void bench_print_head(const struct bench_frame *f, const struct bench_point *first)
{
	char spin[32], block[32], rate[32];

	snprintf(rate, sizeof(rate), "%s/s", f->loop->unit);

	printf("gradslot bench %s\n", f->name);
	printf("  transport  %-28s mode    %s\n", first->transport, bench_modes[f->mode]);
	printf("  gradient   %-28s read    %s\n", f->copy ? "copied" : "zero copy",
	       bench_reads[f->read]);
	printf("  depth      %-28" PRIu32 " blocks  %s\n", first->slots,
	       f->connect ? "the server's" : opt_size_text(f->server.block, block));
	if (f->connect)
		printf("  server     %-28s spin    %s\n", f->connect, spin_text(f, spin));
	else
		printf("  pollers    %-3" PRId64 " workers %-16" PRId64 " spin    %s\n",
		       f->server.opt.pollers, f->server.opt.workers, spin_text(f, spin));
	printf("\n%9s %6s %8s  %-9s %8s %9s %9s %9s %9s %9s %13s %9s %10s %9s\n", "bytes",
	       f->loop->count, "trainers", "us of", "samples", "p50", "p99", "p99.9", "max", "GB/s",
	       rate, "server us", "trainer us", "core ns");
}

/* A figure that there may not be. */
static const char *maybe(double value, const char *fmt, char buf[32])
{
	if (isnan(value))
		return "-";
	snprintf(buf, 32, fmt, value);
	return buf;
}

static bool is_trip(const struct bench_frame *f, const struct bench_point *p, unsigned k)
{
	enum peer_trip trip = f->loop->trip[k];

	return trip == PEER_TRIP || (trip == PEER_TRIP_REMOTE && strcmp(p->transport, "shm"));
}

void bench_print_point(const struct bench_frame *f, const struct bench_point *p)
{
	char server[32], core[32], mark[40];
	bool moved;
	double probe = bench_probe_ns(p, &moved);

	for (unsigned k = 0; f->loop->series[k]; k++) {
		printf("%9" PRId64 " %6" PRId64 " %8" PRId64 "  %-9s %8zu %9.2f %9.2f %9.2f %9.2f",
		       p->bytes, p->params, p->trainers, f->loop->series[k], p->n,
		       bench_us(p, k, 5000), bench_us(p, k, 9900), bench_us(p, k, 9990),
		       bench_us(p, k, 10000));
		if (k == 0) {
			snprintf(mark, sizeof(mark), "%s%s", maybe(probe, "%.0f", core),
				 moved ? "*" : "");
			printf(" %9.3f %13.0f %9s %10.3f %9s", p->gb_per_s, p->per_s,
			       maybe(p->server_cpu_us, "%.3f", server), p->cpu_us, mark);
		}
		if (is_trip(f, p, k))
			printf("  one way, estimated: %.2f", bench_us(p, k, 5000) / 2);
		if (k == 1 && f->one)
			printf("  %s of many is %.2f times that of one", f->loop->series[0],
			       bench_us(p, 0, 5000) / bench_us(p, 1, 5000));
		printf("\n");
	}
}

void bench_print_notes(const struct bench_frame *f, const struct bench_point *p, unsigned n)
{
	bool any = false, moved;

	for (unsigned i = 0; i < n; i++) {
		bench_probe_ns(&p[i], &moved);
		any |= moved;
	}
	printf("\nserver us, trainer us: CPU time of each of the %s. core ns: a cache line from "
	       "core to "
	       "core, one way.\n",
	       f->loop->unit);
	if (any)
		printf("*: it changed meanwhile, or two cores were not free: don't compare this "
		       "point with "
		       "others.\n");
	if (isnan(p[0].instr))
		printf("Instructions are not counted here; see perf/cost.\n");
	else
		printf(
		    "Instructions of each of them, at the first point: server %.0f, trainer %.0f\n",
		    p[0].server_instr, p[0].instr);
}

/* ---- for programs --------------------------------------------------------------------------- */

static json_t *real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static json_t *series_json(const struct bench_frame *f, const struct bench_point *p)
{
	json_t *all = json_object();

	for (unsigned k = 0; f->loop->series[k]; k++) {
		double mean = 0;

		for (size_t i = 0; i < p->n; i++)
			mean += (double)p->ns[k][i] / 1e3 / (double)p->n;
		json_object_set_new(
		    all, f->loop->series[k],
		    json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o*}", "p50",
			      bench_us(p, k, 5000), "p90", bench_us(p, k, 9000), "p99",
			      bench_us(p, k, 9900), "p99_9", bench_us(p, k, 9990), "min",
			      bench_us(p, k, 0), "max", bench_us(p, k, 10000), "mean", mean,
			      "one_way_estimate",
			      is_trip(f, p, k) ? json_real(bench_us(p, k, 5000) / 2) : NULL));
	}
	return all;
}

static json_t *point_json(const struct bench_frame *f, const struct bench_point *p)
{
	json_t *probes = json_array();
	bool moved;
	double probe = bench_probe_ns(p, &moved);

	for (unsigned i = 0; i < p->n_probes; i++)
		json_array_append_new(probes, real(p->probe[i]));
	return json_pack(
	    "{s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:o, s:f, s:o, s:o, s:o, s:o, s:b, s:o*}",
	    "bytes", (json_int_t)p->bytes, f->loop->count, (json_int_t)p->params, "trainers",
	    (json_int_t)p->trainers, "blocks", (json_int_t)p->blocks, "samples", (json_int_t)p->n,
	    "us", series_json(f, p), "gb_per_s", p->gb_per_s, "per_s", p->per_s, "server_cpu_us",
	    real(p->server_cpu_us), "trainer_cpu_us", p->cpu_us, "server_instructions",
	    real(p->server_instr), "trainer_instructions", real(p->instr), "core_to_core_ns",
	    real(probe), "core_to_core_ns_each", probes, "core_to_core_moved", (int)moved, "to_one",
	    f->one ? json_real(bench_us(p, 0, 5000) / bench_us(p, 1, 5000)) : NULL);
}

static json_t *config_json(const struct bench_frame *f, const struct bench_point *first)
{
	const struct srvopt *s = &f->server.opt;

	return json_pack(
	    "{s:s, s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:s*}",
	    "transport", first->transport, "mode", bench_modes[f->mode], "read",
	    bench_reads[f->read], "copy", (int)f->copy, "many", (int)f->many, "depth",
	    (json_int_t)first->slots, "block_size", (json_int_t)f->server.block, "pollers",
	    (json_int_t)s->pollers, "workers", (json_int_t)s->workers, "spin",
	    s->spin_us == SRV_SPIN_FOREVER ? json_string("forever") : json_integer(s->spin_us),
	    "warmup", (json_int_t)f->warmup, "iters", (json_int_t)f->iters, "duration_s",
	    (json_int_t)f->duration_s, "rounds", (json_int_t)f->rounds, "connect", f->connect);
}

int bench_print_json(const struct bench_frame *f, const struct bench_point *p, unsigned n)
{
	json_t *points = json_array();

	for (unsigned i = 0; i < n; i++)
		json_array_append_new(points, point_json(f, &p[i]));
	return json_result(json_pack("{s:s, s:s, s:o, s:o}", "benchmark", f->name, "unit",
				     f->loop->unit, "config", config_json(f, &p[0]), "points",
				     points));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_reference: what this machine itself takes for what a step is made of. One measurement a
 * call, one JSON object, so that perf/compare can take it between the steps that it is to be
 * compared with.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "perf/crew.h"
#include "perf/exchange.h"
#include "perf/floor.h"
#include "perf/percentile.h"
#include "perf/probe.h"
#include "perf/wake.h"

static const char help[] =
    "usage: perf_reference probe                            a cache line, core to core, one way\n"
    "       perf_reference wake TRIPS                       two processes wake each other, both "
    "ways\n"
    "       perf_reference exchange BYTES STEPS             a bare, hand-written step, spinning\n"
    "       perf_reference tsc                              the rate of the time stamp counter\n"
    "       perf_reference floor BYTES OPTIMIZER TRAINERS MS THREADS\n"
    "                                                       the memory's part of a step\n"
    "\n"
    "Prints one JSON object; perf/METHOD.md says what is measured.\n";

enum { STEPS_MAX = 1000000 };

static int number(const char *what, const char *text, size_t max, size_t *out)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || v < 1 || v > max)
		return err_set(EINVAL, "%s %s: must be 1 to %zu", what, text, max);
	*out = v;
	return 0;
}

static int probe(char **arg)
{
	double ns = probe_core_to_core_ns();

	if (isnan(ns))
		printf("{\"ns\": null}\n"); /* one core, or none that was free */
	else
		printf("{\"ns\": %.1f}\n", ns);
	return 0;
}

static int wake(char **arg)
{
	size_t trips = 0;
	double us, apart;
	int rc = number("TRIPS", arg[0], STEPS_MAX, &trips);

	if (rc)
		return rc;
	/* The other process stays on its core; this one goes where the scheduler likes, or stays too. */
	us = wake_round_trip_us((unsigned)trips);
	wake_pin(0);
	apart = wake_round_trip_us((unsigned)trips);
	if (!(us > 0 && apart > 0))
		return err_set(EIO, "two processes could not wake one another");
	printf("{\"p50_us\": %.3f, \"apart_us\": %.3f}\n", us, apart);
	return 0;
}

static int exchange(char **arg)
{
	size_t bytes = 0, steps = 0;
	int rc = number("BYTES", arg[0], (size_t)1 << 30, &bytes);

	if (rc == 0)
		rc = number("STEPS", arg[1], STEPS_MAX, &steps);
	if (rc)
		return rc;
	uint64_t *ns = calloc(steps, sizeof(*ns));
	rc = ns ? exchange_steps(bytes, ns, steps) : err_set(ENOMEM, "no memory for the times");
	if (rc == 0) {
		perf_sort(ns, steps);
		printf("{\"p50_us\": %.3f, \"p99_us\": %.3f, \"samples\": %zu}\n",
		       (double)perf_percentile(ns, steps, 5000) / 1e3,
		       (double)perf_percentile(ns, steps, 9900) / 1e3, steps);
	}
	free(ns);
	return rc;
}

static int floor_of_step(char **arg)
{
	struct floor_job job = {.optimizer = arg[1]};
	struct floor_parts p;
	size_t trainers = 0, ms = 0, threads = 0;
	int rc = number("BYTES", arg[0], (size_t)1 << 30, &job.bytes);

	if (rc == 0)
		rc = number("TRAINERS", arg[2], FLOOR_TRAINERS_MAX, &trainers);
	if (rc == 0)
		rc = number("MS", arg[3], 60000, &ms);
	if (rc == 0)
		rc = number("THREADS", arg[4], CREW_MAX, &threads);
	if (rc)
		return rc;
	job.trainers = (unsigned)trainers;
	job.budget_ms = (unsigned)ms;
	job.threads = (unsigned)threads;
	rc = floor_measure(&job, &p);
	if (rc)
		return rc;
	printf("{\"in_us\": %.3f, \"update_us\": %.3f, \"out_us\": %.3f, \"read_us\": %.3f, "
	       "\"view_us\": %.3f, \"pull_us\": %.3f, \"copy_us\": %.3f, \"threads\": %u}\n",
	       p.in, p.update, p.out, p.read, floor_total(&p, FLOOR_VIEW),
	       floor_total(&p, FLOOR_PULL), floor_total(&p, FLOOR_COPY), job.threads);
	return 0;
}

/* What an emulated processor's counter runs at, too. */
static int tsc(char **arg)
{
#if defined(__x86_64__)
	const struct timespec pause = {.tv_nsec = 100 * NS_PER_MS};
	uint64_t ns = clock_ns(), ticks = __builtin_ia32_rdtsc();

	nanosleep(&pause, NULL);
	ns = clock_ns() - ns;
	ticks = __builtin_ia32_rdtsc() - ticks;
	printf("{\"khz\": %.0f}\n", (double)ticks / (double)ns * 1e6);
#else
	printf("{\"khz\": null}\n");
#endif
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int args, (*run)(char **arg);
	} commands[] = {
	    {"probe", 0, probe},
	    {"wake", 1, wake},
	    {"exchange", 2, exchange},
	    {"tsc", 0, tsc},
	    {"floor", 5, floor_of_step},
	};

	if (argc > 1 && !strcmp(argv[1], "--help")) {
		fputs(help, stdout);
		return 0;
	}
	for (unsigned i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(argv[1], commands[i].name) || argc - 2 != commands[i].args)
			continue;
		if (commands[i].run(argv + 2) == 0)
			return 0;
		fprintf(stderr, "perf_reference %s: %s\n", argv[1], err_text());
		return 1;
	}
	fputs(help, stderr);
	return 2;
}

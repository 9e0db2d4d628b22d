/* SPDX-License-Identifier: Apache-2.0
 *
 * The script in force. A replaced one is kept: another thread may be looking at it.
 */
#include "rules.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

struct live {
	struct fault_script script;
	uint64_t generation;
	atomic_uint_fast64_t seen[FAULT_RULES]; /* times that the rule was looked at */
	atomic_uint_fast64_t done[FAULT_ACTIONS];
	atomic_uint_fast64_t reached[FAULT_POINTS];
	atomic_uint_fast64_t threads; /* that have drawn a number */
	struct live *before;
};

static struct live none = {.script.seed = 1};
static _Atomic(struct live *) now = &none;
static bool trace;

static struct live *live(void)
{
	return atomic_load_explicit(&now, memory_order_acquire);
}

int faults_set(const char *text)
{
	struct live *l = calloc(1, sizeof(*l));
	int rc = fault_script_parse(text ? text : "", &l->script);

	if (rc < 0) {
		free(l);
		return rc;
	}
	l->before = live();
	l->generation = l->before->generation + 1;
	atomic_store_explicit(&now, l, memory_order_release);
	return 0;
}

/* The script of other processes. */
__attribute__((constructor)) static void from_environment(void)
{
	const char *text = getenv("GS_FAULTS");

	trace = getenv("GS_FAULTS_TRACE") != NULL;
	if (text && faults_set(text) < 0) {
		fprintf(stderr, "GS_FAULTS: %s\n", err_text());
		_exit(2);
	}
}

uint64_t faults_done(enum fault_action action)
{
	return live()->done[action];
}

uint64_t faults_reached(enum fault_point at)
{
	return live()->reached[at];
}

bool rules_any(void)
{
	return live()->script.n > 0;
}

bool rules_noimm(void)
{
	return live()->script.noimm;
}

uint32_t rules_chunk(void)
{
	return live()->script.chunk;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static uint64_t draw(struct live *l)
{
	static _Thread_local uint64_t state, of = UINT64_MAX;

	if (of != l->generation) {
		of = l->generation;
		state = mix(l->script.seed ^ mix(atomic_fetch_add(&l->threads, 1)));
	}
	state = mix(state);
	return state;
}

uint32_t rules_draw(uint32_t below)
{
	return (uint32_t)(draw(live()) >> 33) % below;
}

/* ---- acting ---------------------------------------------------------------------------------- */

void rules_reached(enum fault_point at)
{
	live()->reached[at]++;
}

static bool acts(struct live *l, unsigned i)
{
	const struct fault_rule *r = &l->script.rule[i];
	uint64_t nth = ++l->seen[i];

	if (r->n)
		return nth == r->n;
	return r->p >= 1 || (double)(draw(l) >> 11) * 0x1p-53 < r->p;
}

const struct fault_rule *rules_fire(enum fault_action action, enum fault_point at)
{
	struct live *l = live();

	for (unsigned i = 0; i < l->script.n; i++) {
		const struct fault_rule *r = &l->script.rule[i];

		if (r->action != action || r->at != at || !acts(l, i))
			continue;
		l->done[action]++;
		if (trace)
			fprintf(stderr, "faults[%d]: %s %s\n", (int)getpid(),
				fault_action_name(action), fault_point_name(at));
		return r;
	}
	return NULL;
}

void rules_kill(enum fault_point at)
{
	if (rules_fire(FAULT_KILL, at))
		raise(SIGKILL);
}

void rules_delay_call(enum fault_point at)
{
	const struct fault_rule *r = rules_fire(FAULT_DELAY, at);

	if (r)
		nanosleep(&(struct timespec){.tv_sec = r->us / 1000000,
					     .tv_nsec = r->us % 1000000 * 1000L},
			  NULL);
}

int rules_fail(enum fault_point at)
{
	const struct fault_rule *r = rules_fire(FAULT_FAIL, at);

	return r ? err_set(r->err, "%s: made to fail: %s", fault_point_name(at), strerror(r->err))
		 : 0;
}

int rules_call(enum fault_point at)
{
	rules_reached(at);
	rules_kill(at);
	rules_delay_call(at);
	return rules_fail(at);
}

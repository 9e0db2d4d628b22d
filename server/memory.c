/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's memory plan and this machine's limits.
 */
#include "server/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/err.h"
#include "base/proc.h"
#include "base/size.h"

static uint64_t times(uint64_t a, uint64_t b)
{
	return __builtin_mul_overflow(a, b, &a) ? UINT64_MAX : a;
}

static uint64_t sum(const uint64_t *term, unsigned n)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < n; i++)
		all = memory_plus(all, term[i]);
	return all;
}

uint64_t memory_total(const struct memory_plan *p)
{
	const uint64_t once[] = {p->weights, p->state, p->blocks, p->tables};
	const uint64_t each[] = {p->slots, p->bookkeeping, p->backups, p->parts, p->staging};

	return memory_plus(sum(once, 4), times(sum(each, 5), p->trainers));
}

uint64_t memory_pinned(const struct memory_plan *p)
{
	const uint64_t each[] = {p->weights, p->slots, p->staging};

	return times(sum(each, 3), p->trainers);
}

void memory_describe(const struct memory_plan *p, char *text, size_t cap)
{
	snprintf(text, cap,
		 "weights %s + optimizer state %s + blocks %s + tables %s + (slots %s + "
		 "bookkeeping %s + backups %s + parts %s + staging %s) × %u trainers = %s",
		 size_text(p->weights).s, size_text(p->state).s, size_text(p->blocks).s,
		 size_text(p->tables).s, size_text(p->slots).s, size_text(p->bookkeeping).s,
		 size_text(p->backups).s, size_text(p->parts).s, size_text(p->staging).s,
		 p->trainers, size_text(memory_total(p)).s);
}

static uint64_t memlock_limit(void)
{
	struct rlimit lim;

	if (proc_may_lock_all())
		return UINT64_MAX;
	if (getrlimit(RLIMIT_MEMLOCK, &lim) || lim.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return lim.rlim_cur;
}

struct memory_limits memory_limits_now(uint64_t max_memory, bool rdma)
{
	uint64_t kib = proc_number("/proc/meminfo", "MemAvailable", 10, UINT64_MAX / 1024);
	struct memory_limits limits = {kib * 1024, "MemAvailable",
				       rdma ? memlock_limit() : UINT64_MAX};

	if (max_memory && max_memory < limits.ram) {
		limits.ram = max_memory;
		limits.ram_what = "--max-memory";
	}
	return limits;
}

int memory_admit(const struct memory_plan *plan, uint64_t sessions, uint64_t max_memory)
{
	struct memory_plan with = *plan;
	struct memory_limits now;
	uint64_t once, each;

	if (sessions < plan->trainers)
		return 0;
	now = memory_limits_now(0, false);
	with.trainers = 0;
	once = memory_total(&with);
	with.trainers = 1;
	each = memory_total(&with) - once;
	if (each <= now.ram &&
	    (!max_memory || memory_plus(once, times(each, sessions + 1)) <= max_memory))
		return 0;
	return err_set(ENOMEM,
		       "%" PRIu64 " sessions have %s each, more than the %u trainers: gradients of "
		       "lost ones wait for the step's end. %s of %s has no room for another: "
		       "connect again when the step is over",
		       sessions, size_text(each).s, plan->trainers,
		       each <= now.ram ? "--max-memory" : now.ram_what,
		       size_text(each <= now.ram ? max_memory : now.ram).s);
}

int memory_check(const struct memory_plan *plan, const struct memory_limits *limits)
{
	char sum[320];

	memory_describe(plan, sum, sizeof(sum));
	if (memory_total(plan) > limits->ram)
		return err_set(ENOMEM,
			       "the server's memory, %s, exceeds %s of %s: fewer trainers or "
			       "slots, or a larger machine",
			       sum, limits->ram_what, size_text(limits->ram).s);
	if (memory_pinned(plan) > limits->memlock)
		return err_set(ENOMEM,
			       "registering (weights + slots + staging) × trainers pins %s, "
			       "RLIMIT_MEMLOCK is %s: raise it by `ulimit -l unlimited`, in "
			       "/etc/security/limits.d, or by LimitMEMLOCK=infinity in a unit",
			       size_text(memory_pinned(plan)).s, size_text(limits->memlock).s);
	return 0;
}

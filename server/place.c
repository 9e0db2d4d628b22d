/* SPDX-License-Identifier: Apache-2.0
 *
 * CPUs and memory nodes.
 */
#include "server/place.h"

#include <ctype.h>
#include <errno.h>
#include <numa.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

/* ---- the list -------------------------------------------------------------------------------- */

/* Digits alone: no sign, no space. */
static bool take_number(const char **at, uint32_t *out)
{
	const char *s = *at;
	uint32_t n = 0;

	for (; isdigit((unsigned char)*s) && n < PLACE_CPUS; s++)
		n = 10 * n + (uint32_t)(*s - '0');
	if (s == *at || isdigit((unsigned char)*s))
		return false;
	*at = s;
	*out = n;
	return true;
}

static int take_range(const char **at, uint32_t *first, uint32_t *last)
{
	if (!take_number(at, first))
		return err_set(EINVAL,
			       "CPUs: \"%.40s\" is no CPU's number; write a list like 0-3,8", *at);
	*last = *first;
	if (**at == '-') {
		++*at;
		if (!take_number(at, last))
			return err_set(EINVAL,
				       "CPUs: \"%.40s\" does not end the range that begins "
				       "with %u",
				       *at, *first);
	}
	if (*last < *first)
		return err_set(EINVAL, "CPUs: the range %u-%u goes down", *first, *last);
	if (*last >= PLACE_CPUS)
		return err_set(EINVAL, "CPUs: %u; they are numbered up to %u", *last,
			       PLACE_CPUS - 1);
	return 0;
}

static int add(struct place *p, uint32_t cpu)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->cpu[i] == cpu)
			return err_set(EINVAL, "CPUs: %u is in the list twice", cpu);
	p->cpu[p->n++] = (uint16_t)cpu;
	return 0;
}

int place_parse(const char *list, struct place *out)
{
	struct place p = {.n = 0};
	const char *at = list;
	int rc = 0;

	for (;;) {
		uint32_t first = 0, last = 0;

		rc = take_range(&at, &first, &last);
		for (uint32_t cpu = first; !rc && cpu <= last; cpu++)
			rc = add(&p, cpu);
		if (rc)
			return rc;
		if (!*at)
			break;
		if (*at++ != ',')
			return err_set(EINVAL, "CPUs: \"%.40s\" is where a comma is expected",
				       at - 1);
	}
	*out = p;
	return 0;
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void describe(const cpu_set_t *set, char *text, size_t cap)
{
	size_t len = 0;

	text[0] = 0;
	for (unsigned cpu = 0; cpu < PLACE_CPUS && len + 16 < cap; cpu++) {
		unsigned first = cpu;

		if (!CPU_ISSET(cpu, set))
			continue;
		while (cpu + 1 < PLACE_CPUS && CPU_ISSET(cpu + 1, set))
			cpu++;
		len += (size_t)snprintf(text + len, cap - len, "%s%u", len ? "," : "", first);
		if (cpu > first)
			len += (size_t)snprintf(text + len, cap - len, "-%u", cpu);
	}
}

int place_check(const struct place *p)
{
	cpu_set_t allowed;
	char text[200];

	if (p->n == 0)
		return 0;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		return err_set(errno, "sched_getaffinity: %s", strerror(errno));
	for (uint32_t i = 0; i < p->n; i++) {
		if (CPU_ISSET(p->cpu[i], &allowed))
			continue;
		describe(&allowed, text, sizeof(text));
		return err_set(EINVAL,
			       "CPUs: %u does not exist, or this process may not use it; it "
			       "may use %s",
			       p->cpu[i], text);
	}
	return 0;
}

int place_thread(const struct place *p, uint32_t i, pthread_t thread)
{
	cpu_set_t one;
	int rc;

	if (p->n == 0)
		return 0;
	CPU_ZERO(&one);
	CPU_SET(p->cpu[i % p->n], &one);
	rc = pthread_setaffinity_np(thread, sizeof(one), &one);
	return rc ? err_set(rc, "CPU %u can't be had: %s", p->cpu[i % p->n], strerror(rc)) : 0;
}

void place_memory(const struct place *p)
{
	struct bitmask *nodes;
	int node = -1;

	/* A kernel that knows of no nodes has one. */
	if (p->n == 0 || numa_available() < 0)
		return;
	nodes = numa_allocate_nodemask();
	for (uint32_t i = 0; i < p->n; i++) {
		int of = numa_node_of_cpu(p->cpu[i]);

		if (of < 0)
			continue;
		node = of;
		numa_bitmask_setbit(nodes, (unsigned)of);
	}
	if (numa_bitmask_weight(nodes) == 1)
		numa_set_preferred(node);
	else if (node >= 0)
		numa_set_interleave_mask(nodes);
	numa_free_nodemask(nodes);
}

void place_memory_end(const struct place *p)
{
	if (p->n > 0 && numa_available() >= 0)
		numa_set_localalloc();
}

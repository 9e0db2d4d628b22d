/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU time is read from the processes' CPU clocks, which count in nanoseconds what getrusage(2)
 * counts, user and system together, and which the kernel gives of other processes, too.
 */
#include "perf/meter.h"

#include <time.h>

#include "base/clock.h"
#include "perf/counter.h"

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	if (clock_gettime(id, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t cpu_of(pid_t pid)
{
	clockid_t id;

	return pid && clock_getcpuclockid(pid, &id) == 0 ? read_clock(id) : 0;
}

void meter_begin(struct meter *m, pid_t server)
{
	*m = (struct meter){.server = server};
	if (server && counter_open_instructions(0, &m->own) == 0 &&
	    counter_open_instructions(server, &m->others) < 0) {
		counter_close(m->own);
		m->own = NULL;
	}
	m->server_cpu = cpu_of(server);
	m->cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	m->wall = clock_ns();
}

void meter_end(struct meter *m, struct meter_reading *out)
{
	*out = (struct meter_reading){.wall_ns = clock_ns() - m->wall};
	out->cpu_ns = read_clock(CLOCK_PROCESS_CPUTIME_ID) - m->cpu;
	if (m->server)
		out->server_cpu_ns = cpu_of(m->server) - m->server_cpu;
	out->counted = m->own != NULL;
	if (m->own) {
		out->instructions = counter_read(m->own);
		out->server_instructions = counter_read(m->others);
	}
	counter_close(m->own);
	counter_close(m->others);
}

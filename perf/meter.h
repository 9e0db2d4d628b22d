/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stretch of time cost: by the clock, in CPU time of this process and of the server, and in
 * instructions, where they are counted.
 */
#ifndef GS_PERF_METER_H
#define GS_PERF_METER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct counter;

struct meter {
	pid_t server; /* 0: it is not on this machine */
	uint64_t wall, cpu, server_cpu;
	struct counter *own, *others; /* NULL: not counted here */
};

struct meter_reading {
	uint64_t wall_ns, cpu_ns, server_cpu_ns; /* the last: 0 without a server here */
	bool counted;                            /* the next two are valid */
	uint64_t instructions, server_instructions;
};

/* Opens the counters of both processes, if there are any, and begins. */
void meter_begin(struct meter *m, pid_t server);
/* Since meter_begin; call it once. */
void meter_end(struct meter *m, struct meter_reading *out);

#endif

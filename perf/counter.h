/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters of the CPU or the kernel (perf_event_open(2)) over all threads of a process.
 */
#ifndef GS_PERF_COUNTER_H
#define GS_PERF_COUNTER_H

#include <stdint.h>
#include <sys/types.h>

struct counter;

/* Begins to count `type`/`config` (linux/perf_event.h), in user space alone, for each thread that
 * the process (0: this one) has now. Errors: -ENOENT (this machine, a virtual one mostly, doesn't
 * count that), -EACCES (not allowed: /proc/sys/kernel/perf_event_paranoid), -ESRCH, -ENOMEM,
 * -EMFILE. */
int counter_open(pid_t pid, uint32_t type, uint64_t config, struct counter **out);
/* The sum so far. Threads that have ended since are in it. */
uint64_t counter_read(const struct counter *c);
/* NULL is allowed. */
void counter_close(struct counter *c);

/* Instructions. */
int counter_open_instructions(pid_t pid, struct counter **out);

#endif

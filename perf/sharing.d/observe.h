/* SPDX-License-Identifier: Apache-2.0
 *
 * Sees every access of code that was compiled with -fsanitize=thread, whose entry points it has instead
 * of ThreadSanitizer's (hooks.c), and tells lines.h of it, between observe_begin and observe_end.
 *
 * A server and trainers, which are processes of their own elsewhere, are threads here: each thread says
 * which process it stands for. Memory that is mapped from a file is the same for all, wherever it is
 * mapped; other memory is of one process, so what two of them happen to have side by side in the heap
 * is not taken for shared.
 *
 * Not seen: libraries, system calls, assembly, stores past the caches. What of it matters here (copies,
 * locks, the exchange in liburcu's queue) is wrapped by the linker.
 */
#ifndef GS_PERF_SHARING_OBSERVE_H
#define GS_PERF_SHARING_OBSERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum observe_kind { OBSERVE_READ, OBSERVE_WRITE };

/* The calling thread, and those that it starts from here on, stand for this process. */
void observe_process(unsigned process);
/* And this is what the thread is called. The text stays the caller's. */
void observe_name(const char *name);

/* Threads lose their CPU now and then, so that they take turns where there are more of them than CPUs. */
void observe_take_turns(void);
void observe_begin(void);
void observe_end(void);
/* All lines that more than one thread touched, one of them wrote, and that moved, for report.py. */
void observe_print(FILE *out, unsigned steps);

/* An access of the calling thread. */
void observe_access(const volatile void *at, size_t len, enum observe_kind kind, uintptr_t pc);
/* The calling thread is new: what it was started with (wrap.c). */
struct observe_birth {
	unsigned process;
	uintptr_t entry;
};
struct observe_birth observe_birth(void *(*entry)(void *));
void observe_born(const struct observe_birth *birth);
/* Memory was allocated, from there. */
void observe_allocated(const void *at, size_t len, uintptr_t pc);

#endif

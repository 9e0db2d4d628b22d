/* SPDX-License-Identifier: Apache-2.0
 *
 * A few threads that do the same thing at the same time, again and again.
 */
#ifndef GS_PERF_CREW_H
#define GS_PERF_CREW_H

#include <stdint.h>

enum { CREW_MAX = 16 };

struct crew;

/* `n` threads, the caller's among them: 1 to CREW_MAX. Errors: -ENOMEM, -EAGAIN. */
int crew_create(unsigned n, struct crew **out);
/* Calls work(arg, k), k from 0 to n - 1, on all threads at once. Gives the nanoseconds from the
 * start to the end of the last. With one thread it is that thread's own time: what other processes
 * do on its core in between doesn't count. */
uint64_t crew_run(struct crew *crew, void (*work)(void *arg, unsigned k), void *arg);
void crew_destroy(struct crew *crew);

#endif

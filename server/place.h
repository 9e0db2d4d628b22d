/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a server runs: which CPUs its pollers and workers have, and with them its memory.
 */
#ifndef GS_SERVER_PLACE_H
#define GS_SERVER_PLACE_H

#include <pthread.h>
#include <stdint.h>

enum { PLACE_CPUS = 1024 }; /* of a cpu_set_t */

struct place {
	uint32_t n; /* 0: anywhere */
	uint16_t cpu[PLACE_CPUS];
};

/* "0-3,8": numbers and ranges, each CPU once, in the order in which threads get them. -EINVAL.
 * Pure. */
int place_parse(const char *list, struct place *out);
/* They exist and this process may use them: -EINVAL names the first that it may not, and those that
 * it may. */
int place_check(const struct place *p);
/* Pins thread number i of the server's. */
int place_thread(const struct place *p, uint32_t i, pthread_t thread);
/* Memory that the calling thread touches first comes from these CPUs' nodes: from the one, if it
 * has room, or from all in turn. And back. */
void place_memory(const struct place *p);
void place_memory_end(const struct place *p);

#endif

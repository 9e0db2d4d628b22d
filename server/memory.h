/* SPDX-License-Identifier: Apache-2.0
 *
 * What a server's memory comes to, stated and checked before any of it is allocated.
 */
#ifndef GS_SERVER_MEMORY_H
#define GS_SERVER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each term in bytes. */
struct memory_plan {
	uint64_t weights;     /* and their version words */
	uint64_t state;       /* the optimizers' arrays */
	uint64_t blocks;      /* what the server keeps about each block */
	uint64_t tables;      /* rows under merge, and keys, of tables */
	uint64_t slots;       /* of one trainer */
	uint64_t bookkeeping; /* of one trainer: slot descriptors */
	uint64_t backups;     /* of one trainer: copies of weights, for delay compensation */
	uint64_t parts;       /* of one trainer: rows that it has pushed so far */
	uint64_t staging;     /* of one trainer: words and blocks on their way to it */
	uint32_t trainers;
};

/* Trainers choose the sizes: a sum that does not fit is UINT64_MAX, and must not look like a small
 * one. */
static inline uint64_t memory_plus(uint64_t a, uint64_t b)
{
	return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

/* UINT64_MAX when it is more than that. */
uint64_t memory_total(const struct memory_plan *plan);
/* What is registered with a NIC: pinned, and counted once for each protection domain. */
uint64_t memory_pinned(const struct memory_plan *plan);

/* "weights 64.0 MiB + optimizer state 64.0 MiB + …": the sum, term by term. */
void memory_describe(const struct memory_plan *plan, char *text, size_t cap);

struct memory_limits {
	uint64_t ram;         /* what may be allocated */
	const char *ram_what; /* "--max-memory", "MemAvailable" */
	uint64_t memlock;     /* UINT64_MAX: none, or not needed (no RDMA listener) */
};

/* This machine's: MemAvailable, or max_memory if that is set and less; RLIMIT_MEMLOCK if `rdma`,
 * unless the process may exceed it (CAP_IPC_LOCK). */
struct memory_limits memory_limits_now(uint64_t max_memory, bool rdma);

/* -ENOMEM when a limit can't hold the plan: the text has the sum, the limit, and what to do. */
int memory_check(const struct memory_plan *plan, const struct memory_limits *limits);

/* A session comes while so many have their memory: those of trainers who were lost keep it until what
 * they delivered is in the weights, so there may be more than the plan has. -ENOMEM when it does not fit
 * beside them. */
int memory_admit(const struct memory_plan *plan, uint64_t sessions, uint64_t max_memory);

#endif

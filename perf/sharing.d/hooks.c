/* SPDX-License-Identifier: Apache-2.0
 *
 * What gcc's -fsanitize=thread has code call, before each access or instead of it (atomics).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/sharing.d/observe.h"

#define HERE ((uintptr_t)__builtin_return_address(0))

void __tsan_init(void);
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void);
void __tsan_read_range(void *at, size_t len);
void __tsan_write_range(void *at, size_t len);
void __tsan_acquire(void *at);
void __tsan_release(void *at);
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_signal_fence(int order);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *pc)
{
}

void __tsan_func_exit(void)
{
}

/* The queue's hints, for what this tool does not look for. */
void __tsan_acquire(void *at)
{
}

void __tsan_release(void *at)
{
}

void __tsan_read_range(void *at, size_t len)
{
	observe_access(at, len, OBSERVE_READ, HERE);
}

void __tsan_write_range(void *at, size_t len)
{
	observe_access(at, len, OBSERVE_WRITE, HERE);
}

#define PLAIN(size)                                                                                \
	void __tsan_read##size(void *at);                                                          \
	void __tsan_write##size(void *at);                                                         \
	void __tsan_volatile_read##size(void *at);                                                 \
	void __tsan_volatile_write##size(void *at);                                                \
	void __tsan_read##size(void *at)                                                           \
	{                                                                                          \
		observe_access(at, size, OBSERVE_READ, HERE);                                          \
	}                                                                                          \
	void __tsan_write##size(void *at)                                                          \
	{                                                                                          \
		observe_access(at, size, OBSERVE_WRITE, HERE);                                         \
	}                                                                                          \
	void __tsan_volatile_read##size(void *at)                                                  \
	{                                                                                          \
		observe_access(at, size, OBSERVE_READ, HERE);                                          \
	}                                                                                          \
	void __tsan_volatile_write##size(void *at)                                                 \
	{                                                                                          \
		observe_access(at, size, OBSERVE_WRITE, HERE);                                         \
	}

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_atomic_thread_fence(int order)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int order)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* All as strong as can be: the order that was asked for is not what is looked at. An exchange takes the
 * line for itself whether or not it finds what it expects. */
#define FETCH(bits, type, op)                                                                      \
	type __tsan_atomic##bits##_fetch_##op(volatile type *at, type v, int order);               \
	type __tsan_atomic##bits##_fetch_##op(volatile type *at, type v, int order)                \
	{                                                                                          \
		observe_access(at, sizeof(type), OBSERVE_WRITE, HERE);                                 \
		return __atomic_fetch_##op(at, v, __ATOMIC_SEQ_CST);                               \
	}

#define EXCHANGE(bits, type, kind)                                                                 \
	int __tsan_atomic##bits##_compare_exchange_##kind(volatile type *at, type *old, type v,    \
							  int order, int failed);                  \
	int __tsan_atomic##bits##_compare_exchange_##kind(volatile type *at, type *old, type v,    \
							  int order, int failed)                   \
	{                                                                                          \
		observe_access(at, sizeof(type), OBSERVE_WRITE, HERE);                                 \
		return __atomic_compare_exchange_n(at, old, v, false, __ATOMIC_SEQ_CST,            \
						   __ATOMIC_SEQ_CST);                              \
	}

#define ATOMIC(bits, type)                                                                         \
	type __tsan_atomic##bits##_load(const volatile type *at, int order);                       \
	type __tsan_atomic##bits##_load(const volatile type *at, int order)                        \
	{                                                                                          \
		observe_access(at, sizeof(type), OBSERVE_READ, HERE);                                  \
		return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                      \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile type *at, type v, int order);                    \
	void __tsan_atomic##bits##_store(volatile type *at, type v, int order)                     \
	{                                                                                          \
		observe_access(at, sizeof(type), OBSERVE_WRITE, HERE);                                 \
		__atomic_store_n(at, v, __ATOMIC_SEQ_CST);                                         \
	}                                                                                          \
	type __tsan_atomic##bits##_exchange(volatile type *at, type v, int order);                 \
	type __tsan_atomic##bits##_exchange(volatile type *at, type v, int order)                  \
	{                                                                                          \
		observe_access(at, sizeof(type), OBSERVE_WRITE, HERE);                                 \
		return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST);                               \
	}                                                                                          \
	EXCHANGE(bits, type, strong)                                                               \
	EXCHANGE(bits, type, weak)                                                                 \
	FETCH(bits, type, add)                                                                     \
	FETCH(bits, type, sub)                                                                     \
	FETCH(bits, type, and)                                                                     \
	FETCH(bits, type, or)                                                                      \
	FETCH(bits, type, xor)

ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

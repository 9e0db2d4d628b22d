/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring the floor.
 */
#include "perf/floor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"

enum {
	ROUNDS_MIN = 5,
	ROUNDS_MAX = 201,
	BUDGET_MS = 400,
	/* Short work is repeated, so that the clock's own cost does not count. */
	WORK_MIN_BYTES = 1 << 20,
	ARRAYS = 5,
};

struct bench {
	size_t bytes;
	float *array[ARRAYS]; /* weights, gradient, copy, state, more state */
};

static void release(struct bench *b)
{
	for (int i = 0; i < ARRAYS; i++)
		if (b->array[i])
			munmap(b->array[i], b->bytes);
}

static int prepare(struct bench *b, size_t bytes)
{
	*b = (struct bench){.bytes = bytes};
	if (bytes < sizeof(float) || bytes % sizeof(float))
		return err_set(EINVAL, "%zu bytes are no whole number of floats", bytes);
	for (int i = 0; i < ARRAYS; i++) {
		void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (p == MAP_FAILED) {
			release(b);
			return err_set(ENOMEM, "no memory for %d arrays of %zu bytes", ARRAYS,
				       bytes);
		}
		b->array[i] = p;
	}
	return 0;
}

/* ---- the parts ----------------------------------------------------------------------------- */

static void copy_gradient(const struct bench *b)
{
	memcpy(b->array[1], b->array[2], b->bytes);
}

static void copy_weights(const struct bench *b)
{
	memcpy(b->array[2], b->array[0], b->bytes);
}

static void update_plain(const struct bench *b)
{
	float *restrict w = b->array[0];
	const float *restrict g = b->array[1];

	for (size_t i = 0; i < b->bytes / sizeof(float); i++)
		w[i] -= 0.01f * g[i];
}

static void update_with_state(const struct bench *b)
{
	float *restrict w = b->array[0], *restrict v = b->array[3];
	const float *restrict g = b->array[1];

	for (size_t i = 0; i < b->bytes / sizeof(float); i++) {
		v[i] = 0.9f * v[i] + g[i];
		w[i] -= 0.01f * v[i];
	}
}

static void update_with_two(const struct bench *b)
{
	float *restrict w = b->array[0], *restrict m = b->array[3], *restrict v = b->array[4];
	const float *restrict g = b->array[1];

	for (size_t i = 0; i < b->bytes / sizeof(float); i++) {
		m[i] = 0.9f * m[i] + g[i];
		v[i] = 0.9f * v[i] + g[i];
		w[i] -= 0.01f * (m[i] + v[i]);
	}
}

/* ---- timing -------------------------------------------------------------------------------- */

typedef void (*part)(const struct bench *b);

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

static double time_us(const struct bench *b, part run)
{
	unsigned times = b->bytes < WORK_MIN_BYTES ? WORK_MIN_BYTES / (unsigned)b->bytes : 1;
	uint64_t began = clock_ns();

	for (unsigned i = 0; i < times; i++) {
		run(b);
		/* Each repetition counts: the compiler may not see that it changes nothing. */
		__asm__ volatile("" ::: "memory");
	}
	return (double)(clock_ns() - began) / 1000.0 / times;
}

/* The medians of the parts, taken in turn; NULL parts take no time. */
static void measure(const struct bench *b, const part *parts, unsigned n, double *us)
{
	static double samples[3][ROUNDS_MAX];
	uint64_t until = clock_ns() + BUDGET_MS * NS_PER_MS;
	unsigned rounds = 0;

	for (unsigned k = 0; k < n; k++)
		if (parts[k])
			time_us(b, parts[k]);
	while (rounds < ROUNDS_MIN || (rounds < ROUNDS_MAX && clock_ns() < until)) {
		for (unsigned k = 0; k < n; k++)
			samples[k][rounds] = parts[k] ? time_us(b, parts[k]) : 0;
		rounds++;
	}
	for (unsigned k = 0; k < n; k++)
		us[k] = median(samples[k], rounds);
}

int floor_step_us(size_t bytes, unsigned arrays, bool copy, double *us)
{
	static const part updates[] = {update_plain, update_with_state, update_with_two};
	const part parts[3] = {copy ? copy_gradient : NULL, updates[arrays < 2 ? arrays : 2],
			       copy_weights};
	double part_us[3];
	struct bench b;
	int rc = prepare(&b, bytes);

	if (rc)
		return rc;
	measure(&b, parts, 3, part_us);
	release(&b);
	*us = part_us[0] + part_us[1] + part_us[2];
	return 0;
}

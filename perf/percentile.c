/* SPDX-License-Identifier: Apache-2.0
 *
 * Percentiles by nearest rank.
 */
#include "perf/percentile.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void perf_sort(uint64_t *values, size_t n)
{
	qsort(values, n, sizeof(values[0]), compare);
}

static int compare_real(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void perf_sort_real(double *values, size_t n)
{
	qsort(values, n, sizeof(values[0]), compare_real);
}

uint64_t perf_percentile(const uint64_t *sorted, size_t n, unsigned per_10000)
{
	/* ceil(n * p), from 1; split so that no product overflows. */
	size_t rank = n / 10000 * per_10000 + (n % 10000 * per_10000 + 9999) / 10000;

	return sorted[rank ? rank - 1 : 0];
}

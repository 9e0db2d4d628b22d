/* SPDX-License-Identifier: Apache-2.0
 *
 * Percentiles of measured times, by nearest rank: always a value that was measured, never one in
 * between.
 */
#ifndef GS_PERF_PERCENTILE_H
#define GS_PERF_PERCENTILE_H

#include <stddef.h>
#include <stdint.h>

void perf_sort(uint64_t *values, size_t n);
/* Ratios and the like; none is a NAN. */
void perf_sort_real(double *values, size_t n);

/* The smallest value such that at least per_10000/10000 of all values are no larger: 5000 is the
 * median, 9990 is p99.9, 0 the minimum. `sorted` has n >= 1 values; per_10000 <= 10000. */
uint64_t perf_percentile(const uint64_t *sorted, size_t n, unsigned per_10000);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What benchmarks do again and again; METHOD.md says what exactly is in each time.
 */
#ifndef GS_PERF_LOOPS_H
#define GS_PERF_LOOPS_H

#include "perf/peer.h"

extern const struct peer_loop perf_latency, perf_push, perf_pull, perf_connect, perf_scale,
    perf_scale_one, perf_rows;

#endif

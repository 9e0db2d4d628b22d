/* SPDX-License-Identifier: Apache-2.0
 *
 * What a URI may ask of a queue pair, settled: every value is there, and the device can do it. Pure.
 */
#ifndef GS_TRANSPORT_VERBS_TUNING_H
#define GS_TRANSPORT_VERBS_TUNING_H

#include "transport/uri.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is behind them stands in ARCHITECTURE.md, "Options of a rdma:// URI". */
#define TUNING_TIMEOUT   18 /* 1.07 s */
#define TUNING_RETRY     6
#define TUNING_RNR       6
#define TUNING_RNR_TIMER 14 /* 1.28 ms */
#define TUNING_INLINE    512

struct tuning {
	uint8_t timeout, retry, rnr, rnr_timer;
	uint32_t max_inline;
	bool inline_asked; /* exactly so much, or an error */
	bool relaxed;
	uint16_t cq_count, cq_usec; /* 0: completions are not moderated */
	struct tp_tuning asked;
};

/* Of a device, what matters here. */
struct tuning_device {
	const char *name;
	bool iwarp; /* retransmission is TCP's */
	bool rxe;   /* takes 7 retries for no limit */
};

/* Errors: -EINVAL, naming what can't be had on this device. */
int tuning_settle(const struct tp_tuning *asked, const struct tuning_device *dev,
		  struct tuning *out);
/* What was asked for, as ", timeout 14, retry 3"; "" if nothing was. Cut off to `size`. */
void tuning_text(const struct tuning *tuning, char *out, size_t size);

#endif

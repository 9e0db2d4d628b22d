/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tensor's values are like.
 */
#ifndef GS_CLI_STATS_H
#define GS_CLI_STATS_H

#include <jansson.h>
#include <stdint.h>

#include "store/store.h"

struct stats {
	uint64_t finite, nonfinite;
	double min, max, mean, norm; /* of the finite ones; 0 when there are none */
};

/* Its data may be at any address. */
struct stats stats_of(const struct store_tensor *t);
/* min, mean, max and norm are null when no value is finite. */
json_t *stats_json(const struct stats *s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients' ages: counted, added up, told.
 */
#include "server/ages.h"

#include <inttypes.h>

#include "base/log.h"

void ages_count(struct ages *ages, uint64_t age)
{
	uint64_t max = atomic_load_explicit(&ages->max, memory_order_relaxed);

	atomic_fetch_add_explicit(&ages->pushes, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&ages->sum, age, memory_order_relaxed);
	while (age > max && !atomic_compare_exchange_weak(&ages->max, &max, age))
		;
}

void ages_add(const struct ages *ages, struct ages_look *to)
{
	uint64_t max = atomic_load_explicit(&ages->max, memory_order_relaxed);

	to->pushes += atomic_load_explicit(&ages->pushes, memory_order_relaxed);
	to->sum += atomic_load_explicit(&ages->sum, memory_order_relaxed);
	to->max = max > to->max ? max : to->max;
}

void ages_log(const char *who, const struct ages_look *look)
{
	if (look->pushes)
		log_info("%s: gradients' age: mean %.1f, at most %" PRIu64 " updates", who,
			 (double)look->sum / (double)look->pushes, look->max);
}

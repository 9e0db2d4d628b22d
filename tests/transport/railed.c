/* SPDX-License-Identifier: Apache-2.0
 *
 * Part of a program whose calls of tp_connect are wrapped: every connection that it makes has
 * GRADSLOT_TEST_RAILS rails, where neither the caller nor the URI says how many.
 */
#include "transport/transport.h"

#include <stdlib.h>

int __real_tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
		      struct tp_conn **out);
int __wrap_tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
		      struct tp_conn **out);

int __wrap_tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
		      struct tp_conn **out)
{
	const char *rails = getenv("GRADSLOT_TEST_RAILS");
	struct tp_options own = opt ? *opt : (struct tp_options){0};

	if (rails && !own.rails)
		own.rails = (uint32_t)strtoul(rails, NULL, 10);
	return __real_tp_connect(uri, &own, cq, user, out);
}

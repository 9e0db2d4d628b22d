/* SPDX-License-Identifier: Apache-2.0
 *
 * Connecting a trainer process.
 */
#include "cli/member.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>

_Static_assert((int)SRV_SPIN_FOREVER == (int)GS_SPIN_FOREVER,
	       "an option means the same to both sides");

int member_rc(int rc)
{
	return rc < 0 ? err_set(-rc, "%s", gs_last_error()) : 0;
}

int member_connect(const struct training_member *m, const char *name, gs_trainer **out)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	char text[48];

	snprintf(text, sizeof(text), "%s trainer %" PRId64, name, m->rank);
	opt.uri = m->uri;
	opt.name = text;
	opt.rank = (int32_t)m->rank;
	opt.spin_us = (int32_t)m->spin_us;
	return member_rc(gs_connect(&opt, out));
}

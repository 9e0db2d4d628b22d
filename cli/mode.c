/* SPDX-License-Identifier: Apache-2.0
 *
 * Modes as text.
 */
#include "cli/mode.h"

#include "base/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Digits alone, up to the limit. */
static bool parse_staleness(const char *text, uint32_t *out)
{
	uint32_t value = 0;

	for (const char *c = text; *c; c++) {
		if (*c < '0' || *c > '9' || value > SRV_MAX_STALENESS)
			return false;
		value = 10 * value + (uint32_t)(*c - '0');
	}
	*out = value;
	return *text && value <= SRV_MAX_STALENESS;
}

int mode_parse(const char *text, void *out)
{
	struct mode *mode = out, parsed = {.kind = SRV_SSP};

	if (!strcmp(text, "sync"))
		parsed.kind = SRV_SYNC;
	else if (!strcmp(text, "async"))
		parsed.kind = SRV_ASYNC;
	else if (strncmp(text, "ssp:", 4) || !parse_staleness(text + 4, &parsed.staleness))
		return err_set(EINVAL, "it may be sync, async or ssp:K with a K from 0 to %d",
			       SRV_MAX_STALENESS);
	*mode = parsed;
	return 0;
}

const char *mode_text(const struct mode *mode, char buf[MODE_TEXT])
{
	if (mode->kind == SRV_SSP)
		snprintf(buf, MODE_TEXT, "ssp:%" PRIu32, mode->staleness);
	else
		snprintf(buf, MODE_TEXT, "%s", mode->kind == SRV_ASYNC ? "async" : "sync");
	return buf;
}

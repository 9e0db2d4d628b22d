/* SPDX-License-Identifier: Apache-2.0
 *
 * `--mode sync|async|ssp:K`, as serve and demo take it and pass it on.
 */
#ifndef GS_CLI_MODE_H
#define GS_CLI_MODE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/server.h"

struct mode {
	enum srv_mode kind;
	uint32_t staleness; /* K of ssp */
};

/* For OPT_PARSED: into a struct mode. -EINVAL: the text says what it may be. */
int mode_parse(const char *text, void *mode);

enum { MODE_TEXT = 24 };
/* As mode_parse takes it. Returns buf. */
const char *mode_text(const struct mode *mode, char buf[MODE_TEXT]);

/* Every step is that of all trainers together. */
static inline bool mode_is_sync(const struct mode *mode)
{
	return mode->kind == SRV_SYNC || (mode->kind == SRV_SSP && mode->staleness == 0);
}

/* The line of an option table that fills the struct mode `m`. */
/* clang-format off */
#define MODE_LINE(m) \
	{"mode", OPT_PARSED, &(m), "sync|async|ssp:K", \
	 "mean of all trainers each step; each gradient at once; and nobody over K steps ahead", \
	 .parse = mode_parse, .shown = "sync"}
/* clang-format on */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checking a server's options.
 */
#ifndef GS_SERVER_OPTIONS_H
#define GS_SERVER_OPTIONS_H

#include "server/server.h"

/* -EINVAL: the text names the option, the value and the limit. */
int options_check(const struct srv_options *opt);

/* The flags of the arenas that trainers reach (tp_arena_flags): touched now, in pages as told. */
unsigned options_arena_flags(const struct srv_options *opt);

#endif

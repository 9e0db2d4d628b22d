/* SPDX-License-Identifier: Apache-2.0
 *
 * A line on stderr that says how far a training is: rewritten in place on a terminal, elsewhere a
 * new one each second.
 */
#ifndef GS_CLI_PROGRESS_H
#define GS_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool tty, line_open; /* open: the line has no end yet */
	uint64_t shown;
};

struct progress progress_begin(void);
/* Shows the line if it is time to, and always the last one. */
void progress_show(struct progress *p, bool last, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Before anything else is written to stderr. */
void progress_break(struct progress *p);

#endif

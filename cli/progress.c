/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress line.
 */
#include "cli/progress.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* Where nobody watches a line being rewritten. */
enum { PLAIN_MS = 1000 };

struct progress progress_begin(void)
{
	return (struct progress){.tty = isatty(STDERR_FILENO)};
}

void progress_show(struct progress *p, bool last, const char *fmt, ...)
{
	uint64_t now = clock_ns();
	va_list ap;

	if (!p->tty && !last && now - p->shown < PLAIN_MS * NS_PER_MS)
		return;
	p->shown = now;
	p->line_open = p->tty && !last;
	if (p->tty)
		fputs("\r\033[K", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	if (!p->line_open)
		fputc('\n', stderr);
}

void progress_break(struct progress *p)
{
	if (p->line_open)
		fputc('\n', stderr);
	p->line_open = false;
}

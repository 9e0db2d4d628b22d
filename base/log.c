/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines, to stderr.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static enum log_level shown = LOG_INFO;

void log_set_level(enum log_level level)
{
	shown = level;
}

/* What a peer says may have line ends in it, and must not look like lines of ours. */
static void flatten(char *text, int n)
{
	for (int i = 0; i < n; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			text[i] = ' ';
}

void log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	char line[1024];
	struct timespec ts;
	struct tm tm;
	va_list ap;

	if (level > shown)
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	int n = snprintf(line, sizeof(line), "%02d:%02d:%02d.%03ld %s ", tm.tm_hour, tm.tm_min,
			 tm.tm_sec, ts.tv_nsec / 1000000, names[level]);
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	if ((size_t)n >= sizeof(line))
		n = sizeof(line) - 1;
	flatten(line, n);
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nowhere left to say it */
}

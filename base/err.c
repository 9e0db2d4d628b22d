/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread's last error text.
 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char text[512];

int err_set(int err, const char *fmt, ...)
{
	/* Formatted aside first: an argument may be the current text itself. */
	char fresh[sizeof(text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(fresh, sizeof(fresh), fmt, ap);
	va_end(ap);
	memcpy(text, fresh, sizeof(text));
	return -err;
}

int err_wrap(int rc, const char *fmt, ...)
{
	char prefix[sizeof(text)], whole[2 * sizeof(text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(prefix, sizeof(prefix), fmt, ap);
	va_end(ap);
	snprintf(whole, sizeof(whole), "%s: %s", prefix, text[0] ? text : strerror(-rc));
	memcpy(text, whole, sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	return rc;
}

const char *err_text(void)
{
	return text;
}

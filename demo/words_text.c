/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a text whole, from a file or from the program `bible`.
 */
#include "demo/words_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

#define BIBLE "/usr/bin/bible"
/* -f: a verse a line, each behind its reference. */
#define WHOLE_BIBLE BIBLE " -f Gen1:1-Rev22:21 </dev/null"

static int read_all(FILE *from, const char *name, char **out)
{
	size_t room = 1 << 20, n = 0;
	char *text = NULL, *more;

	for (;;) {
		room *= 2;
		more = room <= WORDS_TEXT_MAX ? realloc(text, room) : NULL;
		if (!more) {
			free(text);
			return err_set(EFBIG, "%s: longer than %d bytes, or than memory is free",
				       name, WORDS_TEXT_MAX);
		}
		text = more;
		n += fread(text + n, 1, room - n - 1, from);
		if (n < room - 1)
			break;
	}
	text[n] = 0;
	if (ferror(from) || memchr(text, 0, n)) {
		int rc = ferror(from) ? err_set(EIO, "%s: can't be read", name)
				      : err_set(EBADMSG, "%s: has a NUL byte: not a text", name);
		free(text);
		return rc;
	}
	*out = text;
	return 0;
}

/* Blanks the reference at the begin of each line: "Gen1:1 In the beginning". */
static void drop_references(char *text)
{
	for (char *p = text; *p; p++) {
		size_t len = strcspn(p, " \n");

		memset(p, ' ', len);
		p += strcspn(p, "\n");
		if (!*p)
			break;
	}
}

static int read_bible(char **out)
{
	char *text = NULL;
	FILE *from;
	int rc, status;

	if (access(BIBLE, X_OK) < 0)
		return err_set(ENOENT, "there is no " BIBLE ", which has the text: install the "
				       "package bible-kjv, or name a text of your own with --text");
	from = popen(WHOLE_BIBLE, "re");
	if (!from)
		return err_set(errno, BIBLE " can't be started: %s", strerror(errno));
	rc = read_all(from, BIBLE, &text);
	status = pclose(from);
	if (rc == 0 && status != 0) {
		free(text);
		rc = err_set(EIO, BIBLE " failed (status %d)", status);
	}
	if (rc == 0) {
		drop_references(text);
		*out = text;
	}
	return rc;
}

int words_text_read(const char *file, char **out)
{
	FILE *from;
	int rc;

	if (!file)
		return read_bible(out);
	from = fopen(file, "re");
	if (!from)
		return err_set(errno, "%s: %s", file, strerror(errno));
	rc = read_all(from, file, out);
	fclose(from);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Talking to gnuplot.
 */
#include "cli/plot.h"

#include "base/err.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct plot {
	FILE *script;
	const char *file;
};

static bool installed(const char *program)
{
	const char *path = getenv("PATH");
	char name[PATH_MAX];

	while (path && *path) {
		size_t n = strcspn(path, ":");

		snprintf(name, sizeof(name), "%.*s/%s", (int)n, path, program);
		if (access(name, X_OK) == 0)
			return true;
		path += n + (path[n] == ':');
	}
	return false;
}

int plot_check(const char *file)
{
	for (const char *c = file; *c; c++) {
		if (iscntrl((unsigned char)*c))
			return err_set(EINVAL, "a file's name may have no control characters here");
	}
	if (!installed("gnuplot"))
		return err_set(
		    ENOENT,
		    "gnuplot, which draws, is not installed: Debian's package is gnuplot-nox");
	bool there = access(file, F_OK) == 0;
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_set(errno, "%s can't be written: %s", file, strerror(errno));
	close(fd);
	if (!there)
		unlink(file);
	return 0;
}

void plot_print_quoted(FILE *to, const char *text)
{
	fputc('\'', to);
	for (; *text; text++) {
		if (*text == '\'')
			fputc('\'', to);
		fputc(*text, to);
	}
	fputc('\'', to);
}

int plot_begin(const char *file, struct plot **out)
{
	int rc = plot_check(file);

	if (rc < 0)
		return rc;
	struct plot *plot = calloc(1, sizeof(*plot));
	if (!plot)
		return err_set(ENOMEM, "no memory for a picture");
	plot->file = file;
	plot->script = popen("exec gnuplot", "we");
	if (!plot->script) {
		free(plot);
		return err_set(ECHILD, "gnuplot can't be started: %s", strerror(errno));
	}
	fprintf(plot->script,
		"set encoding utf8\n"
		"set terminal svg size 960,560 font 'sans-serif,14' background '#ffffff'\n"
		"set output ");
	plot_print_quoted(plot->script, file);
	fputc('\n', plot->script);
	*out = plot;
	return 0;
}

FILE *plot_script(struct plot *plot)
{
	return plot->script;
}

/* From <?xml to </svg>. */
static bool whole_svg(const char *file)
{
	char head[512] = "", tail[64] = "";
	FILE *f = fopen(file, "re");

	if (!f)
		return false;
	size_t n = fread(head, 1, sizeof(head) - 1, f);
	bool ok = n > 0 && !strncmp(head, "<?xml", 5) && strstr(head, "<svg");
	if (ok && fseek(f, -(long)(sizeof(tail) - 1), SEEK_END) == 0) {
		n = fread(tail, 1, sizeof(tail) - 1, f);
		ok = n > 0 && strstr(tail, "</svg>");
	}
	fclose(f);
	return ok;
}

int plot_end(struct plot *plot)
{
	const char *file = plot->file;
	bool written = fflush(plot->script) == 0 && !ferror(plot->script);
	int status = pclose(plot->script);

	free(plot);
	if (!written || status == -1 || !WIFEXITED(status) || WEXITSTATUS(status))
		return err_set(ECHILD,
			       "gnuplot failed (what it said stands above), %s is not a picture",
			       file);
	if (!whole_svg(file))
		return err_set(EBADMSG, "gnuplot ended well, but %s is not a whole SVG", file);
	return 0;
}

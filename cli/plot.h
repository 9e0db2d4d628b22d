/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures: gnuplot, which draws what it reads, and a look at what it made.
 */
#ifndef GS_CLI_PLOT_H
#define GS_CLI_PLOT_H

#include <stdio.h>

struct plot;

/* Whether there will be a picture, before there is anything to draw: gnuplot is installed, and
 * `file` can be written. Errors: -ENOENT (no gnuplot: the text names the package), -EINVAL (the
 * name), what open(2) gives. */
int plot_check(const char *file);

/* Starts gnuplot with `file` as an SVG of its output; what is printed to plot_script() is its
 * script. Errors: plot_check's, -ECHILD. */
int plot_begin(const char *file, struct plot **out);
FILE *plot_script(struct plot *plot);
/* Waits for it, and checks that `file` is a whole SVG. Errors: -ECHILD (gnuplot failed), -EBADMSG.
 */
int plot_end(struct plot *plot);

/* `text` for a string of gnuplot in single quotes. */
void plot_print_quoted(FILE *to, const char *text);

#endif

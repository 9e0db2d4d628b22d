/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON on stdout: results for programs, and the lines that child processes report with.
 */
#ifndef GS_CLI_JSON_H
#define GS_CLI_JSON_H

#include <jansson.h>

/* Prints `value` for a reader of results, or (json_line) on one line, flushed at once. Both take
 * the reference. Returns 0, -ENOMEM when `value` is NULL, -EIO; with err_text(). */
int json_result(json_t *value);
int json_line(json_t *value);

/* A child's line. Errors: -EPROTO, with the line in the text. */
int json_from_line(const char *line, json_t **out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON on stdout.
 */
#include "cli/json.h"

#include "base/err.h"

#include <errno.h>
#include <stdio.h>

static int print(json_t *value, size_t flags)
{
	int rc = 0;

	if (!value)
		return err_set(ENOMEM, "no memory for a JSON object");
	if (json_dumpf(value, stdout, flags | JSON_REAL_PRECISION(9)) < 0 || putchar('\n') < 0 ||
	    fflush(stdout) != 0)
		rc = err_set(EIO, "stdout can't be written");
	json_decref(value);
	return rc;
}

int json_result(json_t *value)
{
	return print(value, JSON_INDENT(2));
}

int json_line(json_t *value)
{
	return print(value, JSON_COMPACT);
}

int json_from_line(const char *line, json_t **out)
{
	json_error_t error;
	json_t *value = json_loads(line, JSON_REJECT_DUPLICATES, &error);

	if (!value)
		return err_set(EPROTO, "a child process wrote '%.80s': %s", line, error.text);
	*out = value;
	return 0;
}

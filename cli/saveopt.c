/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of checkpoints.
 */
#include "cli/saveopt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "store/checkpoint.h"

struct saveopt saveopt_default(void)
{
	struct srv_options o = srv_options_default();

	return (struct saveopt){.keep = o.keep, .stop_s = o.stop_ms / 1000};
}

/* Up to 18 digits; 0 is none. */
static uint64_t number(const char *text, const char **end)
{
	uint64_t value = 0;

	for (*end = text; **end >= '0' && **end <= '9' && *end - text < 18; ++*end)
		value = 10 * value + (uint64_t)(**end - '0');
	return value;
}

int saveopt_parse_every(const char *text, void *out)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} units[] = {{"s", 1000}, {"m", 60 * 1000}, {"h", 3600 * 1000}};
	const uint64_t longest = 366 * 24 * 3600 * UINT64_C(1000);
	struct saveopt_every *every = out;
	const char *end;
	uint64_t n = number(text, &end);

	if (n && !*end) {
		*every = (struct saveopt_every){.steps = n};
		return 0;
	}
	for (unsigned i = 0; n && i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].unit) == 0 && n <= longest / units[i].ms) {
			*every = (struct saveopt_every){.ms = n * units[i].ms};
			return 0;
		}
	return err_set(EINVAL, "it may be a number of steps, or a time as 30s, 5m or 1h");
}

/* The directory holds a checkpoint, sound or not: then that it is restored is what is expected. */
static int holds_any(const char *dir, bool *any)
{
	uint64_t *numbers = NULL;
	uint32_t n = 0;
	int rc = checkpoint_list(dir, &numbers, &n);

	free(numbers);
	*any = n > 0;
	return rc == -ENOENT ? 0 : rc;
}

static int restore_auto(const struct saveopt *so, struct srv_options *out)
{
	bool any;
	int rc = so->dir ? holds_any(so->dir, &any) : 0;

	if (rc || !so->dir)
		return rc;
	if (any)
		out->restore[out->n_restore++] = so->dir;
	else
		log_info("%s holds no checkpoint: training begins anew", so->dir);
	return 0;
}

int saveopt_settle(const struct saveopt *so, struct srv_options *out)
{
	const struct opt_texts *r = &so->restore;

	out->checkpoint_dir = so->dir;
	out->checkpoint_steps = so->every.steps;
	out->checkpoint_ms = so->every.ms;
	out->keep = (uint32_t)so->keep;
	out->stop_ms = (uint32_t)so->stop_s * 1000;
	out->n_restore = 0;
	if (r->n == 0 || (r->n == 1 && strcmp(r->text[0], "auto") == 0))
		return restore_auto(so, out);
	if (r->n == 1 && strcmp(r->text[0], "none") == 0)
		return 0;
	for (uint32_t i = 0; i < r->n; i++) {
		if (strcmp(r->text[i], "auto") == 0 || strcmp(r->text[i], "none") == 0)
			return err_set(EINVAL, "--restore %s stands alone", r->text[i]);
		out->restore[out->n_restore++] = r->text[i];
	}
	return 0;
}

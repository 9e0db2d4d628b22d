/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a server waits for a trainer, as text.
 */
#include "cli/patience.h"

#include "base/err.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct patience patience_default(void)
{
	struct srv_options o = srv_options_default();

	return (struct patience){
	    .loss = {o.on_loss, o.loss_wait_ms},
	    .straggler = {o.on_straggler, o.straggler_ms},
	    .keepalive_ms = o.keepalive_ms,
	};
}

void patience_apply(const struct patience *p, struct srv_options *opt)
{
	opt->on_loss = p->loss.policy;
	opt->loss_wait_ms = p->loss.wait_ms;
	opt->on_straggler = p->straggler.policy;
	opt->straggler_ms = p->straggler.after_ms;
	opt->keepalive_ms = p->keepalive_ms;
}

/* Digits, and perhaps a point and up to three more; *end is what follows. */
static bool take_seconds(const char *text, uint32_t *ms, const char **end)
{
	uint32_t value = 0, unit = 1000;
	const char *c = text;

	for (; *c >= '0' && *c <= '9' && value <= PATIENCE_MAX_S; c++)
		value = 10 * value + (uint32_t)(*c - '0');
	if (c == text || value > PATIENCE_MAX_S)
		return false;
	value *= 1000;
	if (*c == '.') {
		const char *point = c++;

		for (; *c >= '0' && *c <= '9' && unit > 1; c++)
			value += (uint32_t)(*c - '0') * (unit /= 10);
		if (c == point + 1)
			return false;
	}
	*ms = value;
	*end = c;
	return value <= PATIENCE_MAX_S * 1000u;
}

static bool take_all_seconds(const char *text, uint32_t *ms)
{
	const char *end;

	return take_seconds(text, ms, &end) && !*end;
}

int patience_parse_loss(const char *text, void *out)
{
	struct patience_loss *loss = out, parsed = *loss;

	if (!strcmp(text, "continue"))
		parsed.policy = SRV_LOSS_CONTINUE;
	else if (!strcmp(text, "stop"))
		parsed.policy = SRV_LOSS_STOP;
	else if (!strncmp(text, "wait:", 5) && take_all_seconds(text + 5, &parsed.wait_ms))
		parsed.policy = SRV_LOSS_WAIT;
	else
		return err_set(EINVAL, "it may be continue, stop, or wait:SECONDS with 0 to %d seconds",
			       PATIENCE_MAX_S);
	*loss = parsed;
	return 0;
}

static bool parse_policy(const char *text, enum srv_straggler *policy)
{
	static const char *const names[] = {
	    [SRV_STRAGGLER_WAIT] = ":wait",
	    [SRV_STRAGGLER_DROP] = ":drop",
	    [SRV_STRAGGLER_STOP] = ":stop",
	};

	*policy = SRV_STRAGGLER_WAIT;
	if (!*text)
		return true;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		*policy = (enum srv_straggler)i;
		if (!strcmp(text, names[i]))
			return true;
	}
	return false;
}

int patience_parse_straggler(const char *text, void *out)
{
	struct patience_straggler *straggler = out, parsed;
	const char *rest;

	if (!take_seconds(text, &parsed.after_ms, &rest) || !parse_policy(rest, &parsed.policy))
		return err_set(EINVAL,
			       "it may be 0 to %d seconds, with :wait, :drop or :stop behind them",
			       PATIENCE_MAX_S);
	*straggler = parsed;
	return 0;
}

int patience_parse_keepalive(const char *text, void *out)
{
	uint32_t ms;

	/* Beats are looked at ten times a second, and three of them are the silence that is allowed. */
	if (!take_all_seconds(text, &ms) || (ms && ms < SRV_MIN_KEEPALIVE_MS))
		return err_set(EINVAL, "it may be 0, or %g to %d seconds",
			       SRV_MIN_KEEPALIVE_MS / 1000.0, PATIENCE_MAX_S);
	*(uint32_t *)out = ms;
	return 0;
}

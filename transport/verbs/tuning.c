/* SPDX-License-Identifier: Apache-2.0
 *
 * Settling what a URI asks of a queue pair.
 */
#include "transport/verbs/tuning.h"

#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static uint8_t or_default(int asked, uint8_t value)
{
	return asked < 0 ? value : (uint8_t)asked;
}

/* An option that is ignored would look as if it held. */
static int check_iwarp(const struct tp_tuning *asked, const struct tuning_device *dev)
{
	const char *which = asked->timeout >= 0     ? "timeout"
			    : asked->retry >= 0     ? "retry"
			    : asked->rnr >= 0       ? "rnr"
			    : asked->rnr_timer >= 0 ? "rnr_timer"
						    : NULL;

	if (!which || !dev->iwarp)
		return 0;
	return err_set(EINVAL,
		       "%s is an iWARP device, whose retransmission is TCP's: it has no %s, leave "
		       "it out",
		       dev->name, which);
}

int tuning_settle(const struct tp_tuning *asked, const struct tuning_device *dev,
		  struct tuning *out)
{
	int rc = check_iwarp(asked, dev);

	if (rc < 0)
		return rc;
	if (dev->rxe && asked->retry == 7)
		return err_set(EINVAL,
			       "retry=7: %s is Soft-RoCE, which takes 7 for no limit, so that a "
			       "dead peer would never be noticed: 0 to 6",
			       dev->name);
	*out = (struct tuning){
	    .timeout = or_default(asked->timeout, TUNING_TIMEOUT),
	    .retry = or_default(asked->retry, TUNING_RETRY),
	    .rnr = or_default(asked->rnr, TUNING_RNR),
	    .rnr_timer = or_default(asked->rnr_timer, TUNING_RNR_TIMER),
	    .max_inline = asked->in_line < 0 ? TUNING_INLINE : (uint32_t)asked->in_line,
	    .inline_asked = asked->in_line >= 0,
	    .relaxed = asked->relaxed != 0,
	    .cq_count = asked->cq_count < 0 ? 0 : (uint16_t)asked->cq_count,
	    .cq_usec = asked->cq_usec < 0 ? 0 : (uint16_t)asked->cq_usec,
	    .asked = *asked,
	};
	return 0;
}

struct text {
	char *at;
	size_t size, len;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;

	if (t->len >= t->size)
		return;
	va_start(ap, fmt);
	t->len += (size_t)vsnprintf(t->at + t->len, t->size - t->len, fmt, ap);
	va_end(ap);
}

void tuning_text(const struct tuning *tuning, char *out, size_t size)
{
	const struct tp_tuning *asked = &tuning->asked;
	struct text t = {out, size, 0};

	if (size)
		out[0] = 0;
	if (asked->timeout >= 0)
		add(&t, ", timeout %u", tuning->timeout);
	if (asked->retry >= 0)
		add(&t, ", retry %u", tuning->retry);
	if (asked->rnr >= 0)
		add(&t, ", rnr %u", tuning->rnr);
	if (asked->rnr_timer >= 0)
		add(&t, ", rnr_timer %u", tuning->rnr_timer);
	if (asked->depth >= 0)
		add(&t, ", depth %d", asked->depth);
	if (asked->in_line >= 0)
		add(&t, ", inline %u", tuning->max_inline);
	if (asked->relaxed >= 0)
		add(&t, ", ro %d", tuning->relaxed);
	if (asked->cq_count >= 0)
		add(&t, ", cq_mod %u/%u", tuning->cq_count, tuning->cq_usec);
}

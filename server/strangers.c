/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits on what may come from those who are connected.
 */
#include "server/strangers.h"

#include "base/clock.h"
#include "server/access.h"
#include "server/control.h"
#include "server/internal.h"

/* It has said no hello, or no proof, and its end was not decided. (One that has may have to wait for
 * its rank.) */
static bool is_one(const struct session *s)
{
	if (atomic_load(&s->condemned))
		return false;
	switch (session_state(s)) {
	case SESSION_HELLO:
		return s->answered == 0;
	case SESSION_PROVING:
		return !access_proved(s);
	default:
		return false;
	}
}

static uint32_t count(const struct srv *srv, struct session **oldest)
{
	uint32_t n = 0;

	/* The list begins with the newest. */
	for (struct session *s = srv->sessions; s; s = s->next) {
		if (is_one(s)) {
			*oldest = s;
			n++;
		}
	}
	return n;
}

bool strangers_alone(const struct srv *srv)
{
	struct session *oldest = NULL;

	return count(srv, &oldest) == srv->n_sessions;
}

bool strangers_full(const struct srv *srv)
{
	struct session *oldest = NULL;

	return count(srv, &oldest) >= STRANGERS_MAX &&
	       clock_ns() < oldest->since + control_talk_ns(srv) / STRANGERS_PLACE_PART;
}

void strangers_limit(struct srv *srv)
{
	struct session *oldest = NULL;

	if (count(srv, &oldest) <= STRANGERS_MAX)
		return;
	atomic_fetch_add(&srv->half_open, 1);
	session_condemn(oldest, WIRE_E_FULL,
			"more than %d connections have not said who they are, and this is the oldest",
			STRANGERS_MAX);
}

void strangers_silent(struct session *s)
{
	if (is_one(s))
		atomic_fetch_add(&s->srv->half_open, 1);
}

static uint64_t every_ns(const struct session *s)
{
	return NS_PER_S / s->srv->opt.talk_rate;
}

bool strangers_may_talk(struct session *s)
{
	if (bucket_take(&s->talk, clock_ns(), every_ns(s), s->srv->opt.talk_burst))
		return true;
	atomic_fetch_add(&s->srv->flooded, 1);
	session_condemn(s, WIRE_E_PROTOCOL,
			"control messages come too fast: %u at once and %u a second are taken",
			s->srv->opt.talk_burst, s->srv->opt.talk_rate);
	return false;
}

void strangers_answered(struct session *s)
{
	bucket_give(&s->talk, every_ns(s));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Keepalive.
 */
#include "server/beat.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/internal.h"

bool beat_due(const struct beat *b, uint64_t now)
{
	return !b->posted && now >= b->next;
}

void beat_tried(struct beat *b, bool posted, uint64_t now)
{
	b->posted = posted;
	if (!b->since)
		b->since = now;
}

void beat_ended(struct beat *b, uint64_t gap_ns, uint64_t now)
{
	*b = (struct beat){.next = now + gap_ns};
}

bool beat_is_silent(const struct beat *b, uint64_t limit_ns, uint64_t now)
{
	return b->since && now >= b->since + limit_ns;
}

/* ---- sessions ---------------------------------------------------------------------------------- */

static void keep(struct session *s, uint64_t now)
{
	uint64_t limit = s->srv->opt.keepalive_ms * NS_PER_MS;

	if (s->beat.posted && session_beat_ended(s))
		beat_ended(&s->beat, limit / 3, now);
	if (beat_due(&s->beat, now))
		beat_tried(&s->beat, session_post_beat(s), now);
	if (!beat_is_silent(&s->beat, limit, now) || atomic_exchange(&s->condemned, true))
		return;
	/* No word to it: that would only wait behind the rest. */
	log_warn("%s: lost while %s: silent for %u ms", s->who,
		 session_state_name(session_state(s)), s->srv->opt.keepalive_ms);
	atomic_fetch_add(&s->srv->silent, 1);
	tp_conn_close(s->conn);
}

void beat_all(struct srv *srv, uint64_t now)
{
	if (!srv->opt.keepalive_ms)
		return;
	for (struct session *s = srv->sessions; s; s = s->next) {
		enum session_state state = session_state(s);

		if (state >= SESSION_HELD && state <= SESSION_ACTIVE && !atomic_load(&s->condemned))
			keep(s, now);
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What little is said while a trainer trains.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "server/internal.h"
#include "server/dialog.h"
#include "server/strangers.h"

/* ---- learning rates ---------------------------------------------------------------------------- */

void notice_set_rate(struct session *s, const struct wire_set_rate *set)
{
	struct table *t = srv_table(s->srv);

	if (s->rate_busy || set->param >= t->params) {
		session_condemn(s, WIRE_E_PROTOCOL, "the rate of parameter %u: %s", set->param,
				s->rate_busy ? "another is being set" : "there is none");
		return;
	}
	s->rate_busy = true;
	s->rate = (struct rate){
		.item = {.kind = ITEM_RATE, .home = t->param[set->param].home},
		.session = s,
		.param = set->param,
		.lr = set->rate,
	};
	session_queue(s, &s->rate.item);
}

void notice_rate_set(struct session *s)
{
	struct wire_msg msg = {.kind = WIRE_RATE_SET, .rate_set = {.param = s->rate.param}};

	s->rate_busy = false;
	strangers_answered(s);
	log_debug("%s: sets the rate of \"%s\" to %g", s->who,
		  srv_table(s->srv)->param[s->rate.param].decl.name, s->rate.lr);
	if (session_state(s) == SESSION_ACTIVE && !atomic_load(&s->condemned))
		dialog_send(s, &msg);
}

/* ---- refused pushes ---------------------------------------------------------------------------- */

void notice_refused(struct session *s)
{
	const struct param *p = &srv_table(s->srv)->param[s->refusal.param];
	struct wire_msg msg = {.kind = WIRE_NOTICE,
			       .notice = {.param = s->refusal.param, .code = WIRE_E_CAPACITY}};

	snprintf(msg.notice.text, sizeof(msg.notice.text),
		 "no row is free for key %" PRId64 ": the table has %" PRIu64 ", all of them in use; "
		 "its capacity must be more%s. The whole push was left out", s->refusal.key,
		 p->decl.dim[0], p->decl.evict_after ? "" : ", or evict_after be set");
	/* From here on another refusal makes a note of its own. An exchange, since it acquires: whoever
	 * found the note under way has counted before. */
	atomic_exchange(&s->refusal_noted, false);
	msg.notice.refused = session_refused(s);
	log_info("%s: table \"%s\": %s", s->who, p->decl.name, msg.notice.text);
	if (session_state(s) == SESSION_ACTIVE && !atomic_load(&s->condemned))
		dialog_send(s, &msg);
}

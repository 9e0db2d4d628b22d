/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages, the trainer's side of the conversation in wire.h. At any time one kind is
 * expected, or none; anything else, but an error, is a breach of the protocol:
 *
 *   t->expect  WELCOME   from gs_connect's hello on (a CHALLENGE may come first: access.c)
 *              -         until gs_start
 *              GRANT     from the first declare until the last grant
 *              -         until our memory is ready
 *              READY     from attach on
 *              START     from ready on (it may come right behind it)
 *              -         working
 *              BYE       from gs_leave's bye on
 *
 * RATE_SET answers a set_rate beside it, SAVED a save, and a NOTICE may come while training goes
 * on.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

int talk_send(gs_trainer *t, const struct wire_msg *msg)
{
	uint8_t buf[WIRE_MSG_MAX];
	int rc, len = wire_encode(msg, buf, sizeof(buf));

	if (len < 0)
		return len;
	do {
		uint64_t rooms = t->rooms;

		rc = tp_send(t->link.conn, buf, (size_t)len);
		if (rc == 0)
			return 0;
		rc = trainer_blocked(t, rc, rooms);
	} while (rc == 0);
	return rc;
}

static bool has_come(gs_trainer *t, void *kind)
{
	return t->expect != *(enum wire_kind *)kind;
}

int talk_wait(gs_trainer *t, uint32_t timeout_ms)
{
	static const char *const whats[] = {
	    [WIRE_WELCOME] = "the server's welcome",
	    [WIRE_GRANT] = "the server to grant memory for the parameters",
	    [WIRE_READY] = "the server to get ready",
	    [WIRE_START] = "the server's start",
	    [WIRE_BYE] = "the server to let go",
	};
	enum wire_kind kind = t->expect;

	return kind == 0 ? 0 : trainer_wait(t, has_come, &kind, timeout_ms, whats[kind]);
}

/* ---- what came ------------------------------------------------------------------------------- */

static int take_grant(gs_trainer *t, const struct wire_grant *g)
{
	struct grant *all = &t->link.grant;

	if (g->n > t->n_params - all->n)
		return err_set(EPROTO, "grant: places for %u parameters; %u were declared",
			       all->n + g->n, t->n_params);
	memcpy(all->place + all->n, g->place, g->n * sizeof(g->place[0]));
	all->n += g->n;
	if (!g->last)
		return 0;
	all->slots = g->slots;
	all->blocks = g->blocks;
	all->weights = g->weights;
	all->slot_mem = g->slot_mem;
	t->expect = 0;
	return 0;
}

static int take(gs_trainer *t, const struct wire_msg *msg)
{
	int rc;

	switch (msg->kind) {
	case WIRE_WELCOME:
		rc = access_check(t, &msg->welcome);
		if (rc < 0)
			return rc;
		t->welcome = msg->welcome;
		t->expect = 0;
		return 0;
	case WIRE_GRANT:
		return take_grant(t, &msg->grant);
	case WIRE_READY:
		t->init_asked = msg->ready.init;
		t->expect = WIRE_START;
		return 0;
	case WIRE_START:
		if (t->welcome.mode != WIRE_ASYNC && msg->start.step == 0)
			return err_set(EPROTO, "start: step 0; the first is 1");
		t->first_step = t->welcome.mode != WIRE_ASYNC ? msg->start.step : 0;
		t->expect = 0;
		return 0;
	default: /* BYE */
		t->expect = 0;
		return 0;
	}
}

/* What may come at another time than what is expected. */
static bool take_aside(gs_trainer *t, const struct wire_msg *msg)
{
	if (msg->kind == WIRE_RATE_SET && t->rate_asked) {
		t->rate_asked = false;
		return true;
	}
	if (msg->kind == WIRE_NOTICE && t->phase >= PHASE_WORK && msg->notice.param < t->n_params) {
		t->refused = -wire_error_errno(msg->notice.code);
		t->refused_noticed = msg->notice.refused;
		snprintf(t->refused_text, sizeof(t->refused_text), "parameter \"%.127s\": %.300s",
			 t->param[msg->notice.param]->wire.name, msg->notice.text);
		return true;
	}
	if (msg->kind == WIRE_SAVED && t->save == SAVE_ASKED) {
		t->saved = msg->saved;
		t->save = SAVE_TOLD;
		return true;
	}
	return false;
}

/* A server without the key broke no protocol. */
static void end_if(gs_trainer *t, int rc)
{
	if (rc == -EACCES)
		trainer_fail(t, rc);
	else if (rc < 0)
		trainer_breach(t);
}

void talk_take(gs_trainer *t, const void *bytes, size_t len)
{
	struct wire_msg msg;

	if (wire_decode(bytes, len, &msg) < 0) {
		trainer_breach(t);
		return;
	}
	if (msg.kind == WIRE_ERROR) {
		int rc = wire_error_errno(msg.error.code);

		trainer_fail(t, err_set(-rc, "the server says: %s", msg.error.text));
		return;
	}
	if (take_aside(t, &msg))
		return;
	if (msg.kind == WIRE_CHALLENGE && t->expect == WIRE_WELCOME) {
		end_if(t, access_answer(t, &msg.challenge));
		return;
	}
	if (msg.kind != t->expect) {
		err_set(EPROTO, "it sent %s where %s was due", wire_kind_name(msg.kind),
			t->expect ? wire_kind_name(t->expect) : "no message");
		trainer_breach(t);
		return;
	}
	end_if(t, take(t, &msg));
}

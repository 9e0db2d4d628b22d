/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages: those that wait for room, and what comes when (proto/wire.h has the conversation),
 * on the control thread. A message that does not fit the session's state ends it.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "server/access.h"
#include "server/control.h"
#include "server/internal.h"
#include "server/dialog.h"
#include "server/strangers.h"

struct outgoing {
	struct outgoing *next;
	uint64_t words, end; /* to the mailbox, if `end` is not 0 */
	uint32_t len;
	uint8_t data[];
};

/* One write; the queue of a connection may not hold more at once. */
enum { WORDS_MAX = 16 << 10 };

void dialog_drop(struct session *s)
{
	while (s->out_first) {
		struct outgoing *o = s->out_first;

		s->out_first = o->next;
		free(o);
	}
	s->out_last = NULL;
}

/* False: no room. */
static bool write_words(struct session *s, struct outgoing *o)
{
	while (o->words < o->end) {
		uint64_t left = o->end - o->words;
		struct tp_op op = {
		    .kind = TP_OP_WRITE,
		    .local = s->words + o->words,
		    .region = s->words_region,
		    .remote = s->mailbox,
		    .offset = o->words,
		    .len = left < WORDS_MAX ? left : WORDS_MAX,
		};
		int rc = tp_post(s->conn, &op, 1);

		if (rc == -EAGAIN)
			return false;
		if (rc < 0 && rc != -ENOTCONN)
			session_condemn(s, WIRE_E_INTERNAL, "its words: %s", err_text());
		if (rc < 0)
			return true; /* it is over */
		o->words += op.len;
	}
	return true;
}

static bool send_one(struct session *s, struct outgoing *o)
{
	return o->end ? write_words(s, o) : tp_send(s->conn, o->data, o->len) != -EAGAIN;
}

void dialog_flush(struct session *s)
{
	while (s->out_first) {
		struct outgoing *o = s->out_first;

		if (!send_one(s, o))
			return; /* NOTE_ROOM comes */
		s->out_first = o->next;
		if (!s->out_first)
			s->out_last = NULL;
		free(o);
	}
}

static void enqueue(struct session *s, struct outgoing *o)
{
	o->next = NULL;
	if (s->out_last)
		s->out_last->next = o;
	else
		s->out_first = o;
	s->out_last = o;
	dialog_flush(s);
}

void dialog_send(struct session *s, const struct wire_msg *msg)
{
	struct outgoing *o = malloc(sizeof(*o) + WIRE_MSG_MAX);
	int len = o ? wire_encode(msg, o->data, WIRE_MSG_MAX) : -ENOMEM;

	if (len < 0) {
		free(o);
		session_condemn(s, WIRE_E_INTERNAL, "no %s could be made: %s",
				wire_kind_name(msg->kind), o ? err_text() : "no memory");
		return;
	}
	o->len = (uint32_t)len;
	o->end = 0;
	enqueue(s, o);
}

void dialog_send_words(struct session *s, uint64_t off, uint64_t len)
{
	struct outgoing *o = malloc(sizeof(*o));

	if (!o) {
		session_condemn(s, WIRE_E_INTERNAL, "no memory for its words");
		return;
	}
	o->words = off;
	o->end = off + len;
	enqueue(s, o);
}

/* ---- dispatch ---------------------------------------------------------------------------------- */

static bool fits(const struct session *s, enum wire_kind kind)
{
	enum session_state state = session_state(s);

	switch (kind) {
	case WIRE_HELLO:
		return state == SESSION_HELLO && !s->waiting;
	case WIRE_PROOF:
		return state == SESSION_PROVING && !s->waiting;
	case WIRE_DECLARE:
		return state == SESSION_DECLARING;
	case WIRE_ATTACH:
		return state == SESSION_ATTACHING;
	case WIRE_INIT_DONE:
		return state == SESSION_INITIALISING;
	case WIRE_SET_RATE:
	case WIRE_SAVE:
		return state == SESSION_ACTIVE;
	case WIRE_BYE:
		return state >= SESSION_DECLARING && state <= SESSION_ACTIVE;
	case WIRE_ERROR:
		return true;
	default:
		return false;
	}
}

static void dispatch(struct session *s, const struct wire_msg *msg)
{
	switch (msg->kind) {
	case WIRE_HELLO:
		hello_take(s, &msg->hello);
		break;
	case WIRE_PROOF:
		access_take(s, &msg->proof);
		break;
	case WIRE_DECLARE:
		declare_take(s, &msg->declare);
		break;
	case WIRE_ATTACH:
		start_attach(s, &msg->attach);
		break;
	case WIRE_INIT_DONE:
		start_init_done(s);
		break;
	case WIRE_BYE:
		leave_bye(s);
		break;
	case WIRE_SET_RATE:
		notice_set_rate(s, &msg->set_rate);
		break;
	case WIRE_SAVE:
		saver_save(s);
		break;
	default: /* WIRE_ERROR: fits() lets nothing else through */
		log_warn("%s: it says: %s", s->who, msg->error.text);
		tp_conn_close(s->conn);
		break;
	}
}

void dialog_message(struct session *s, const void *data, uint32_t len)
{
	struct wire_msg msg;

	if (atomic_load(&s->condemned) || session_state(s) == SESSION_CLOSED)
		return;
	if (!strangers_may_talk(s))
		return;
	s->answered += session_ends_data(wire_peek(data, len));
	if (wire_decode(data, len, &msg))
		session_condemn(s, WIRE_E_PROTOCOL, "control message: %s", err_text());
	else if (!fits(s, msg.kind))
		session_condemn(s, WIRE_E_PROTOCOL, "a %s message while %s",
				wire_kind_name(msg.kind), session_state_name(session_state(s)));
	else
		dispatch(s, &msg);
	/* From here on: what the server took for its answer is not the trainer's silence. */
	if (s->deadline)
		s->deadline = clock_ns() + control_talk_ns(s->srv);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * From the mailbox to the first step.
 */
#include <errno.h>

#include "base/err.h"
#include "base/log.h"
#include "server/internal.h"
#include "server/dialog.h"

static void send_ready(struct session *s, bool init)
{
	struct wire_msg msg = {.kind = WIRE_READY, .ready = {.init = init}};

	s->deadline = 0; /* from here on it may wait for others */
	dialog_send(s, &msg);
}

static void activate(struct session *s, uint64_t step)
{
	struct wire_msg msg = {.kind = WIRE_START, .start = {.step = step}};

	s->posting = step;
	s->data_after = s->answered;
	s->srv->ever_active += ledger_train(&s->srv->ledger, s->rank);
	s->srv->begun = true;
	session_set_state(s, SESSION_ACTIVE);
	log_info("%s: %s over %s", s->who, session_state_name(SESSION_ACTIVE),
		 tp_conn_transport(s->conn));
	dialog_send(s, &msg);
}

static void join(struct session *s)
{
	atomic_fetch_add(&s->srv->joined, 1);
	s->took_part = true;
	atomic_fetch_add(&s->srv->rejoined, ledger_settle(&s->srv->ledger, s->rank));
	vigil_settle(&s->srv->vigil, s->rank);
	session_set_state(s, SESSION_JOINING);
	if (s->srv->opt.mode != SRV_ASYNC)
		session_queue(s, &s->join);
	else
		activate(s, 0);
}

/* Its place in the next step is taken before it hears that it is ready: no step that begins after
 * that leaves it out. (Without steps it starts at once, so behind that.) */
static void let_in(struct session *s)
{
	bool steps = s->srv->opt.mode != SRV_ASYNC;

	if (steps)
		join(s);
	send_ready(s, false);
	if (!steps)
		join(s);
}

/* Goes on with those that wait for initial weights, as far as it can. */
void start_held(struct srv *srv)
{
	for (struct session *s = srv->sessions; s; s = s->next) {
		if (session_state(s) != SESSION_HELD || atomic_load(&s->condemned))
			continue;
		if (srv->weights_ready) {
			let_in(s);
		} else if (!srv->initialiser) {
			srv->initialiser = s;
			s->data_after = s->answered;
			session_set_state(s, SESSION_INITIALISING);
			send_ready(s, true);
		}
	}
}

void start_attach(struct session *s, const struct wire_attach *a)
{
	uint32_t blocks = srv_table(s->srv)->blocks;
	int rc = session_attach(s, &a->mailbox);

	if (rc == -ENOTCONN)
		return; /* it died meanwhile */
	if (rc) {
		session_condemn(s, WIRE_E_PROTOCOL, "mailbox: %s", err_text());
		return;
	}
	s->deadline = 0;
	/* What the rank has here is known: its last session is over. */
	session_seed_words(s);
	dialog_send_words(s, layout_credit_off(0), layout_kept_off(blocks, blocks) -
							layout_credit_off(0));
	session_set_state(s, SESSION_HELD);
	start_held(s->srv);
}

void start_init_done(struct session *s)
{
	uint32_t left = atomic_load(&srv_table(s->srv)->init_left);

	if (left) {
		session_condemn(s, WIRE_E_PROTOCOL,
				"init_done, but %u blocks have no initial weights", left);
		return;
	}
	s->srv->initialiser = NULL;
	s->srv->weights_ready = true;
	join(s);
	start_held(s->srv);
}

void start_begun(struct session *s)
{
	if (session_state(s) == SESSION_JOINING)
		activate(s, s->first_step);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The talk with a trainer before and after its training, and what little is said meanwhile
 * (proto/wire.h has the conversation), on the control thread. A message that does not fit the
 * session's state ends it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "server/control.h"
#include "server/internal.h"

#define MAX_PARAMS (1u << 20)

/* ---- sending ----------------------------------------------------------------------------------- */

struct outgoing {
	struct outgoing *next;
	uint32_t len;
	uint8_t data[];
};

void handshake_drop_outgoing(struct session *s)
{
	while (s->out_first) {
		struct outgoing *o = s->out_first;

		s->out_first = o->next;
		free(o);
	}
	s->out_last = NULL;
}

void handshake_flush(struct session *s)
{
	while (s->out_first) {
		struct outgoing *o = s->out_first;

		if (tp_send(s->conn, o->data, o->len) == -EAGAIN)
			return; /* NOTE_ROOM comes */
		s->out_first = o->next;
		if (!s->out_first)
			s->out_last = NULL;
		free(o);
	}
}

static void send_msg(struct session *s, const struct wire_msg *msg)
{
	struct outgoing *o = malloc(sizeof(*o) + WIRE_MSG_MAX);
	int len = o ? wire_encode(msg, o->data, WIRE_MSG_MAX) : -ENOMEM;

	if (len < 0) {
		free(o);
		session_condemn(s, WIRE_E_INTERNAL, "no %s could be made: %s",
				wire_kind_name(msg->kind), o ? err_text() : "no memory");
		return;
	}
	o->next = NULL;
	o->len = (uint32_t)len;
	if (s->out_last)
		s->out_last->next = o;
	else
		s->out_first = o;
	s->out_last = o;
	handshake_flush(s);
}

/* ---- hello ------------------------------------------------------------------------------------- */

static void describe(struct session *s, const char *name)
{
	snprintf(s->who, sizeof(s->who), "trainer %u \"%.80s\" at %s", s->rank, name,
		 tp_conn_peer(s->conn));
}

static int64_t free_rank(const struct srv *srv)
{
	for (uint32_t r = 0; r < srv->opt.trainers; r++)
		if (!srv->rank[r])
			return r;
	return -1;
}

static bool take_rank(struct session *s, int32_t asked)
{
	struct srv *srv = s->srv;
	int64_t rank = asked < 0 ? free_rank(srv) : asked;

	if (rank < 0 || (asked >= 0 && free_rank(srv) < 0)) {
		session_condemn(s, WIRE_E_FULL,
				"%u trainers are connected, as many as the server was started for",
				srv->opt.trainers);
		return false;
	}
	if (rank >= srv->opt.trainers) {
		session_condemn(s, WIRE_E_RANGE, "rank %" PRId64 " is not below the %u trainers "
				"that the server was started for", rank, srv->opt.trainers);
		return false;
	}
	if (srv->rank[rank]) {
		session_condemn(s, WIRE_E_RANK, "rank %" PRId64 " is held by %s, whose connection is alive",
				rank, srv->rank[rank]->who);
		return false;
	}
	srv->rank[rank] = s;
	s->rank = (uint32_t)rank;
	s->has_rank = true;
	return true;
}

static void on_hello(struct session *s, const struct wire_hello *hello)
{
	struct srv *srv = s->srv;
	struct wire_msg msg = {.kind = WIRE_WELCOME};

	if (hello->version != WIRE_VERSION) {
		session_condemn(s, WIRE_E_VERSION,
				"the trainer speaks version %u of the protocol, the server %u: use "
				"the same release on both", hello->version, WIRE_VERSION);
		return;
	}
	if (!take_rank(s, hello->rank))
		return;
	describe(s, hello->name);
	msg.welcome = (struct wire_welcome){
		.version = WIRE_VERSION,
		.rank = s->rank,
		.trainers = srv->opt.trainers,
		.mode = (enum wire_mode)srv->opt.mode, /* numbered alike */
		.staleness = srv->opt.staleness,
	};
	session_set_state(s, SESSION_DECLARING);
	s->deadline = 0; /* it may load its data first: its rank tells it which */
	send_msg(s, &msg);
}

/* ---- declare and grant ------------------------------------------------------------------------- */

/* What is kept of declarations before they make a table, and of its parameters then, comes out of
 * the server's memory too. */
static int may_declare(const struct srv *srv, uint32_t n)
{
	struct memory_limits limits = memory_limits_now(srv->opt.max_memory, false);
	uint64_t need = n * (sizeof(struct wire_param) + sizeof(struct param));

	if (need <= limits.ram)
		return 0;
	return err_set(ENOMEM, "the declarations of %u parameters take %s, %s is %s", n,
		       size_text(need).s, limits.ram_what, size_text(limits.ram).s);
}

static int keep_declared(struct session *s, const struct wire_declare *d)
{
	if (s->n_declared + d->n > MAX_PARAMS)
		return err_set(EINVAL, "more than %u parameters are declared", MAX_PARAMS);
	if (srv_table(s->srv) && s->n_declared + d->n > srv_table(s->srv)->params)
		return err_set(EINVAL, "%u parameters are declared here, %u at the server",
			       s->n_declared + d->n, srv_table(s->srv)->params);
	if (s->n_declared + d->n > s->cap_declared) {
		uint32_t cap = s->cap_declared ? 2 * s->cap_declared : 16;
		int rc = may_declare(s->srv, cap);
		struct wire_param *p;

		if (rc)
			return rc;
		p = realloc(s->declared, cap * sizeof(*p));
		if (!p)
			return err_set(ENOMEM, "no memory for %u declarations", cap);
		s->declared = p;
		s->cap_declared = cap;
	}
	if (d->n) /* an empty first one has nowhere to go to */
		memcpy(s->declared + s->n_declared, d->param, d->n * sizeof(*d->param));
	s->n_declared += d->n;
	return 0;
}

/* The first trainer's declarations become the server's. */
static int seal_table(struct srv *srv, const struct session *s)
{
	struct memory_limits limits;
	struct table *t;
	char sum[320];
	int rc = table_create(srv, s->declared, s->n_declared, &t);

	if (rc)
		return rc;
	limits = memory_limits_now(srv->opt.max_memory, srv_over_rdma(srv));
	memory_describe(&t->plan, sum, sizeof(sum));
	log_info("%u parameters in %u blocks; memory: %s; %s is %s", t->params, t->blocks,
		 sum, limits.ram_what, size_text(limits.ram).s);
	rc = memory_check(&t->plan, &limits);
	if (!rc)
		rc = table_allocate(t);
	if (!rc)
		rc = sched_set_actors(&srv->sched, t->params);
	if (rc) {
		table_destroy(t);
		return rc;
	}
	log_info("weights in %s, filled%s", tp_arena_pages(t->weights),
		 t->init_left ? " in part: the rest comes from a trainer" : "");
	srv->weights_ready = t->init_left == 0;
	atomic_store_explicit(&srv->table, t, memory_order_release);
	return 0;
}

static void send_grant(struct session *s)
{
	const struct table *t = srv_table(s->srv);
	struct tp_ref w = tp_region_ref(s->weights_region), m = tp_region_ref(s->slot_region);

	for (uint32_t i = 0; i < t->params; i += WIRE_PARAMS_MAX) {
		struct wire_msg msg = {.kind = WIRE_GRANT};
		struct wire_grant *g = &msg.grant;

		for (; g->n < WIRE_PARAMS_MAX && i + g->n < t->params; g->n++)
			g->place[g->n] = t->param[i + g->n].place;
		if (i + g->n == t->params) {
			g->last = true;
			g->slots = t->slots;
			g->blocks = t->blocks;
			g->weights = (struct wire_ref){.addr = w.addr, .len = w.len, .key = w.key};
			g->slot_mem = (struct wire_ref){.addr = m.addr, .len = m.len, .key = m.key};
		}
		send_msg(s, &msg);
	}
}

static enum wire_error_code code_of(int rc)
{
	switch (rc) {
	case -ENOMEM:
		return WIRE_E_MEMORY;
	case -EINVAL:
		return WIRE_E_MISMATCH;
	default:
		return WIRE_E_INTERNAL;
	}
}

static void on_declare(struct session *s, const struct wire_declare *d)
{
	struct srv *srv = s->srv;
	int rc = keep_declared(s, d);

	s->deadline = clock_ns() + control_talk_ns(srv);
	if (!rc && !d->last)
		return;
	if (!rc && s->n_declared == 0)
		rc = err_set(EINVAL, "no parameters are declared");
	if (!rc && srv_table(srv))
		rc = table_compare(srv_table(srv), s->declared, s->n_declared);
	else if (!rc)
		rc = seal_table(srv, s);
	free(s->declared);
	s->declared = NULL;
	if (!rc) {
		rc = session_allocate(s);
		if (rc)
			rc = err_wrap(rc, "memory of a trainer");
	}
	if (rc) {
		session_condemn(s, code_of(rc), "%s", err_text());
		return;
	}
	session_set_state(s, SESSION_ATTACHING);
	send_grant(s);
}

/* ---- attach, initial weights, start -------------------------------------------------------------- */

static void send_ready(struct session *s, bool init)
{
	struct wire_msg msg = {.kind = WIRE_READY, .ready = {.init = init}};

	s->deadline = 0; /* from here on it may wait for others */
	send_msg(s, &msg);
}

static void activate(struct session *s, uint64_t step)
{
	struct wire_msg msg = {.kind = WIRE_START, .start = {.step = step}};

	s->posting = step;
	s->data_after = s->answered;
	s->srv->ever_active++;
	session_set_state(s, SESSION_ACTIVE);
	log_info("%s: %s over %s", s->who, session_state_name(SESSION_ACTIVE),
		 tp_conn_transport(s->conn));
	send_msg(s, &msg);
}

static void join(struct session *s)
{
	atomic_fetch_add(&s->srv->joined, 1);
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
static void serve_held(struct srv *srv)
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

static void on_attach(struct session *s, const struct wire_attach *a)
{
	int rc = session_attach(s, &a->mailbox);

	if (rc) {
		session_condemn(s, WIRE_E_PROTOCOL, "mailbox: %s", err_text());
		return;
	}
	s->deadline = 0;
	session_set_state(s, SESSION_HELD);
	serve_held(s->srv);
}

static void on_init_done(struct session *s)
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
	serve_held(s->srv);
}

void handshake_started(struct session *s)
{
	if (session_state(s) == SESSION_JOINING)
		activate(s, s->first_step);
}

/* ---- learning rates ---------------------------------------------------------------------------- */

static void on_set_rate(struct session *s, const struct wire_set_rate *set)
{
	struct table *t = srv_table(s->srv);

	if (s->rate_busy || set->param >= t->params) {
		session_condemn(s, WIRE_E_PROTOCOL, "the rate of parameter %u: %s", set->param,
				s->rate_busy ? "another is being set" : "there is none");
		return;
	}
	s->rate_busy = true;
	s->rate = (struct rate){
		.item = {.kind = ITEM_RATE, .home = &t->param[set->param].actor},
		.session = s,
		.param = set->param,
		.lr = set->rate,
	};
	session_queue(s, &s->rate.item);
}

void handshake_rate_set(struct session *s)
{
	struct wire_msg msg = {.kind = WIRE_RATE_SET, .rate_set = {.param = s->rate.param}};

	s->rate_busy = false;
	log_debug("%s: sets the rate of \"%s\" to %g", s->who,
		  srv_table(s->srv)->param[s->rate.param].decl.name, s->rate.lr);
	if (session_state(s) == SESSION_ACTIVE && !atomic_load(&s->condemned))
		send_msg(s, &msg);
}

/* ---- refused pushes ---------------------------------------------------------------------------- */

void handshake_refused(struct session *s)
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
		send_msg(s, &msg);
}

/* ---- leaving ----------------------------------------------------------------------------------- */

static void on_bye(struct session *s)
{
	bool in_round = s->srv->opt.mode != SRV_ASYNC && session_state(s) >= SESSION_JOINING;

	session_set_state(s, SESSION_LEAVING);
	if (in_round)
		session_queue(s, &s->leave);
	else
		handshake_left(s);
}

static void tell_ages(const struct session *s)
{
	struct ages_look ages = {0};

	ages_add(&s->ages, &ages);
	ages_log(s->who, &ages);
}

static void give_rank_back(struct session *s)
{
	if (s->has_rank)
		s->srv->rank[s->rank] = NULL;
	s->has_rank = false;
}

void handshake_left(struct session *s)
{
	struct wire_msg msg = {.kind = WIRE_BYE};

	if (session_state(s) != SESSION_LEAVING)
		return;
	log_info("%s: left", s->who);
	tell_ages(s);
	/* Before the bye: with it, the rank may be asked for again. */
	give_rank_back(s);
	s->deadline = clock_ns() + control_talk_ns(s->srv); /* to hang up */
	send_msg(s, &msg);
}

void handshake_closed(struct session *s)
{
	struct srv *srv = s->srv;
	enum session_state was = session_state(s);

	if (was != SESSION_LEAVING && !atomic_load(&s->condemned))
		log_warn("%s: lost while %s: %s", s->who, session_state_name(was),
			 tp_conn_reason(s->conn));
	if (was == SESSION_ACTIVE)
		tell_ages(s);
	session_set_state(s, SESSION_CLOSED);
	s->deadline = 0;
	give_rank_back(s);
	if (srv->opt.mode != SRV_ASYNC && (was == SESSION_JOINING || was == SESSION_ACTIVE))
		session_queue(s, &s->leave);
	if (srv->initialiser == s) {
		srv->initialiser = NULL;
		serve_held(srv);
	}
}

/* ---- dispatch ---------------------------------------------------------------------------------- */

static bool fits(enum session_state state, enum wire_kind kind)
{
	switch (kind) {
	case WIRE_HELLO:
		return state == SESSION_HELLO;
	case WIRE_DECLARE:
		return state == SESSION_DECLARING;
	case WIRE_ATTACH:
		return state == SESSION_ATTACHING;
	case WIRE_INIT_DONE:
		return state == SESSION_INITIALISING;
	case WIRE_SET_RATE:
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
		on_hello(s, &msg->hello);
		break;
	case WIRE_DECLARE:
		on_declare(s, &msg->declare);
		break;
	case WIRE_ATTACH:
		on_attach(s, &msg->attach);
		break;
	case WIRE_INIT_DONE:
		on_init_done(s);
		break;
	case WIRE_BYE:
		on_bye(s);
		break;
	case WIRE_SET_RATE:
		on_set_rate(s, &msg->set_rate);
		break;
	default: /* WIRE_ERROR: fits() lets nothing else through */
		log_warn("%s: it says: %s", s->who, msg->error.text);
		tp_conn_close(s->conn);
		break;
	}
}

void handshake_message(struct session *s, const void *data, uint32_t len)
{
	struct wire_msg msg;

	if (atomic_load(&s->condemned) || session_state(s) == SESSION_CLOSED)
		return;
	s->answered += wire_peek(data, len) != WIRE_SET_RATE;
	if (wire_decode(data, len, &msg))
		session_condemn(s, WIRE_E_PROTOCOL, "control message: %s", err_text());
	else if (!fits(session_state(s), msg.kind))
		session_condemn(s, WIRE_E_PROTOCOL, "a %s message while %s",
				wire_kind_name(msg.kind), session_state_name(session_state(s)));
	else
		dispatch(s, &msg);
	/* From here on: what the server took for its answer is not the trainer's silence. */
	if (s->deadline)
		s->deadline = clock_ns() + control_talk_ns(s->srv);
}

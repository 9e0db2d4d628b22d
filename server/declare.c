/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters are declared, and memory is granted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "server/control.h"
#include "server/internal.h"
#include "server/dialog.h"
#include "server/restore.h"

#define MAX_PARAMS (1u << 20)

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
		rc = ledger_reserve(&srv->ledger, t->blocks);
	if (!rc && srv->restore)
		rc = restore_apply(srv, t);
	if (!rc)
		rc = sched_set_actors(&srv->sched, t->params);
	if (rc) {
		table_destroy(t);
		return rc;
	}
	log_info("weights in %s, filled%s", tp_arena_pages(t->weights),
		 t->init_left ? " in part: the rest comes from a trainer" : "");
	restore_close(srv->restore); /* all that is wanted of it is in the table */
	srv->restore = NULL;
	srv->weights_ready = t->init_left == 0;
	atomic_store_explicit(&srv->table, t, memory_order_release);
	return 0;
}

static struct wire_ref as_told(const struct tp_region *region)
{
	struct tp_ref ref = tp_region_ref(region);
	struct wire_ref told = {.addr = ref.addr, .len = ref.len, .key = ref.key, .more = ref.more};

	memcpy(told.more_key, ref.more_key, sizeof(told.more_key));
	return told;
}

static void send_grant(struct session *s)
{
	const struct table *t = srv_table(s->srv);
	for (uint32_t i = 0; i < t->params; i += WIRE_PARAMS_MAX) {
		struct wire_msg msg = {.kind = WIRE_GRANT};
		struct wire_grant *g = &msg.grant;

		for (; g->n < WIRE_PARAMS_MAX && i + g->n < t->params; g->n++)
			g->place[g->n] = t->param[i + g->n].place;
		if (i + g->n == t->params) {
			g->last = true;
			g->slots = t->slots;
			g->blocks = t->blocks;
			g->weights = as_told(s->weights_region);
			g->slot_mem = as_told(s->slot_region);
		}
		dialog_send(s, &msg);
	}
}

static uint64_t sessions_with_memory(const struct srv *srv)
{
	return atomic_load(&srv->session_memory) / srv_table(srv)->slots_len;
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

void declare_take(struct session *s, const struct wire_declare *d)
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
	if (!rc)
		rc = memory_admit(&srv_table(srv)->plan, sessions_with_memory(srv),
				  srv->opt.max_memory);
	if (!rc) {
		rc = session_allocate(s);
		if (rc)
			rc = err_wrap(rc, "memory of a trainer");
	}
	if (rc == -ENOTCONN)
		return; /* it died meanwhile */
	if (rc) {
		session_condemn(s, code_of(rc), "%s", err_text());
		return;
	}
	session_set_state(s, SESSION_ATTACHING);
	send_grant(s);
}

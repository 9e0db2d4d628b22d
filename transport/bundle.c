/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles at work, and their end.
 */
#include "transport/bundle.h"

#include "base/clock.h"
#include "base/err.h"
#include "transport/bundle_own.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_MAX 32 /* ops that are given to a rail at once */

static struct bundle *to_bundle(struct tp_conn *conn)
{
	return (struct bundle *)conn;
}

static int check_open(struct bundle *b, const char *what)
{
	if (atomic_load_explicit(&b->shut, memory_order_relaxed))
		return err_set(ENOTCONN, "%s: the connection is over", what);
	return 0;
}

/* ---- memory ------------------------------------------------------------------------------------ */

static int expose_all(struct bundle *b, struct tp_arena *arena, unsigned access,
		      struct bundle_region *region)
{
	struct tp_ref *ref = &region->base.ref;

	for (unsigned r = 0; r < b->rails; r++) {
		int rc = b->of->expose(b->rail[r], arena, access, &region->rail[r]);

		if (rc < 0)
			return rc;
		struct tp_ref one = region->rail[r]->ref;

		if (r == 0)
			*ref = one;
		else
			ref->more_key[ref->more++] = one.key;
	}
	return 0;
}

static void forget_region(struct bundle *b, struct bundle_region *region)
{
	for (unsigned r = 0; r < b->rails; r++)
		if (region->rail[r])
			b->of->region_destroy(region->rail[r]);
	free(region);
}

static int bundle_expose(struct tp_conn *conn, struct tp_arena *arena, unsigned access,
			 struct tp_region **out)
{
	struct bundle *b = to_bundle(conn);
	struct bundle_region *region;
	int rc = check_open(b, "expose");

	if (rc < 0)
		return rc;
	region = calloc(1, sizeof(*region));
	if (!region)
		return err_set(ENOMEM, "no memory for a region");
	region->base = (struct tp_region){.conn = conn, .arena = arena};
	rc = expose_all(b, arena, access, region);
	if (rc < 0) {
		forget_region(b, region);
		return rc;
	}
	LIST_INSERT_HEAD(&b->exposed, region, link);
	*out = &region->base;
	return 0;
}

static void bundle_region_destroy(struct tp_region *base)
{
	struct bundle_region *region = (struct bundle_region *)base;

	LIST_REMOVE(region, link);
	forget_region(to_bundle(base->conn), region);
}

static int attach_all(struct bundle *b, const struct tp_ref *ref, unsigned access,
		      struct bundle_remote *remote)
{
	for (unsigned r = 0; r < b->rails; r++) {
		struct tp_ref one = {
		    .addr = ref->addr,
		    .len = ref->len,
		    .key = r ? ref->more_key[r - 1] : ref->key,
		};
		int rc = b->of->attach(b->rail[r], &one, access, &remote->rail[r]);

		if (rc < 0)
			return rc;
	}
	remote->base.map = remote->rail[0]->map;
	return 0;
}

static void forget_remote(struct bundle *b, struct bundle_remote *remote)
{
	for (unsigned r = 0; r < b->rails; r++)
		if (remote->rail[r])
			b->of->remote_destroy(remote->rail[r]);
	free(remote);
}

static int bundle_attach(struct tp_conn *conn, const struct tp_ref *ref, unsigned access,
			 struct tp_remote **out)
{
	struct bundle *b = to_bundle(conn);
	struct bundle_remote *remote;
	int rc = check_open(b, "attach");

	if (rc < 0)
		return rc;
	remote = calloc(1, sizeof(*remote));
	if (!remote)
		return err_set(ENOMEM, "no memory for a remote");
	remote->base = (struct tp_remote){.conn = conn, .ref = *ref, .access = access};
	rc = attach_all(b, ref, access, remote);
	if (rc < 0) {
		forget_remote(b, remote);
		return rc;
	}
	LIST_INSERT_HEAD(&b->attached, remote, link);
	*out = &remote->base;
	return 0;
}

static void bundle_remote_destroy(struct tp_remote *base)
{
	struct bundle_remote *remote = (struct bundle_remote *)base;

	LIST_REMOVE(remote, link);
	forget_remote(to_bundle(base->conn), remote);
}

/* ---- posting ----------------------------------------------------------------------------------- */

/* The op, as its rail knows it. */
static struct tp_op of_rail(const struct tp_op *op)
{
	const struct bundle_region *region = (const struct bundle_region *)op->region;
	const struct bundle_remote *remote = (const struct bundle_remote *)op->remote;
	struct tp_op one = *op;

	one.remote = remote->rail[op->rail];
	one.region = region ? region->rail[op->rail] : NULL;
	return one;
}

/* Those at the front that take one rail; how many of them were taken, or why the first was not. */
static int post_run(struct bundle *b, const struct tp_op *ops, int n, int *run)
{
	struct tp_op own[RUN_MAX];
	int k = 0;

	do {
		own[k] = of_rail(&ops[k]);
		k++;
	} while (k < n && k < RUN_MAX && ops[k].rail == ops[0].rail);
	*run = k;
	return b->of->post(b->rail[ops[0].rail], own, k);
}

static int bundle_post(struct tp_conn *conn, const struct tp_op *ops, int n)
{
	struct bundle *b = to_bundle(conn);
	int done = 0, rc = check_open(b, "post"), run = rc;

	while (rc == run && done < n) {
		if (rc < 0)
			return rc;
		rc = post_run(b, ops + done, n - done, &run);
		done += rc > 0 ? rc : 0;
	}
	return done ? done : rc;
}

static int bundle_send(struct tp_conn *conn, const void *msg, size_t len)
{
	struct bundle *b = to_bundle(conn);
	int rc = check_open(b, "send");

	return rc < 0 ? rc : b->of->send(b->rail[0], msg, len);
}

/* ---- events ------------------------------------------------------------------------------------ */

/* Nothing of it is handed out before the thread that makes it has all its rails. */
static void await_complete(struct bundle *b)
{
	if (atomic_load_explicit(&b->complete, memory_order_acquire))
		return;
	pthread_mutex_lock(&b->making);
	pthread_mutex_unlock(&b->making);
}

static void close_rails(struct bundle *b)
{
	for (unsigned r = 0; r < b->rails; r++)
		if (b->rail[r])
			b->of->close(b->rail[r]);
}

void bundle_close(struct tp_conn *conn)
{
	struct bundle *b = to_bundle(conn);

	atomic_store_explicit(&b->shut, true, memory_order_relaxed);
	close_rails(b);
}

/* The first cause is what is told; an error tells more than a good end. */
static void note_cause(struct bundle *b, int status, const char *reason)
{
	if (b->base.reason[0] && (b->status < 0 || status == 0))
		return;
	b->status = status;
	snprintf(b->base.reason, sizeof(b->base.reason), "%s", reason);
}

static void list_ending(struct bundle *b, bool ends)
{
	struct bundle **at = &tp_cq_bundles(b->base.cq)->ending;

	if (ends) {
		b->next = *at;
		*at = b;
	} else {
		while (*at != b)
			at = &(*at)->next;
		*at = b->next;
	}
	b->ends = ends;
}

/* True: it was the last one. */
static bool rail_ended(struct bundle *b, const struct tp_event *ev)
{
	note_cause(b, ev->status, tp_conn_reason(ev->conn));
	atomic_store_explicit(&b->shut, true, memory_order_relaxed);
	b->open &= ~(1u << ev->conn->rail);
	if (!b->ends) {
		b->close_at = clock_ns() + GRACE_MS * NS_PER_MS;
		list_ending(b, true);
	}
	if (b->open)
		return false;
	list_ending(b, false);
	return true;
}

/* Messages go by rail 0. */
static void stray_message(struct bundle *b, unsigned rail)
{
	char why[64];

	snprintf(why, sizeof(why), "the peer sent a message by rail %u", rail);
	note_cause(b, -EPROTO, why);
	bundle_close(&b->base);
}

/* False: it is not for the user. */
static bool translate(struct tp_event *ev)
{
	struct bundle *b = ev->conn->bundle;
	uint8_t rail = ev->conn->rail;

	if (!b)
		return true;
	await_complete(b);
	if (ev->kind == TP_EV_MSG && rail > 0) {
		stray_message(b, rail);
		return false;
	}
	if (ev->kind == TP_EV_CLOSED) {
		if (!rail_ended(b, ev))
			return false;
		ev->status = b->status;
	}
	ev->rail = rail;
	ev->conn = &b->base;
	return true;
}

int bundle_translate(struct tp_event *ev, int n)
{
	int to = 0;

	for (int i = 0; i < n; i++) {
		struct tp_event one = ev[i];

		if (translate(&one))
			ev[to++] = one;
	}
	return to;
}

uint64_t bundle_overdue(struct bundle *ending, uint64_t now)
{
	uint64_t first = UINT64_MAX;

	for (struct bundle *b = ending; b; b = b->next) {
		if (now >= b->close_at) {
			b->close_at = UINT64_MAX;
			close_rails(b);
		}
		if (b->close_at < first)
			first = b->close_at;
	}
	return first;
}

/* ---- the rest ---------------------------------------------------------------------------------- */

size_t bundle_binding(const struct bundle *b, uint8_t out[TP_BINDING_MAX])
{
	size_t len = 0;

	for (unsigned r = 0; r < b->rails; r++, len += TP_BINDING_LEN) {
		memset(out + len, 0, TP_BINDING_LEN);
		if (b->rail[r])
			memcpy(out + len, b->rail[r]->binding, TP_BINDING_LEN);
	}
	return len;
}

/* The rails free what was made on them. */
void bundle_destroy(struct tp_conn *conn)
{
	struct bundle *b = to_bundle(conn);
	struct bundle_region *region;
	struct bundle_remote *remote;

	if (b->ends)
		list_ending(b, false);
	for (unsigned r = 0; r < b->rails; r++)
		if (b->rail[r])
			b->of->conn_destroy(b->rail[r]);
	while ((region = LIST_FIRST(&b->exposed))) {
		LIST_REMOVE(region, link);
		free(region);
	}
	while ((remote = LIST_FIRST(&b->attached))) {
		LIST_REMOVE(remote, link);
		free(remote);
	}
	bundle_lend_free(b);
	atomic_fetch_sub(&tp_cq_bundles(b->base.cq)->n, 1);
	pthread_mutex_destroy(&b->making);
	free(b);
}

/* What a connection needs of a backend. */
const struct tp_backend bundle_backend = {
    .scheme = "bundle",
    .expose = bundle_expose,
    .region_destroy = bundle_region_destroy,
    .reg = bundle_register,
    .hold = bundle_hold,
    .unreg = bundle_unregister,
    .attach = bundle_attach,
    .remote_destroy = bundle_remote_destroy,
    .post = bundle_post,
    .send = bundle_send,
    .close = bundle_close,
    .conn_destroy = bundle_destroy,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * How bundles come about.
 */
#include "base/err.h"
#include "transport/bundle_own.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int bundle_new(const struct tp_backend *of, unsigned rails, struct tp_cq *cq, void *user,
		      struct bundle **out)
{
	struct bundle *b = calloc(1, sizeof(*b));

	if (!b)
		return err_set(ENOMEM, "no memory for a connection of %u rails", rails);
	b->base.backend = &bundle_backend;
	b->base.cq = cq;
	b->base.user = user;
	b->of = of;
	b->rails = rails;
	pthread_mutex_init(&b->making, NULL);
	LIST_INIT(&b->exposed);
	LIST_INIT(&b->attached);
	pthread_mutex_init(&b->lending, NULL);
	LIST_INIT(&b->lent);
	LIST_INIT(&b->spare);
	atomic_fetch_add(&tp_cq_bundles(cq)->n, 1);
	*out = b;
	return 0;
}

/* ---- what it looks like ------------------------------------------------------------------------ */

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void take_limits(struct bundle *b)
{
	struct tp_limits *l = &b->base.limits;

	*l = b->rail[0]->limits;
	l->rails = b->rails;
	for (unsigned r = 1; r < b->rails && b->rail[r]; r++) {
		const struct tp_limits *one = &b->rail[r]->limits;

		l->max_inline = least(l->max_inline, one->max_inline);
		l->read_depth = least(l->read_depth, one->read_depth);
		l->depth = least(l->depth, one->depth);
		l->native_imm &= one->native_imm;
	}
}

/* "rdma (rxe0, RoCE v2, MTU 4096" without its end; what follows goes behind it. */
static size_t open_text(char *out, size_t room, const char *transport)
{
	size_t len = (size_t)snprintf(out, room, "%s", transport);

	if (len >= room)
		len = room - 1;
	return len && out[len - 1] == ')' ? len - 1 : len;
}

/* The first device; the others by their names. */
static void take_texts(struct bundle *b)
{
	char *out = b->base.transport;
	const size_t room = sizeof(b->base.transport);
	size_t at = open_text(out, room, b->rail[0]->transport);
	bool plain = !out[at];

	for (unsigned r = 1; r < b->rails && b->rail[r]; r++) {
		const char *name = strchr(b->rail[r]->transport, '(');
		bool new = name != NULL;

		for (unsigned k = 0; new && k < r; k++)
			new = strcmp(b->rail[k]->transport, b->rail[r]->transport) != 0;
		if (new && at < room - 32)
			at += (size_t)snprintf(out + at, room - 24 - at, "; %.*s",
					       (int)strcspn(name + 1, ",)"), name + 1);
	}
	snprintf(out + at, room - at, plain ? " (%u rails)" : ", %u QPs)", b->rails);
	memcpy(b->base.peer, b->rail[0]->peer, sizeof(b->base.peer));
}

/* With what there is of it; `making` is held. */
static void completed(struct bundle *b)
{
	take_limits(b);
	take_texts(b);
	for (unsigned r = 0; r < b->rails; r++)
		b->open |= (unsigned)(b->rail[r] != NULL) << r;
	atomic_store_explicit(&b->complete, true, memory_order_release);
}

/* ---- connecting -------------------------------------------------------------------------------- */

struct way {
	struct bundle *bundle;
	const struct tp_options *opt;
	struct tp_subcq *sub;
	struct tp_owner owner;
	struct tp_uri uri;
	atomic_uint *failures;
	atomic_bool *given_up;
	unsigned order; /* of the failures, from 1 */
	int rc;
	char text[512];
};

static void fail(struct way *way)
{
	way->order = atomic_fetch_add(way->failures, 1) + 1;
	snprintf(way->text, sizeof(way->text), "%s", err_text());
	atomic_store_explicit(way->given_up, true, memory_order_relaxed);
}

static void *go(void *arg)
{
	struct way *way = arg;
	struct bundle *b = way->bundle;

	way->rc = b->of->connect(&way->uri, way->opt, way->sub, &way->owner,
				 &b->rail[way->owner.rail]);
	if (way->rc < 0)
		fail(way);
	return NULL;
}

static void go_all(struct way *way, unsigned rails)
{
	pthread_t thread[TP_RAILS_MAX];
	bool runs[TP_RAILS_MAX];

	for (unsigned r = 1; r < rails; r++) {
		int rc = pthread_create(&thread[r], NULL, go, &way[r]);

		runs[r] = rc == 0;
		if (rc == 0)
			continue;
		way[r].rc = err_set(rc, "no thread to connect a rail: %s", strerror(rc));
		fail(&way[r]);
	}
	go(&way[0]);
	for (unsigned r = 1; r < rails; r++)
		if (runs[r])
			pthread_join(thread[r], NULL);
}

/* The first failure: what followed may be of its making. */
static int why_not(const struct way *way, unsigned rails)
{
	for (unsigned r = 0; r < rails; r++)
		if (way[r].order == 1)
			return err_set(-way[r].rc, "rail %u of %u: %s", r, rails, way[r].text);
	return 0;
}

/* An immediate shows the length of its WRITE's last piece: one rule for all of a connection. */
static int check_alike(const struct bundle *b)
{
	for (unsigned r = 1; r < b->rails; r++)
		if (b->rail[r]->limits.max_chunk != b->rail[0]->limits.max_chunk)
			return err_set(EINVAL,
				       "rail 0 (%s) sends pieces of %llu bytes, rail %u (%s) of "
				       "%llu: devices of one kind are needed",
				       b->rail[0]->transport,
				       (unsigned long long)b->rail[0]->limits.max_chunk, r,
				       b->rail[r]->transport,
				       (unsigned long long)b->rail[r]->limits.max_chunk);
	return 0;
}

static int draw_id(uint64_t *id)
{
	if (getrandom(id, sizeof(*id), 0) == sizeof(*id)) {
		*id >>= 16; /* a hello has room for 48 bits */
		return 0;
	}
	return err_set(errno, "no random bytes for a connection: %s", strerror(errno));
}

static int connect_rails(struct bundle *b, struct way *way, const struct tp_uri *uri)
{
	atomic_bool given_up = false;
	atomic_uint failures = 0;
	uint64_t id;
	int rc = draw_id(&id);

	if (rc < 0)
		return rc;
	for (unsigned r = 0; r < b->rails; r++) {
		way[r].bundle = b;
		way[r].failures = &failures;
		way[r].given_up = &given_up;
		way[r].owner = (struct tp_owner){
		    .user = b->base.user,
		    .bundle = b,
		    .bundle_id = id,
		    .rail = (uint8_t)r,
		    .rails = (uint8_t)b->rails,
		    .given_up = &given_up,
		};
		tp_uri_rail(uri, r, &way[r].uri);
	}
	go_all(way, b->rails);
	rc = why_not(way, b->rails);
	return rc < 0 ? rc : check_alike(b);
}

int bundle_connect(const struct tp_backend *backend, const struct tp_uri *uri,
		   const struct tp_options *opt, unsigned rails, struct tp_subcq *sub, void *user,
		   struct tp_conn **out)
{
	struct way *way = calloc(rails, sizeof(*way));
	struct tp_options each = *opt;
	struct bundle *b = NULL;
	int rc = way ? bundle_new(backend, rails, sub->cq, user, &b)
		     : err_set(ENOMEM, "no memory to connect %u rails", rails);

	if (rc < 0)
		goto free_way;
	/* What is lent is registered, and locked, once for each. */
	if (each.lend_bytes != UINT64_MAX)
		each.lend_bytes /= rails;
	for (unsigned r = 0; r < rails; r++) {
		way[r].opt = &each;
		way[r].sub = sub;
	}
	pthread_mutex_lock(&b->making);
	rc = connect_rails(b, way, uri);
	if (rc == 0)
		completed(b);
	pthread_mutex_unlock(&b->making);
	if (rc == 0) {
		*out = &b->base;
	} else {
		char text[512];

		snprintf(text, sizeof(text), "%s", err_text());
		bundle_destroy(&b->base);
		err_set(-rc, "%s", text);
	}
free_way:
	free(way);
	return rc;
}

/* ---- accepting --------------------------------------------------------------------------------- */

static void fall_short(struct bundle *b, unsigned rail, int rc)
{
	b->status = rc;
	snprintf(b->base.reason, sizeof(b->base.reason), "rail %u of %u: %.200s", rail, b->rails,
		 err_text());
	bundle_close(&b->base);
}

int bundle_accept(void *listener, bundle_take take, void *const *request, unsigned rails,
		  struct tp_subcq *sub, void *user, unsigned *used, struct tp_conn **out)
{
	struct bundle *b = NULL;
	int rc = bundle_new(sub->backend, rails, sub->cq, user, &b);

	*used = 0;
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&b->making);
	rc = 1;
	for (unsigned r = 0; r < rails && rc == 1; r++) {
		struct tp_owner owner = {
		    .user = user, .bundle = b, .rail = (uint8_t)r, .rails = (uint8_t)rails};

		rc = take(listener, request[r], sub, &owner, &b->rail[r]);
		++*used;
	}
	bool any = b->rail[0] != NULL;

	if (any)
		completed(b);
	if (any && rc < 0)
		fall_short(b, *used - 1, rc);
	pthread_mutex_unlock(&b->making);
	if (!any) {
		bundle_destroy(&b->base);
		return rc;
	}
	*out = &b->base;
	return 1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that make, end and describe connections.
 */
#include "layer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"

int __wrap_tp_listen(const char *uri, const struct tp_options *opt, struct tp_listener **out);
int __wrap_tp_accept(struct tp_listener *l, struct tp_cq *cq, void *user, struct tp_conn **out);
int __wrap_tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
		      struct tp_conn **out);
int __wrap_tp_expose(struct tp_conn *conn, struct tp_arena *arena, unsigned access,
		     struct tp_region **out);
int __wrap_tp_attach(struct tp_conn *conn, const struct tp_ref *ref, unsigned access,
		     uint64_t max_len, struct tp_remote **out);
void __wrap_tp_conn_close(struct tp_conn *conn);
void __wrap_tp_conn_destroy(struct tp_conn *conn);
struct tp_limits __wrap_tp_conn_limits(const struct tp_conn *conn);
void __wrap_tp_cq_destroy(struct tp_cq *cq);

/* ---- making ---------------------------------------------------------------------------------- */

static const struct tp_options *capped(const struct tp_options *opt, struct tp_options *copy)
{
	uint32_t chunk = rules_chunk();

	if (!chunk)
		return opt;
	*copy = opt ? *opt : (struct tp_options){0};
	if (!copy->max_chunk || copy->max_chunk > chunk)
		copy->max_chunk = chunk;
	return copy;
}

int __wrap_tp_listen(const char *uri, const struct tp_options *opt, struct tp_listener **out)
{
	struct tp_options copy;
	int rc = rules_call(AT_LISTEN);

	return rc < 0 ? rc : __real_tp_listen(uri, capped(opt, &copy), out);
}

int __wrap_tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
		      struct tp_conn **out)
{
	struct tp_options copy;

	rules_reached(AT_CONNECT);
	rules_delay_call(AT_CONNECT);
	int rc = rules_fail(AT_CONNECT);

	if (rc == 0)
		rc = __real_tp_connect(uri, capped(opt, &copy), cq, user, out);
	if (rc == 0) {
		rules_kill(AT_CONNECT);
		claim(fconn_of(*out, cq));
	}
	return rc;
}

int __wrap_tp_accept(struct tp_listener *l, struct tp_cq *cq, void *user, struct tp_conn **out)
{
	struct tp_conn *conn;
	int rc = __real_tp_accept(l, cq, user, &conn);

	if (rc != 1)
		return rc;
	struct fconn *c = fconn_of(conn, cq);

	rc = rules_call(AT_ACCEPT);
	if (rc < 0) {
		disown(c);
		return rc;
	}
	claim(c);
	*out = conn;
	return 1;
}

int __wrap_tp_expose(struct tp_conn *conn, struct tp_arena *arena, unsigned access,
		     struct tp_region **out)
{
	int rc = rules_call(AT_EXPOSE);

	return rc < 0 ? rc : __real_tp_expose(conn, arena, access, out);
}

int __wrap_tp_attach(struct tp_conn *conn, const struct tp_ref *ref, unsigned access,
		     uint64_t max_len, struct tp_remote **out)
{
	int rc = rules_call(AT_ATTACH);

	return rc < 0 ? rc : __real_tp_attach(conn, ref, access, max_len, out);
}

struct tp_limits __wrap_tp_conn_limits(const struct tp_conn *conn)
{
	struct tp_limits limits = __real_tp_conn_limits(conn);

	if (fconn_of(conn, NULL)->noimm)
		limits.native_imm = false;
	return limits;
}

/* ---- ending ---------------------------------------------------------------------------------- */

void close_now(struct fconn *c)
{
	struct fqueue *q = c->queue;
	bool put_off;

	pthread_mutex_lock(&q->lock);
	pthread_mutex_lock(&c->lock);
	c->closed_here = true;
	put_off = !c->frozen && !c->closed && !send_waiting(c);
	q->closing += put_off - c->closing;
	if (put_off && !c->closing)
		c->close_by = clock_ns() + NS_PER_S;
	c->closing = put_off;
	if (c->frozen && c->closed)
		thaw(c);
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&q->lock);
	if (!put_off)
		__real_tp_conn_close(c->conn);
	/* Whoever waits looks again, at the clock too. */
	tp_cq_wake(q->cq);
}

void __wrap_tp_conn_close(struct tp_conn *conn)
{
	if (!conn)
		return;
	rules_call(AT_CLOSE);
	close_now(fconn_of(conn, NULL));
}

static void cut(struct fconn *c)
{
	if (!c->orphan)
		close_now(c);
}

void faults_cut(void)
{
	fconn_each(cut);
}

void __wrap_tp_conn_destroy(struct tp_conn *conn)
{
	if (!conn)
		return;
	fconn_forget(fconn_of(conn, NULL));
	__real_tp_conn_destroy(conn);
}

static struct tp_cq *destroying;
static struct fconn *found;

static void find_orphan(struct fconn *c)
{
	if (c->orphan && c->queue->cq == destroying)
		found = c;
}

/* Connections that the program does not know of go with it. */
static void destroy_orphans(struct tp_cq *cq)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&one);
	destroying = cq;
	do {
		found = NULL;
		fconn_each(find_orphan);
		if (found)
			tp_conn_destroy(found->conn);
	} while (found);
	pthread_mutex_unlock(&one);
}

void __wrap_tp_cq_destroy(struct tp_cq *cq)
{
	if (!cq)
		return;
	destroy_orphans(cq);
	fqueue_forget(cq);
	__real_tp_cq_destroy(cq);
}

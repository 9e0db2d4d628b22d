/* SPDX-License-Identifier: Apache-2.0
 *
 * What the program posts and sends, on its way to the transport.
 */
#include "layer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static bool zero_is_meant;

int __wrap_tp_post(struct tp_conn *conn, const struct tp_op *ops, int n);
int __wrap_tp_send(struct tp_conn *conn, const void *msg, size_t len);

void faults_zero_is_meant(void)
{
	zero_is_meant = true;
}

static void not_zero(uint64_t len, const char *what)
{
	if (len || zero_is_meant)
		return;
	fprintf(stderr, "faults: %s of zero bytes\n", what);
	abort();
}

void keep_cookie(struct fconn *c, uint64_t cookie)
{
	if (c->n_cookies == c->room_cookies) {
		c->room_cookies = c->room_cookies ? 2 * c->room_cookies : 64;
		c->cookies = realloc(c->cookies, c->room_cookies * sizeof(*c->cookies));
		if (!c->cookies)
			abort();
	}
	c->cookies[c->n_cookies++] = cookie;
}

/* ---- frozen, dropped ------------------------------------------------------------------------- */

static void swallow_op(struct fconn *c, const struct tp_op *op)
{
	if (op->flags & TP_F_SIGNAL)
		keep_cookie(c, op->cookie);
}

/* What goes to a frozen peer is taken as far as there would be room. No TP_EV_ROOM follows: no
 * completion comes. */
static int swallow(struct fconn *c)
{
	if (c->closed_here)
		return err_set(ENOTCONN, "the connection is closed");
	if (c->swallowed >= __real_tp_conn_limits(c->conn).depth)
		return err_set(EAGAIN, "the peer is frozen, and the queue full");
	c->swallowed++;
	return 1;
}

/* ---- without immediate data ------------------------------------------------------------------ */

bool send_waiting(struct fconn *c)
{
	if (c->waiting && __real_tp_send(c->conn, &c->stand_in, sizeof(c->stand_in)) != -EAGAIN)
		c->waiting = false;
	return !c->waiting;
}

static int no_room(struct fconn *c)
{
	c->wants_room = true;
	return err_set(EAGAIN, "a message that stands in for immediate data is waiting");
}

static int post_stood_in(struct fconn *c, const struct tp_op *op)
{
	struct tp_op bare = *op;
	int rc;

	if (!(op->flags & TP_F_IMM) || op->kind != TP_OP_WRITE) {
		rc = __real_tp_post(c->conn, op, 1);
		c->wants_room |= rc == -EAGAIN;
		return rc;
	}
	if (!send_waiting(c))
		return no_room(c);
	bare.flags &= ~(unsigned)TP_F_IMM;
	rc = __real_tp_post(c->conn, &bare, 1);
	c->wants_room |= rc == -EAGAIN;
	if (rc == 1) {
		memcpy(c->stand_in.mark, STAND_IN_MARK, sizeof(c->stand_in.mark));
		c->stand_in.imm = op->imm;
		c->stand_in.len = tp_imm_len(c->conn, op->len);
		c->waiting = true;
		send_waiting(c);
	}
	return rc;
}

/* ---- posting --------------------------------------------------------------------------------- */

static void reached(const struct tp_op *op)
{
	rules_reached(AT_POST);
	if (op->flags & TP_F_IMM)
		rules_reached(AT_POST_IMM);
	if (op->kind == TP_OP_READ)
		rules_reached(AT_POST_READ);
}

/* Points that this op is at; returns how many. */
static int points_of(const struct tp_op *op, enum fault_point at[3])
{
	int n = 0;

	at[n++] = AT_POST;
	if (op->flags & TP_F_IMM)
		at[n++] = AT_POST_IMM;
	if (op->kind == TP_OP_READ)
		at[n++] = AT_POST_READ;
	return n;
}

enum fate { PASSES, IS_DROPPED, FAILS };

/* What the script has in store for this op (or, with NULL, a message). */
static enum fate fate_of(struct fconn *c, const struct tp_op *op, int *err)
{
	enum fault_point at[3] = {AT_SEND};
	int n = op ? points_of(op, at) : 1;
	enum fate fate = PASSES;

	for (int i = 0; i < n; i++) {
		rules_kill(at[i]);
		rules_delay_call(at[i]);
		if (rules_fire(FAULT_FREEZE, at[i])) {
			pthread_mutex_lock(&c->lock);
			c->frozen = true;
			pthread_mutex_unlock(&c->lock);
		}
		if (fate == PASSES && rules_fire(FAULT_DROP, at[i]))
			fate = IS_DROPPED;
		*err = rules_fail(at[i]);
		if (*err < 0)
			return FAILS;
	}
	return fate;
}

static int post_one(struct fconn *c, const struct tp_op *op, enum fate fate)
{
	int rc;

	pthread_mutex_lock(&c->lock);
	if (c->closing) {
		rc = err_set(ENOTCONN, "the connection is closed");
	} else if (c->frozen) {
		rc = swallow(c);
		if (rc == 1)
			swallow_op(c, op);
	} else if (fate == IS_DROPPED) {
		swallow_op(c, op);
		rc = 1;
	} else if (c->noimm) {
		rc = post_stood_in(c, op);
	} else {
		rc = __real_tp_post(c->conn, op, 1);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/* The call fails; after -EAGAIN the program is told when to try again. */
static int made_to_fail(struct fconn *c, int err)
{
	if (err == -EAGAIN && !give_room(c))
		return err_set(ENOTCONN, "the connection is closed");
	return err;
}

/* A chain is broken up, so that each op can have its own fate. */
static int post_each(struct fconn *c, const struct tp_op *ops, int n)
{
	for (int i = 0; i < n; i++) {
		int err = 0, rc;
		enum fate fate = fate_of(c, &ops[i], &err);

		if (fate == FAILS && i > 0) {
			/* What is before it was taken; the next call hears of it. */
			pthread_mutex_lock(&c->lock);
			c->fails_next = err;
			pthread_mutex_unlock(&c->lock);
			return i;
		}
		rc = fate == FAILS ? made_to_fail(c, err) : post_one(c, &ops[i], fate);
		if (rc < 0)
			return i ? i : rc;
	}
	return n;
}

static int take_failure(struct fconn *c)
{
	pthread_mutex_lock(&c->lock);
	int err = c->fails_next;

	c->fails_next = 0;
	pthread_mutex_unlock(&c->lock);
	return err ? err_set(-err, "post: made to fail: %s", strerror(-err)) : 0;
}

static bool stands_aside(struct fconn *c)
{
	pthread_mutex_lock(&c->lock);
	bool aside = !rules_any() && !c->noimm && !c->frozen && !c->fails_next && !c->closing;

	pthread_mutex_unlock(&c->lock);
	return aside;
}

int __wrap_tp_post(struct tp_conn *conn, const struct tp_op *ops, int n)
{
	struct fconn *c = fconn_of(conn, NULL);

	for (int i = 0; ops && i < n; i++) {
		not_zero(ops[i].len, "an op");
		reached(&ops[i]);
	}
	if (!ops || n < 1 || stands_aside(c))
		return __real_tp_post(conn, ops, n);
	int err = take_failure(c);

	return err ? made_to_fail(c, err) : post_each(c, ops, n);
}

int __wrap_tp_send(struct tp_conn *conn, const void *msg, size_t len)
{
	struct fconn *c = fconn_of(conn, NULL);
	int err = 0, rc = 0;

	not_zero(len, "a message");
	rules_reached(AT_SEND);
	enum fate fate = fate_of(c, NULL, &err);

	if (fate == FAILS)
		return made_to_fail(c, err);
	pthread_mutex_lock(&c->lock);
	if (c->closing) {
		rc = err_set(ENOTCONN, "the connection is closed");
	} else if (c->frozen) {
		rc = swallow(c);
		rc = rc < 0 ? rc : 0;
	} else if (fate == IS_DROPPED) {
		rc = 0;
	} else if (!send_waiting(c)) {
		rc = no_room(c);
	} else {
		rc = __real_tp_send(conn, msg, len);
		c->wants_room |= rc == -EAGAIN;
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

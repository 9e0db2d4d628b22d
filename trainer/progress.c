/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything that happens on the connection passes here: events in, posts out, and the one function
 * that waits.
 *
 * Of the threads that wait, one is the leader: it sleeps in tp_cq_wait, without the lock. The rest
 * sleep on the condition variable, only while there is a leader. When it comes back it wakes them,
 * then handles all events there are (they may be for any of the threads); each looks at its own
 * predicate once it gets the lock, and one becomes the next leader. So whoever polls, nobody sleeps
 * through what was polled.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

enum {
	POLL_BATCH = 32,
	/* A follower's nap where credits come without an event. */
	NAP_NS = 50 * NS_PER_US,
};

/* ---- the end --------------------------------------------------------------------------------- */

int trainer_error(gs_trainer *t)
{
	return err_set(-t->err, "%s", t->err_text);
}

void trainer_changed(gs_trainer *t)
{
	if (t->followers > 0)
		pthread_cond_broadcast(&t->changed);
	if (t->leader)
		tp_cq_wake(t->cq);
}

int trainer_fail(gs_trainer *t, int rc)
{
	if (t->err != 0)
		return trainer_error(t);
	t->err = rc;
	snprintf(t->err_text, sizeof(t->err_text), "%s", err_text());
	if (t->link.conn)
		tp_conn_close(t->link.conn);
	trainer_changed(t);
	return rc;
}

int trainer_breach(gs_trainer *t)
{
	struct wire_msg msg = {.kind = WIRE_ERROR, .error = {.code = WIRE_E_PROTOCOL}};
	uint8_t buf[WIRE_MSG_MAX];
	char text[sizeof(t->err_text)];

	if (t->err != 0)
		return trainer_error(t);
	snprintf(text, sizeof(text), "%s", err_text());
	snprintf(msg.error.text, sizeof(msg.error.text), "%s", text);
	int len = wire_encode(&msg, buf, sizeof(buf));
	/* As good as can be: the connection is lost for us either way. */
	if (len > 0)
		tp_send(t->link.conn, buf, (size_t)len);
	return trainer_fail(t, err_set(EPROTO, "the server broke the protocol: %s", text));
}

/* ---- events ---------------------------------------------------------------------------------- */

static void on_closed(gs_trainer *t, int status)
{
	t->link.closed = true;
	if (t->err != 0 || (t->phase == PHASE_LEFT && status == 0))
		return; /* its reason is known, or it is as it should be */
	err_set(ECONNRESET, "the server is gone: %s",
		tp_conn_reason(t->link.conn)[0] ? tp_conn_reason(t->link.conn)
						: "it closed the connection");
	trainer_fail(t, status == -EPROTO ? -EPROTO : -ECONNRESET);
}

static void on_applied(gs_trainer *t, const struct imm *imm)
{
	if (imm->block >= t->link.blocks) {
		err_set(EPROTO, "credit for block %u; there are %u", imm->block, t->link.blocks);
		trainer_breach(t);
	}
}

/* The word in the mailbox is what counts, and it was written before. An immediate may be late (its
 * word was seen, and the next step begun), never early. */
static void on_release(gs_trainer *t, const struct imm *imm)
{
	uint64_t word = t->link.mail ? word_acquire(t->link.mail, 0) : 0;

	if (t->welcome.mode == WIRE_ASYNC ||
	    ((word - imm->step) & IMM_STEP_MASK) > IMM_STEP_MASK / 2) {
		err_set(EPROTO, "release of step %u; released are %llu", imm->step,
			(unsigned long long)word);
		trainer_breach(t);
	}
}

static void on_pulled(gs_trainer *t, const struct imm *imm, uint32_t len)
{
	if (imm->block >= t->link.blocks || !t->link.pull_asked[imm->block]) {
		err_set(EPROTO, "weights of block %u; nobody asked for them", imm->block);
		trainer_breach(t);
		return;
	}
	gs_param *p = t->link.owner[imm->block];
	if (param_is_table(p)) {
		if (rows_answered(p, imm->slot == IMM_REFUSED, len) < 0)
			trainer_breach(t);
		return;
	}
	uint32_t want =
	    tp_imm_len(t->link.conn, p->weight_size * block_elems(p, imm->block - p->first_block));
	if (len != want) {
		err_set(EPROTO, "weights of block %u: %u bytes in the last piece instead of %u",
			imm->block, len, want);
		trainer_breach(t);
		return;
	}
	t->link.pull_asked[imm->block] = 0;
	p->pull_left--;
}

static void on_imm(gs_trainer *t, uint32_t word, uint32_t len)
{
	struct imm imm = imm_unpack(word);

	switch (imm.kind) {
	case IMM_APPLIED:
		on_applied(t, &imm);
		break;
	case IMM_RELEASE:
		on_release(t, &imm);
		break;
	case IMM_PULLED:
		on_pulled(t, &imm, len);
		break;
	default:
		err_set(EPROTO, "immediate data 0x%08x is of kind %u, which is not known", word,
			imm.kind);
		trainer_breach(t);
	}
}

static void on_event(gs_trainer *t, const struct tp_event *ev)
{
	if (ev->conn != t->link.conn)
		return; /* of one before */
	t->heard = true;
	switch (ev->kind) {
	case TP_EV_IMM:
		if (t->err == 0)
			on_imm(t, ev->imm, ev->len);
		break;
	case TP_EV_MSG:
		if (t->err == 0)
			talk_take(t, ev->msg, ev->len);
		break;
	case TP_EV_DONE:
		/* Only beats, READs and the ends of lent pushes are signalled. One that failed is
		 * followed by TP_EV_CLOSED, which tells; it must not count as data that has come. */
		if (ev->cookie == 0)
			beat_done(t);
		else if (!lend_done(ev->cookie) && ev->status == 0)
			((gs_param *)(uintptr_t)ev->cookie)->pull_left--;
		break;
	case TP_EV_ROOM:
		t->rooms++;
		break;
	case TP_EV_CLOSED:
		on_closed(t, ev->status);
		break;
	}
}

/* One batch; true if there was any. */
static bool poll_batch(gs_trainer *t)
{
	struct tp_event ev[POLL_BATCH];
	int n = tp_cq_poll(t->cq, ev, POLL_BATCH);

	for (int i = 0; i < n; i++)
		on_event(t, &ev[i]);
	return n > 0;
}

void trainer_poll(gs_trainer *t)
{
	if (!t->leader)
		poll_batch(t);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void follow(gs_trainer *t, uint64_t deadline)
{
	if (!trainer_sleeps(t))
		deadline = earlier(deadline, clock_ns() + NAP_NS);
	t->followers++;
	if (deadline == UINT64_MAX) {
		pthread_cond_wait(&t->changed, &t->lock);
	} else {
		struct timespec ts = {.tv_sec = (time_t)(deadline / NS_PER_S),
				      .tv_nsec = (long)(deadline % NS_PER_S)};

		pthread_cond_timedwait(&t->changed, &t->lock, &ts);
	}
	t->followers--;
}

static int ms_until(uint64_t deadline)
{
	uint64_t now = clock_ns();

	if (deadline == UINT64_MAX)
		return -1;
	if (deadline <= now)
		return 0;
	uint64_t ms = (deadline - now + NS_PER_MS - 1) / NS_PER_MS;
	return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void lead(gs_trainer *t, uint64_t deadline)
{
	t->leader = true;
	tp_cq_look_at(t->cq, t->lacks, t->lacks_was);
	pthread_mutex_unlock(&t->lock);
	tp_cq_wait(t->cq, ms_until(deadline));
	pthread_mutex_lock(&t->lock);
	tp_cq_look_at(t->cq, NULL, 0);
	t->leader = false;
	/* This thread may be satisfied now: somebody else must be able to lead. */
	if (t->followers > 0)
		pthread_cond_broadcast(&t->changed);
}

int trainer_wait(gs_trainer *t, trainer_pred pred, void *arg, uint32_t timeout_ms, const char *what)
{
	uint64_t deadline = timeout_ms ? clock_ns() + timeout_ms * NS_PER_MS : UINT64_MAX;

	for (;;) {
		t->lacks = NULL;
		if (pred(t, arg))
			return 0;
		if (t->err != 0)
			return trainer_error(t);
		if (deadline != UINT64_MAX && clock_ns() >= deadline)
			return err_set(ETIMEDOUT, "waited %u ms for %s", timeout_ms, what);
		if (t->leader) {
			follow(t, deadline);
		} else if (!poll_batch(t)) {
			uint64_t until = earlier(deadline, beat_look(t));

			if (t->err == 0)
				lead(t, until);
		}
	}
}

void trainer_wait_closed(gs_trainer *t)
{
	while (!t->link.closed) {
		t->lacks = NULL; /* no credit is waited for */
		if (t->leader)
			follow(t, UINT64_MAX);
		else if (!poll_batch(t))
			lead(t, UINT64_MAX);
	}
}

/* ---- in and out of the library --------------------------------------------------------------- */

/* A forked child shares the connection's socket and epoll set with its parent: whatever it did to
 * them would be done to the parent. Counted, since asking for the process id is a system call. */
static unsigned forks;

static void count_fork(void)
{
	forks++;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}

unsigned trainer_forks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	return forks;
}

int trainer_check_process(const gs_trainer *t)
{
	if (t->forks == forks)
		return 0;
	return err_set(EINVAL, "this trainer is the parent process's: a child that was forked "
			       "connects for itself");
}

static int enter(gs_trainer *t, bool polls)
{
	if (!t)
		return err_set(EINVAL, "no trainer (NULL)");
	if (trainer_check_process(t) < 0)
		return -EINVAL;
	pthread_mutex_lock(&t->lock);
	if (polls && t->err == 0 && !t->coming_back)
		trainer_poll(t);
	if (t->err == 0 && !t->coming_back)
		return 0;
	int rc = t->coming_back ? err_set(ECONNRESET, "the server is gone, and another thread is in "
						      "gs_reconnect")
				: trainer_error(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

int trainer_enter(gs_trainer *t)
{
	return enter(t, true);
}

static int enter_working(gs_trainer *t, bool polls)
{
	int rc = enter(t, polls);

	if (rc < 0 || t->phase == PHASE_WORK)
		return rc;
	rc = t->phase == PHASE_LEFT ? err_set(ENOTCONN, "gs_leave was called")
				    : err_set(EINVAL, "gs_start was not called yet");
	pthread_mutex_unlock(&t->lock);
	return rc;
}

int trainer_enter_working(gs_trainer *t)
{
	return enter_working(t, true);
}

int trainer_enter_briefly(gs_trainer *t)
{
	return enter_working(t, false);
}

void trainer_exit(gs_trainer *t)
{
	pthread_mutex_unlock(&t->lock);
}

/* ---- posting --------------------------------------------------------------------------------- */

static bool is_closed(gs_trainer *t, void *arg)
{
	return t->link.closed;
}

static bool has_room(gs_trainer *t, void *rooms)
{
	/* Behind a connection's end, which is no error of one that leaves, no room comes. */
	return t->rooms != *(uint64_t *)rooms || t->link.closed;
}

int trainer_blocked(gs_trainer *t, int rc, uint64_t rooms)
{
	if (rc == -EAGAIN) {
		rc = trainer_wait(t, has_room, &rooms, t->patience_ms, "room in the send queue");
		return rc == -ETIMEDOUT ? trainer_fail(t, rc) : rc;
	}
	return trainer_lost(t, rc);
}

int trainer_lost(gs_trainer *t, int rc)
{
	if (rc == -ENOTCONN) {
		trainer_wait(t, is_closed, NULL, 1000, "the connection's end");
		if (t->err == 0)
			err_set(ENOTCONN, "the connection is closed");
	}
	return trainer_fail(t, rc);
}

int trainer_post(gs_trainer *t, const struct tp_op *ops, int n)
{
	while (n > 0) {
		uint64_t rooms = t->rooms;
		int rc = tp_post(t->link.conn, ops, n);

		if (rc > 0) {
			ops += rc;
			n -= rc;
			continue;
		}
		rc = trainer_blocked(t, rc, rooms);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int chain_flush(struct chain *c)
{
	int n = c->n;

	c->n = 0;
	return trainer_post(c->t, c->op, n);
}

int chain_add(struct chain *c, const struct tp_op *op)
{
	c->op[c->n++] = *op;
	return c->n == CHAIN_MAX ? chain_flush(c) : 0;
}

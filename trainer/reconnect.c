/* SPDX-License-Identifier: Apache-2.0
 *
 * Coming back after the server, or the way to it, was lost.
 *
 *   lost ──▶ try: connect, hello (with the session that was lost), welcome, gs_start's talk
 *    ▲         │                       │ same run of the server, and it kept this rank's place
 *    │ fails   │ otherwise             ▼
 *    └─────────┤                    replay ──▶ working, *rewound = 0
 *              ▼
 *            begin where the kept words say ──▶ working, *rewound = 1
 *
 * The connection that was lost (t->old) and its slots are kept until one is up and has all that is
 * in them; those of tries that failed are not: nothing was pushed on them but what the old slots
 * have. Once a server said that it has not kept this rank's place, that holds for the tries that
 * follow.
 *
 * Threads. Whoever waited in a call when the connection was lost got its error, and this is called
 * when the last of them has left. So there is neither a leader nor a follower here, and what the
 * lock guards is this thread's; it is held all the same, but for the connecting, as in gs_start.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

/* One that held for so long was a connection; those that break sooner are tried ever later. */
#define SETTLED_NS (5 * NS_PER_S)

static bool is_lost(int err)
{
	return err == -ECONNRESET || err == -ESHUTDOWN;
}

/* All that time may heal: a server that is about to go, to come, to notice that a connection is
 * over, or to answer. */
static bool worth_a_retry(int rc)
{
	switch (-rc) {
	case ECONNREFUSED:
	case ECONNRESET:
	case ENOTCONN:
	case ESHUTDOWN:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case EUSERS:
	case EEXIST:
		return true;
	default:
		return false;
	}
}

/* ---- one try --------------------------------------------------------------------------------- */

/* As if it had just been made, but for what the program set. */
static void forget_connection(gs_trainer *t)
{
	t->err = 0;
	t->err_text[0] = 0;
	t->expect = 0;
	t->init_asked = false;
	t->rate_asked = false;
	t->save = t->save == SAVE_TOLD ? SAVE_TOLD : SAVE_NONE;
	t->refused_noticed = 0;
	t->beat_due = t->beat_since = 0;
	for (uint32_t i = 0; i < t->n_params; i++) {
		gs_param *p = t->param[i];

		p->out = (struct out){.ring = NULL};
		p->request = NULL;
		p->row_versions = NULL;
		p->pull_left = 0;
		p->not_lent = NULL;
		p->pulling = false;
		p->base_step = 0;
	}
}

static int check_server(gs_trainer *t, enum wire_mode mode)
{
	if (t->welcome.mode != mode)
		return err_set(EINVAL, "the server is in another mode than the one that was lost");
	t->rewinds |= !t->worked || !t->welcome.resumed || t->welcome.server != t->server;
	/* What the next try resumes. */
	memcpy(t->hello.session, t->welcome.session, sizeof(t->hello.session));
	return 0;
}

/* With the lock. */
static int take_up(gs_trainer *t)
{
	if (t->phase == PHASE_OPEN)
		return 0;
	t->phase = PHASE_STARTING;
	int rc = start_talk(t);
	if (rc < 0)
		return rc;
	if (!t->rewinds) {
		t->patience_ms = t->timeout_ms;
		return replay(t);
	}
	kept_adopt(t);
	t->refused = 0;
	return 0;
}

/* Ends what a try began; its error stays the calling thread's. */
static void give_up(gs_trainer *t, int rc)
{
	char text[512];

	snprintf(text, sizeof(text), "%s", err_text());
	link_end(t);
	link_free(&t->link);
	err_set(-rc, "%s", text);
}

static int once(gs_trainer *t, uint64_t deadline)
{
	enum wire_mode mode = t->welcome.mode;

	pthread_mutex_lock(&t->lock);
	forget_connection(t);
	pthread_mutex_unlock(&t->lock);
	int rc = connect_once(t, deadline);
	pthread_mutex_lock(&t->lock);
	if (rc == 0)
		rc = check_server(t, mode);
	if (rc == 0)
		rc = take_up(t);
	if (rc < 0)
		give_up(t, rc);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

/* ---- from the loss to the return ------------------------------------------------------------- */

static int check_state(gs_trainer *t)
{
	if (t->coming_back)
		return err_set(EBUSY, "another thread is in gs_reconnect");
	if (!is_lost(t->err))
		return err_set(EINVAL, "the trainer has lost no server: it %s",
			       t->err ? "failed for another reason" : "works");
	if (t->phase == PHASE_LEFT)
		return err_set(EINVAL, "gs_leave was called");
	return 0;
}

/* The first time: what was lost is set aside. */
static void set_aside(gs_trainer *t)
{
	if (!t->link.conn)
		return; /* the last gs_reconnect did, and failed */
	link_end(t);
	t->old = t->link;
	t->link = (struct link){.conn = NULL};
	for (uint32_t i = 0; i < t->n_params; i++)
		t->param[i]->old = t->param[i]->out;
	t->hello.rank = (int32_t)t->welcome.rank;
	t->hello.resumes = true;
	memcpy(t->hello.session, t->welcome.session, sizeof(t->hello.session));
	t->rewinds = false;
}

/* All the trainers of a server lose it at once, so there is a pause before the first try, too. */
static int come_back(gs_trainer *t)
{
	struct tries tries = {once, worth_a_retry, t->reconnect_ms, true};

	if (clock_ns() - t->up_since > SETTLED_NS)
		t->attempts = 0;
	return connect_try(t, &tries);
}

static void settle(gs_trainer *t)
{
	link_free(&t->old);
	if (t->phase != PHASE_OPEN)
		start_working(t);
	t->patience_ms = 0;
	t->up_since = clock_ns();
}

/* It is as lost as before, if it may be tried again. */
static void stay_lost(gs_trainer *t, int rc, int err, const char *text)
{
	t->err = worth_a_retry(rc) && rc != -EEXIST ? err : rc;
	snprintf(t->err_text, sizeof(t->err_text), "%s", t->err == rc ? err_text() : text);
}

int gs_reconnect(gs_trainer *t, int *rewound)
{
	char text[sizeof(t->err_text)];

	if (!t || !rewound)
		return err_set(EINVAL, "gs_reconnect: NULL");
	int rc = trainer_check_process(t);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&t->lock);
	int err = t->err;
	rc = check_state(t);
	snprintf(text, sizeof(text), "%s", t->err_text);
	if (rc == 0) {
		t->coming_back = true;
		set_aside(t);
	}
	pthread_mutex_unlock(&t->lock);
	if (rc < 0)
		return rc;
	rc = come_back(t);
	pthread_mutex_lock(&t->lock);
	t->coming_back = false;
	if (rc == 0) {
		settle(t);
		*rewound = t->rewinds;
	} else {
		stay_lost(t, rc, err, text);
	}
	pthread_mutex_unlock(&t->lock);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Is the server's machine alive? A process that ends is noticed by the transport, a machine that
 * vanishes is not. So while a call waits, a word of the weights is read a few times within
 * keepalive_ms; its completion is the machine's answer, and so is anything else that comes. The
 * server's process has no part in it: one that is stopped, or at work on something long, is not
 * dead. (A READ and no WRITE: over iWARP a WRITE is complete before the peer's machine has it, and
 * may overtake a READ that was posted before.)
 */
#include "trainer/trainer.h"

#include <errno.h>

#include "base/clock.h"
#include "base/err.h"

enum { BEATS = 3 }; /* within keepalive_ms */

static void post(gs_trainer *t)
{
	/* Registered memory that nothing else uses: step.c and pull_queue.c have the words before. */
	struct tp_op op = {
	    .kind = TP_OP_READ,
	    .flags = TP_F_SIGNAL,
	    .local = ((struct layout_mailbox_head *)(void *)t->link.mail)->pad + 16,
	    .region = t->link.mailbox_region,
	    .remote = t->link.weights,
	    .offset = layout_version_off(0),
	    .len = sizeof(uint64_t),
	};

	/* Without room it is tried again; a connection that is over says so by itself. */
	t->beat_posted = tp_post(t->link.conn, &op, 1) == 1;
}

void beat_done(gs_trainer *t)
{
	t->beat_since = t->beat_due = 0;
}

uint64_t beat_look(gs_trainer *t)
{
	uint64_t now, limit = t->keepalive_ms * NS_PER_MS;

	if (limit == 0 || !t->link.mailbox_region)
		return UINT64_MAX;
	now = clock_ns();
	if (t->heard && t->beat_since)
		t->beat_since = now;
	t->heard = false;
	if (!t->beat_since) {
		if (!t->beat_due)
			t->beat_due = now + limit / BEATS;
		if (now < t->beat_due)
			return t->beat_due;
		t->beat_since = now;
		t->beat_posted = false;
	}
	if (!t->beat_posted)
		post(t);
	if (now < t->beat_since + limit)
		return t->beat_since + limit;
	trainer_fail(t,
		     err_set(ECONNRESET, "the server is gone: silent for %u ms", t->keepalive_ms));
	return now;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a connection, and of what belongs to it.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

enum { CLOSE_MS = 1500 }; /* the transport gives itself one second */

/* The end is waited for so that what was said last (a bye, an error) gets out. */
void link_end(gs_trainer *t)
{
	uint64_t deadline = clock_ns() + CLOSE_MS * NS_PER_MS;

	if (!t->link.conn)
		return;
	if (t->err == 0)
		t->err = -ENOTCONN; /* what comes now is not for anybody */
	tp_conn_close(t->link.conn);
	while (trainer_poll(t), !t->link.closed && clock_ns() < deadline)
		tp_cq_wait(t->cq, CLOSE_MS);
}

void link_free(struct link *link)
{
	tp_conn_destroy(link->conn);
	tp_arena_destroy(link->mailbox);
	tp_arena_destroy(link->local);
	free(link->grant.place);
	free(link->owner);
	free(link->pack);
	free(link->pull_asked);
	free(link->kept);
	free(link->base);
	free(link->skip);
	*link = (struct link){.conn = NULL};
}

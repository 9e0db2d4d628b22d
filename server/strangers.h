/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits on what may come from those who are connected: how many have yet to say who they are, how
 * long they take, and how fast control messages come. On the control thread.
 */
#ifndef GS_SERVER_STRANGERS_H
#define GS_SERVER_STRANGERS_H

#include <stdbool.h>

struct session;
struct srv;

enum {
	/* Connections that have said no hello, or no proof, at once. When one more comes, the oldest
	 * is ended: so nobody keeps trainers out by connecting and being silent. But each has a while
	 * of its own first, in which a trainer has said all: of a crowd of trainers those that find no
	 * place wait at the listener. */
	STRANGERS_MAX = 16,
	STRANGERS_PLACE_PART = 5, /* a fifth of talk_ms */
	/* What a listener takes beyond the trainers: strangers (also those who are one trainer too
	 * many, and are told so), and as many that were ended and are not gone yet. */
	STRANGERS_CONNECTIONS = 2 * STRANGERS_MAX,
};

/* Nobody is connected but they. */
bool strangers_alone(const struct srv *srv);
/* Nobody can be taken now: all places are taken, and none of them for long. */
bool strangers_full(const struct srv *srv);
/* One more was taken: ends the oldest, if there are too many. */
void strangers_limit(struct srv *srv);
/* One that was silent is ended: counts it. */
void strangers_silent(struct session *s);

/* Takes a message's token. False: they come too fast, and the session was ended. */
bool strangers_may_talk(struct session *s);
/* It waited for an answer and gets it: that message cost nothing. */
void strangers_answered(struct session *s);

#endif

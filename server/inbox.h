/* SPDX-License-Identifier: Apache-2.0
 *
 * What other threads tell the control thread: an actor's queue with an eventfd in front.
 */
#ifndef GS_SERVER_INBOX_H
#define GS_SERVER_INBOX_H

#include <stdint.h>

#include "server/queue.h"

struct session;

enum note_kind {
	NOTE_MSG,     /* a control message came: len, data; the note is freed by who handles it */
	NOTE_EARLY,   /* it sent data before anything was granted to it */
	NOTE_ROOM,    /* messages may be sent again */
	NOTE_CLOSED,  /* the connection is over */
	NOTE_STARTED, /* the round took it in: its first step is set */
	NOTE_LEFT,    /* the round let it go */
	NOTE_RATE,    /* the learning rate that it set holds */
	NOTE_LOST,    /* the round has dealt with a lost one: what became of its place is known */
	NOTE_LOOKED,  /* the round has said whom the step waits for; of no session */
	NOTE_REFUSED, /* a push of rows was refused */
	NOTE_SAVE_DUE, /* a checkpoint is due by steps; as the next one, of no session */
	NOTE_SAVED,   /* a checkpoint was written, or could not be */
	NOTE_REAP,    /* the last reference is gone */
};

struct note {
	struct queue_node node;
	enum note_kind kind;
	struct session *session;
	uint32_t len;
	uint8_t data[];
};

struct inbox {
	struct queue queue;
	_Atomic uint32_t pending;
	int fd; /* readable when there is something */
};

int inbox_init(struct inbox *inbox);
void inbox_fini(struct inbox *inbox);
/* Any thread. */
void inbox_post(struct inbox *inbox, struct note *note);
/* Handles what is there. Control thread. */
void inbox_drain(struct inbox *inbox, void (*handle)(struct note *note));

#endif

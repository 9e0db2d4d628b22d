/* SPDX-License-Identifier: Apache-2.0
 *
 * The talk with a trainer before and after its training, and what little is said meanwhile
 * (proto/wire.h has the conversation). All of it runs on the control thread.
 *
 *  dialog.c   messages out, messages in     start.c      mailbox, initial weights, first step
 *  hello.c    who it is; its rank           notice.c     rates, refusals
 *  access.c   whether it has the key        leave.c      the end, with a bye or without
 *  declare.c  parameters; memory            strangers.c  limits
 */
#ifndef GS_SERVER_DIALOG_H
#define GS_SERVER_DIALOG_H

#include "server/session.h"

/* ---- dialog.c ---- */

void dialog_send(struct session *s, const struct wire_msg *msg);
/* Writes its words from `off` on, as they are then, behind what was sent before and ahead of what is
 * sent after. */
void dialog_send_words(struct session *s, uint64_t off, uint64_t len);
/* Sends what waited for room. */
void dialog_flush(struct session *s);
void dialog_drop(struct session *s);
/* A message came. */
void dialog_message(struct session *s, const void *data, uint32_t len);

/* ---- hello.c ---- */

void hello_take(struct session *s, const struct wire_hello *hello);
/* Those who wait are looked at again. */
void hello_again(struct srv *srv);
/* It has waited for too long. */
void hello_tired(struct session *s);
/* Its rank may be taken by another. Repeats are harmless. */
void hello_give_rank(struct session *s);

/* ---- declare.c ---- */

void declare_take(struct session *s, const struct wire_declare *d);

/* ---- start.c ---- */

void start_attach(struct session *s, const struct wire_attach *a);
void start_init_done(struct session *s);
/* Goes on with those that wait for initial weights, as far as it can. */
void start_held(struct srv *srv);
/* The round, or the pace, took it in: its first step is set. */
void start_begun(struct session *s);

/* ---- notice.c ---- */

void notice_set_rate(struct session *s, const struct wire_set_rate *set);
/* The rate holds. */
void notice_rate_set(struct session *s);
/* A push of rows was refused. */
void notice_refused(struct session *s);

/* ---- leave.c ---- */

void leave_bye(struct session *s);
/* The round, or the pace, let it go. */
void leave_done(struct session *s);
/* Its connection is over: gives back its rank and its part in what others wait for. */
void leave_closed(struct session *s);

#endif

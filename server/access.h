/* SPDX-License-Identifier: Apache-2.0
 *
 * The key: who has none, or another, gets no rank, no memory, and no answer but that. On the control
 * thread, but for open and close.
 *
 *  1. Between a hello and a right proof nothing is kept of a trainer but the hello, and nothing is
 *     done for it.
 *  2. A challenge is drawn for each hello, and a proof is looked at once.
 *  3. No text and no log line has anything of the key, of a nonce or of a mac.
 */
#ifndef GS_SERVER_ACCESS_H
#define GS_SERVER_ACCESS_H

#include <stdbool.h>

#include "proto/wire.h"

struct session;
struct srv;
struct srv_options;

/* Whether these listeners may do without a key: -EACCES when the world outside can reach them and
 * nobody said that this is all right. */
int access_options(const struct srv_options *opt);
/* Reads the key, or says loudly that there is none where there should be. */
int access_start(struct srv *srv);
void access_end(struct srv *srv);

/* There is no key, or this trainer has proved that it has it. Else it is asked to (and hello_take is
 * called again once it has), or sent away. */
bool access_granted(struct session *s, const struct wire_hello *hello);
/* It was asked, and has proved it. */
bool access_proved(const struct session *s);
void access_take(struct session *s, const struct wire_proof *proof);
/* Adds the server's proof to what goes to one that was asked for its own. */
void access_sign(const struct session *s, struct wire_welcome *welcome);
/* The session goes. */
void access_forget(struct session *s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The key, at the trainer: it proves that it has it when the server asks, and with a key it takes no
 * server that does not prove the same.
 */
#ifndef GS_TRAINER_ACCESS_H
#define GS_TRAINER_ACCESS_H

#include <stdbool.h>

#include "proto/wire.h"

struct auth_key;
struct gs_trainer;

struct access {
	struct auth_key *key;    /* NULL: none */
	struct wire_hello hello; /* the last one that was said, */
	uint8_t server_nonce[WIRE_NONCE_LEN];
	bool answered; /* and its challenge was answered */
};

/* Reads the key; NULL: there is none. auth_key_load's errors. */
int access_open(struct access *a, const char *key_file);
void access_close(struct access *a);

/* Completes a hello that is about to be said, with a new nonce. */
void access_hello(struct access *a, struct wire_hello *hello);
/* All with the lock held. A challenge came: proves the key. -EACCES (there is none), -EPROTO. */
int access_answer(struct gs_trainer *t, const struct wire_challenge *challenge);
/* Whether it may be trusted: -EACCES. */
int access_check(struct gs_trainer *t, const struct wire_welcome *welcome);

#endif

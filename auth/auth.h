/* SPDX-License-Identifier: Apache-2.0
 *
 * Proofs that both sides have the same pre-shared key, without showing it. libsodium stays inside.
 *
 *   T → S  hello: nonce T
 *   S → T  challenge: nonce S
 *   T → S  proof:   mac(key, "trainer" ‖ transcript)
 *   S → T  welcome: mac(key, "server"  ‖ transcript)
 *
 * The transcript is all that both sides know of this conversation: both nonces, what hello said
 * (version, rank, name, session), and what the transport says names this connection alone
 * (tp_conn_binding). So a proof is good once, on one connection, for one rank, in one direction.
 */
#ifndef GS_AUTH_AUTH_H
#define GS_AUTH_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#define AUTH_NONCE_LEN   32u
#define AUTH_MAC_LEN     32u
#define AUTH_BINDING_MAX 512u

struct auth_key; /* in memory that is locked, and kept out of core dumps, where that is allowed */

/* Reads a key: 16 to 4096 bytes of anything, in a regular file that belongs to this user or root and
 * that nobody else can read or write (mode 0600 or less).
 * Errors: -ENOENT and what else open(2) gives, -EACCES (owner, mode: the text says chmod 600), -EINVAL
 * (its length), -ENOMEM. No text has anything of the key. */
int auth_key_load(const char *path, struct auth_key **out);
/* Wipes it. NULL is allowed. */
void auth_key_free(struct auth_key *key);

/* Random bytes from the kernel. */
void auth_random(void *out, uint32_t len);

enum auth_side { AUTH_TRAINER, AUTH_SERVER };

struct auth_transcript {
	uint8_t trainer_nonce[AUTH_NONCE_LEN], server_nonce[AUTH_NONCE_LEN];
	uint32_t version;
	int32_t rank;
	const char *name;
	const uint8_t *session; /* 16 bytes; NULL: none */
	uint8_t binding[AUTH_BINDING_MAX];
	uint32_t binding_len;
};

void auth_prove(const struct auth_key *key, enum auth_side side, const struct auth_transcript *t,
		uint8_t mac[AUTH_MAC_LEN]);
/* In constant time. */
bool auth_check(const struct auth_key *key, enum auth_side side, const struct auth_transcript *t,
		const uint8_t mac[AUTH_MAC_LEN]);

#endif

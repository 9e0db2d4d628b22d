/* SPDX-License-Identifier: Apache-2.0
 *
 * Key files of the tests, and proofs that are made by hand.
 */
#ifndef GS_TESTS_E2E_KEYS_H
#define GS_TESTS_E2E_KEYS_H

#include "auth/auth.h"
#include "raw.h"

/* A file of mode 0600 with these 32 bytes, in a directory of this test. */
const char *key_file(const char *bytes);
/* Removes them all. */
void key_files_end(void);

extern const char key_right[], key_wrong[]; /* 32 bytes each */

/* A hello with a nonce, and what the server will prove and check. */
struct talker {
	struct raw r;
	struct wire_msg hello;
	struct auth_transcript t;
	struct auth_key *key;
};
/* Connects, says hello with a nonce, takes the challenge. */
void talker_challenged(struct talker *k, const char *uri, const char *key);
/* Sends the proof of a side. */
void talker_prove(struct talker *k, enum auth_side side);
void talker_free(struct talker *k);

#endif

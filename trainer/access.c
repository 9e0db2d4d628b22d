/* SPDX-License-Identifier: Apache-2.0
 *
 * The key, at the trainer.
 */
#include "trainer/access.h"

#include <errno.h>
#include <string.h>

#include "auth/auth.h"
#include "base/err.h"
#include "trainer/trainer.h"

_Static_assert(WIRE_NONCE_LEN == AUTH_NONCE_LEN && WIRE_MAC_LEN == AUTH_MAC_LEN &&
		   TP_BINDING_MAX == AUTH_BINDING_MAX,
	       "one length each");

int access_open(struct access *a, const char *key_file)
{
	return key_file ? auth_key_load(key_file, &a->key) : 0;
}

void access_close(struct access *a)
{
	auth_key_free(a->key);
	a->key = NULL;
}

void access_hello(struct access *a, struct wire_hello *hello)
{
	hello->has_nonce = a->key != NULL;
	if (a->key)
		auth_random(hello->nonce, sizeof(hello->nonce));
	a->hello = *hello;
	a->answered = false;
}

static struct auth_transcript transcript(const gs_trainer *t)
{
	const struct access *a = &t->access;
	struct auth_transcript ts = {
	    .version = a->hello.version,
	    .rank = a->hello.rank,
	    .name = a->hello.name,
	    .session = a->hello.resumes ? a->hello.session : NULL,
	};

	memcpy(ts.trainer_nonce, a->hello.nonce, sizeof(ts.trainer_nonce));
	memcpy(ts.server_nonce, a->server_nonce, sizeof(ts.server_nonce));
	ts.binding_len = (uint32_t)tp_conn_binding(t->link.conn, ts.binding);
	return ts;
}

int access_answer(gs_trainer *t, const struct wire_challenge *challenge)
{
	struct access *a = &t->access;
	struct wire_msg msg = {.kind = WIRE_PROOF};

	if (!a->key)
		return err_set(EACCES, "the server wants a key: set gs_options.key_file");
	if (a->answered)
		return err_set(EPROTO, "it sent a second challenge");
	a->answered = true;
	memcpy(a->server_nonce, challenge->nonce, sizeof(a->server_nonce));
	struct auth_transcript ts = transcript(t);

	auth_prove(a->key, AUTH_TRAINER, &ts, msg.proof.mac);
	/* Nothing but the hello was sent before, so there is room, and nobody is to be waited for
	 * within a poll. */
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(&msg, buf, sizeof(buf));
	int rc = len < 0 ? len : tp_send(t->link.conn, buf, (size_t)len);

	return rc == -EAGAIN ? err_set(EPROTO, "it took no proof") : rc;
}

int access_check(gs_trainer *t, const struct wire_welcome *welcome)
{
	struct access *a = &t->access;

	if (!a->key)
		return 0;
	if (!a->answered || !welcome->has_mac)
		return err_set(EACCES, "the server does not prove that it has this trainer's key: it "
				       "has none, or it is not the one that is meant");
	struct auth_transcript ts = transcript(t);

	if (!auth_check(a->key, AUTH_SERVER, &ts, welcome->mac))
		return err_set(EACCES, "the server's proof of the key is wrong: its key file is not "
				       "this trainer's, or it is not the one that is meant");
	return 0;
}

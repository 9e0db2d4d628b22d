/* SPDX-License-Identifier: Apache-2.0
 *
 * The key, at the server.
 */
#include "server/access.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "auth/auth.h"
#include "base/err.h"
#include "base/log.h"
#include "server/dialog.h"
#include "server/internal.h"
#include "transport/uri.h"

_Static_assert(WIRE_NONCE_LEN == AUTH_NONCE_LEN && WIRE_MAC_LEN == AUTH_MAC_LEN &&
	       TP_BINDING_MAX == AUTH_BINDING_MAX, "one length each");

struct access {
	struct wire_hello hello;
	uint8_t nonce[AUTH_NONCE_LEN];
	bool proved;
};

/* The first that other machines can reach; NULL: none. What is no URI is for tp_listen to refuse. */
static const char *reachable(const struct srv_options *opt)
{
	struct tp_uri u;

	for (uint32_t i = 0; i < opt->n_listen; i++)
		if (!tp_uri_is_local(opt->listen[i]) && tp_uri_parse(opt->listen[i], &u) == 0)
			return opt->listen[i];
	return NULL;
}

int access_options(const struct srv_options *opt)
{
	const char *uri = reachable(opt);

	if (opt->key_file || opt->insecure || !uri)
		return 0;
	return err_set(EACCES, "%s can be reached from other machines, and there is no key. Make one "
		       "(head -c 32 /dev/urandom > key && chmod 600 key) and give it to the server "
		       "and all trainers (--key-file key); or, where every host is trusted, say "
		       "--insecure", uri);
}

int access_start(struct srv *srv)
{
	const char *uri = reachable(&srv->opt);

	if (srv->opt.key_file)
		return auth_key_load(srv->opt.key_file, &srv->key);
	if (uri)
		log_warn("INSECURE: there is no key; whoever can reach %s can read and change the "
			 "weights", uri);
	return 0;
}

void access_end(struct srv *srv)
{
	auth_key_free(srv->key);
	srv->key = NULL;
}

static struct auth_transcript transcript(const struct session *s)
{
	const struct access *a = s->access;
	struct auth_transcript t = {
		.version = a->hello.version,
		.rank = a->hello.rank,
		.name = a->hello.name,
		.session = a->hello.resumes ? a->hello.session : NULL,
	};

	memcpy(t.trainer_nonce, a->hello.nonce, sizeof(t.trainer_nonce));
	memcpy(t.server_nonce, a->nonce, sizeof(t.server_nonce));
	t.binding_len = (uint32_t)tp_conn_binding(s->conn, t.binding);
	return t;
}

static void refuse(struct session *s, const char *why)
{
	atomic_fetch_add(&s->srv->refused_key, 1);
	session_condemn(s, WIRE_E_ACCESS, "%s", why);
}

static void challenge(struct session *s, const struct wire_hello *hello)
{
	struct wire_msg msg = {.kind = WIRE_CHALLENGE};

	s->access = calloc(1, sizeof(*s->access));
	if (!s->access) {
		session_condemn(s, WIRE_E_INTERNAL, "no memory for a challenge");
		return;
	}
	s->access->hello = *hello;
	auth_random(s->access->nonce, sizeof(s->access->nonce));
	memcpy(msg.challenge.nonce, s->access->nonce, sizeof(msg.challenge.nonce));
	session_set_state(s, SESSION_PROVING);
	dialog_send(s, &msg);
}

bool access_proved(const struct session *s)
{
	return s->access && s->access->proved;
}

bool access_granted(struct session *s, const struct wire_hello *hello)
{
	if (!s->srv->key || access_proved(s))
		return true;
	if (hello->has_nonce)
		challenge(s, hello);
	else
		refuse(s, "this server wants a key, and the trainer has none: give it the server's "
			  "key file");
	return false;
}

void access_take(struct session *s, const struct wire_proof *proof)
{
	struct auth_transcript t = transcript(s);

	if (s->access->proved) {
		session_condemn(s, WIRE_E_PROTOCOL, "a second proof");
		return;
	}
	if (!auth_check(s->srv->key, AUTH_TRAINER, &t, proof->mac)) {
		refuse(s, "the proof of the key is wrong: the trainer's key file is not the server's");
		return;
	}
	s->access->proved = true;
	hello_take(s, &s->access->hello);
}

void access_sign(const struct session *s, struct wire_welcome *welcome)
{
	struct auth_transcript t;

	if (!s->access)
		return;
	t = transcript(s);
	auth_prove(s->srv->key, AUTH_SERVER, &t, welcome->mac);
	welcome->has_mac = true;
}

void access_forget(struct session *s)
{
	free(s->access);
	s->access = NULL;
}

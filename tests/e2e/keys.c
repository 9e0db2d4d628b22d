/* SPDX-License-Identifier: Apache-2.0
 *
 * Key files of the tests, and proofs that are made by hand.
 */
#include "keys.h"

#include <fcntl.h>
#include <unistd.h>

const char key_right[] = "\x93 this key opens the server \x07\xf1\xfe!";
const char key_wrong[] = "\x93 this key opens nothing .. \x07\xf1\xfe!";
_Static_assert(sizeof(key_right) == 33 && sizeof(key_wrong) == 33, "keys of 32 bytes");

enum { FILES = 4 };
static char dir[64], files[FILES][96];
static unsigned n_files;

const char *key_file(const char *bytes)
{
	char *name = files[n_files];

	must(n_files < FILES, "too many key files");
	if (n_files == 0) {
		strcpy(dir, "/tmp/gradslot-e2e-XXXXXX");
		must(mkdtemp(dir) != NULL, "no directory");
	}
	snprintf(name, sizeof(files[0]), "%s/%u", dir, n_files++);
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	must(fd >= 0 && write(fd, bytes, 32) == 32, "no key file");
	close(fd);
	return name;
}

void key_files_end(void)
{
	while (n_files > 0)
		unlink(files[--n_files]);
	rmdir(dir);
}

void talker_challenged(struct talker *k, const char *uri, const char *key)
{
	struct wire_msg challenge;

	*k = (struct talker){.hello = {.kind = WIRE_HELLO,
				       .hello = {.version = WIRE_VERSION,
						 .rank = -1,
						 .name = "by hand",
						 .has_nonce = true}}};
	ok(auth_key_load(key, &k->key));
	auth_random(k->hello.hello.nonce, WIRE_NONCE_LEN);
	raw_connect(&k->r, uri, 0);
	raw_send(&k->r, &k->hello);
	challenge = raw_expect(&k->r, WIRE_CHALLENGE);
	k->t = (struct auth_transcript){
	    .version = WIRE_VERSION, .rank = -1, .name = k->hello.hello.name};
	memcpy(k->t.trainer_nonce, k->hello.hello.nonce, AUTH_NONCE_LEN);
	memcpy(k->t.server_nonce, challenge.challenge.nonce, AUTH_NONCE_LEN);
	k->t.binding_len = (uint32_t)tp_conn_binding(k->r.conn, k->t.binding);
}

void talker_prove(struct talker *k, enum auth_side side)
{
	struct wire_msg msg = {.kind = WIRE_PROOF};

	auth_prove(k->key, side, &k->t, msg.proof.mac);
	raw_send(&k->r, &msg);
}

void talker_free(struct talker *k)
{
	auth_key_free(k->key);
}

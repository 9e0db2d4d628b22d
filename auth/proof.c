/* SPDX-License-Identifier: Apache-2.0
 *
 * Proofs: HMAC-SHA-256 over the transcript. Each field goes in with its length in front (u32, little
 * endian), so that no two transcripts are the same bytes; the first one is a label that names this
 * use and the side, so that what one side says is never good for the other.
 */
#include "auth/auth.h"

#include <endian.h>
#include <sodium.h>
#include <string.h>

#include "auth/key.h"

_Static_assert(AUTH_MAC_LEN == crypto_auth_hmacsha256_BYTES, "the mac is one of these");

#define SESSION_LEN 16u

static const char *const labels[] = {
	[AUTH_TRAINER] = "gradslot 1 trainer",
	[AUTH_SERVER] = "gradslot 1 server",
};

typedef crypto_auth_hmacsha256_state state;

static void add(state *st, const void *bytes, size_t len)
{
	uint32_t front = htole32((uint32_t)len);

	crypto_auth_hmacsha256_update(st, (const uint8_t *)&front, sizeof(front));
	if (len > 0)
		crypto_auth_hmacsha256_update(st, bytes, len);
}

static void add_number(state *st, uint32_t n)
{
	n = htole32(n);
	add(st, &n, sizeof(n));
}

void auth_prove(const struct auth_key *key, enum auth_side side, const struct auth_transcript *t,
		uint8_t mac[AUTH_MAC_LEN])
{
	state st;

	crypto_auth_hmacsha256_init(&st, key->bytes, key->len);
	add(&st, labels[side], strlen(labels[side]));
	add(&st, t->trainer_nonce, sizeof(t->trainer_nonce));
	add(&st, t->server_nonce, sizeof(t->server_nonce));
	add_number(&st, t->version);
	add_number(&st, (uint32_t)t->rank);
	add(&st, t->name, strlen(t->name));
	add(&st, t->session, t->session ? SESSION_LEN : 0);
	add(&st, t->binding, t->binding_len);
	crypto_auth_hmacsha256_final(&st, mac);
	sodium_memzero(&st, sizeof(st));
}

bool auth_check(const struct auth_key *key, enum auth_side side, const struct auth_transcript *t,
		const uint8_t mac[AUTH_MAC_LEN])
{
	uint8_t right[AUTH_MAC_LEN];
	bool same;

	auth_prove(key, side, t, right);
	same = sodium_memcmp(right, mac, sizeof(right)) == 0;
	sodium_memzero(right, sizeof(right));
	return same;
}

void auth_random(void *out, uint32_t len)
{
	randombytes_buf(out, len);
}

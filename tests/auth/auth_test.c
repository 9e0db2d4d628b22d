/* SPDX-License-Identifier: Apache-2.0
 *
 * Proofs: known answers (answers.py has them from another implementation), and that each field of a
 * transcript matters.
 */
#include "auth_test.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "run.h"

static void count_up(uint8_t *at, size_t n, unsigned from)
{
	for (size_t i = 0; i < n; i++)
		at[i] = (uint8_t)(from + i);
}

static uint8_t session[16];

static struct auth_transcript transcript(void)
{
	struct auth_transcript t = {
		.version = 2, .rank = 3, .name = "worker", .session = session};

	count_up(t.trainer_nonce, 32, 0);
	count_up(t.server_nonce, 32, 100);
	count_up(session, 16, 200);
	t.binding_len = 64;
	count_up(t.binding, t.binding_len, 150);
	return t;
}

static struct auth_key *short_key(void)
{
	struct auth_key *key = NULL;
	uint8_t bytes[16];

	count_up(bytes, 16, 1);
	ck_assert_msg(auth_key_load(a_file(bytes, 16, 0600), &key) == 0, "%s", err_text());
	return key;
}

static struct auth_key *long_key(void)
{
	struct auth_key *key = NULL;
	uint8_t bytes[4096];

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	ck_assert_msg(auth_key_load(a_file(bytes, sizeof(bytes), 0400), &key) == 0, "%s",
		      err_text());
	return key;
}

static void is(const uint8_t mac[AUTH_MAC_LEN], const char *hex)
{
	char text[2 * AUTH_MAC_LEN + 1];

	for (unsigned i = 0; i < AUTH_MAC_LEN; i++)
		snprintf(text + 2 * i, 3, "%02x", mac[i]);
	ck_assert_str_eq(text, hex);
}

START_TEST(known_answers)
{
	struct auth_transcript t = transcript();
	struct auth_key *key = short_key();
	uint8_t mac[AUTH_MAC_LEN];

	auth_prove(key, AUTH_TRAINER, &t, mac);
	is(mac, "f519033d56e9f09aad476998dbb97fabd936deac754b92cd4d883cc785666c71");
	auth_prove(key, AUTH_SERVER, &t, mac);
	is(mac, "f1e4d5e88c6420d1b0e5caf1de25f41493e6feccbcf867eb272cfb4ae1bef89b");
	auth_key_free(key);

	key = long_key();
	t.rank = -1;
	t.name = "";
	t.session = NULL;
	auth_prove(key, AUTH_TRAINER, &t, mac);
	is(mac, "b46d6141b059e19ed04fd5f6f3a804b73eef4a392c571e8843a1d4281a5e4bc2");
	auth_prove(key, AUTH_SERVER, &t, mac);
	is(mac, "6bff3a3b6fd91f43994518cd3b5853b03605a8361167510b3f0d0cdf025852e7");
	auth_key_free(key);
}
END_TEST

/* The i-th change of one field; false: there are no more. */
static bool change(unsigned i, struct auth_transcript *t)
{
	static uint8_t other[16];

	switch (i) {
	case 0:
		t->trainer_nonce[0] ^= 1;
		return true;
	case 1:
		t->trainer_nonce[31] ^= 0x80;
		return true;
	case 2:
		t->server_nonce[0] ^= 1;
		return true;
	case 3:
		t->server_nonce[31] ^= 0x80;
		return true;
	case 4:
		t->version++;
		return true;
	case 5:
		t->rank = -1;
		return true;
	case 6:
		t->name = "worke";
		return true;
	case 7:
		t->name = "";
		return true;
	case 8:
		t->session = NULL;
		return true;
	case 9:
		count_up(other, 16, 200);
		other[15] ^= 1;
		t->session = other;
		return true;
	case 10:
		t->binding[0] ^= 1;
		return true;
	case 11:
		t->binding[t->binding_len - 1] ^= 1;
		return true;
	case 12: { /* what moves from one field to its neighbour */
		uint8_t held[AUTH_NONCE_LEN];

		memcpy(held, t->trainer_nonce, sizeof(held));
		memcpy(t->trainer_nonce, t->server_nonce, sizeof(held));
		memcpy(t->server_nonce, held, sizeof(held));
		return true;
	}
	case 13: /* another rail */
		t->binding_len += 64;
		return true;
	default:
		return false;
	}
}

START_TEST(each_field_matters)
{
	struct auth_key *key = short_key();
	uint8_t mac[AUTH_MAC_LEN];

	for (int side = AUTH_TRAINER; side <= AUTH_SERVER; side++) {
		struct auth_transcript t = transcript(), other = t;

		auth_prove(key, side, &t, mac);
		ck_assert(auth_check(key, side, &t, mac));
		for (unsigned i = 0; change(i, &other); i++, other = t)
			ck_assert_msg(!auth_check(key, side, &other, mac), "change %u", i);
	}
	auth_key_free(key);
}
END_TEST

/* A name that begins with what a session is, and the like: lengths keep fields apart. */
START_TEST(fields_do_not_run_together)
{
	struct auth_transcript t = transcript(), other = t;
	struct auth_key *key = short_key();
	uint8_t mac[AUTH_MAC_LEN];

	memset(session, 'x', sizeof(session));
	auth_prove(key, AUTH_TRAINER, &t, mac);
	other.name = "workerxxxxxxxxxxxxxxxx";
	other.session = NULL;
	ck_assert(!auth_check(key, AUTH_TRAINER, &other, mac));
	auth_key_free(key);
}
END_TEST

START_TEST(one_side_is_not_the_other)
{
	struct auth_transcript t = transcript();
	struct auth_key *key = short_key();
	uint8_t mac[AUTH_MAC_LEN];

	auth_prove(key, AUTH_TRAINER, &t, mac);
	ck_assert(!auth_check(key, AUTH_SERVER, &t, mac));
	auth_prove(key, AUTH_SERVER, &t, mac);
	ck_assert(!auth_check(key, AUTH_TRAINER, &t, mac));
	auth_key_free(key);
}
END_TEST

START_TEST(each_bit_of_a_mac_matters)
{
	struct auth_transcript t = transcript();
	struct auth_key *key = short_key(), *other = long_key();
	uint8_t mac[AUTH_MAC_LEN];

	auth_prove(key, AUTH_TRAINER, &t, mac);
	ck_assert(!auth_check(other, AUTH_TRAINER, &t, mac));
	for (unsigned bit = 0; bit < 8 * AUTH_MAC_LEN; bit++) {
		mac[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert(!auth_check(key, AUTH_TRAINER, &t, mac));
		mac[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	auth_key_free(key);
	auth_key_free(other);
}
END_TEST

START_TEST(random_bytes_differ)
{
	uint8_t a[AUTH_NONCE_LEN] = {0}, b[AUTH_NONCE_LEN] = {0};

	auth_random(a, sizeof(a));
	auth_random(b, sizeof(b));
	ck_assert_mem_ne(a, b, sizeof(a));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("auth");
	TCase *c = tcase_create("proofs");

	tcase_add_test(c, known_answers);
	tcase_add_test(c, each_field_matters);
	tcase_add_test(c, fields_do_not_run_together);
	tcase_add_test(c, one_side_is_not_the_other);
	tcase_add_test(c, each_bit_of_a_mac_matters);
	tcase_add_test(c, random_bytes_differ);
	suite_add_tcase(s, c);
	suite_add_tcase(s, key_case());
	return run_all(srunner_create(s));
}

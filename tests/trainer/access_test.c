/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer with a key, before servers that have none, another, or somebody else's words.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "auth/auth.h"

static char path[64];
static struct auth_key *key;

static void make_key(void)
{
	snprintf(path, sizeof(path), "/tmp/gradslot-key-%d", (int)getpid());
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "0123456789abcdef0123456789abcdef", 32), 32);
	close(fd);
	ck_assert_int_eq(auth_key_load(path, &key), 0);
}

static void drop_key(void)
{
	auth_key_free(key);
	unlink(path);
}

/* ---- the fake's part --------------------------------------------------------------------------- */

static struct auth_transcript heard; /* of the last hello */
static char heard_name[WIRE_NAME_MAX + 1];

static void take_hello(struct fake *f)
{
	fake_up_to(f, STAGE_HELLO);
	const struct wire_hello *h = &f->msg.hello;

	ck_assert(h->has_nonce);
	strcpy(heard_name, h->name);
	heard = (struct auth_transcript){
	    .version = h->version, .rank = h->rank, .name = heard_name};
	memcpy(heard.trainer_nonce, h->nonce, sizeof(heard.trainer_nonce));
	heard.binding_len = (uint32_t)tp_conn_binding(f->conn, heard.binding);
}

static void challenge(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_CHALLENGE};

	auth_random(heard.server_nonce, sizeof(heard.server_nonce));
	memcpy(msg.challenge.nonce, heard.server_nonce, sizeof(heard.server_nonce));
	fake_send(f, &msg);
}

static void take_proof(struct fake *f)
{
	fake_expect(f, WIRE_PROOF);
	ck_assert(auth_check(key, AUTH_TRAINER, &heard, f->msg.proof.mac));
}

static struct wire_msg welcome(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_WELCOME,
			       .welcome = {.version = WIRE_VERSION,
					   .trainers = 2,
					   .mode = f->mode,
					   .server = 1,
					   .has_mac = true}};

	auth_prove(key, AUTH_SERVER, &heard, msg.welcome.mac);
	return msg;
}

static void send_welcome(struct fake *f)
{
	struct wire_msg msg = welcome(f);

	fake_send(f, &msg);
}

static void all_right(struct fake *f)
{
	take_hello(f);
	challenge(f);
	take_proof(f);
	send_welcome(f);
	fake_expect_closed(f);
}

static void no_challenge(struct fake *f)
{
	take_hello(f);
	fake_up_to(f, STAGE_WELCOMED);
	fake_expect_closed(f);
}

/* It has seen no challenge, so there is no transcript that a proof could be of. */
static void no_challenge_but_a_mac(struct fake *f)
{
	take_hello(f);
	send_welcome(f);
	fake_expect_closed(f);
}

static void no_mac(struct fake *f)
{
	struct wire_msg msg;

	take_hello(f);
	challenge(f);
	take_proof(f);
	msg = welcome(f);
	msg.welcome.has_mac = false;
	fake_send(f, &msg);
	fake_expect_closed(f);
}

static void a_bit_of_the_mac(struct fake *f)
{
	struct wire_msg msg;

	take_hello(f);
	challenge(f);
	take_proof(f);
	msg = welcome(f);
	msg.welcome.mac[31] ^= 0x80;
	fake_send(f, &msg);
	fake_expect_closed(f);
}

/* The trainer's own words, given back. */
static void reflected(struct fake *f)
{
	struct wire_msg msg;

	take_hello(f);
	challenge(f);
	take_proof(f);
	msg = welcome(f);
	auth_prove(key, AUTH_TRAINER, &heard, msg.welcome.mac);
	fake_send(f, &msg);
	fake_expect_closed(f);
}

/* The proof of another connection. */
static void another_binding(struct fake *f)
{
	take_hello(f);
	challenge(f);
	take_proof(f);
	heard.binding[3] ^= 1;
	send_welcome(f);
	fake_expect_closed(f);
}

static void two_challenges(struct fake *f)
{
	take_hello(f);
	challenge(f);
	challenge(f);
	fake_expect(f, WIRE_PROOF);
	fake_expect(f, WIRE_ERROR);
	fake_expect_closed(f);
}

static void only_the_hello(struct fake *f)
{
	fake_up_to(f, STAGE_HELLO);
	ck_assert(!f->msg.hello.has_nonce);
	challenge(f);
	fake_expect_closed(f);
}

/* ---- tests ------------------------------------------------------------------------------------- */

static const struct {
	void (*script)(struct fake *f);
	int err;
	const char *text;
} servers[] = {
    {all_right, 0, ""},
    {no_challenge, EACCES, "does not prove"},
    {no_challenge_but_a_mac, EACCES, "does not prove"},
    {no_mac, EACCES, "does not prove"},
    {a_bit_of_the_mac, EACCES, "proof of the key is wrong"},
    {reflected, EACCES, "proof of the key is wrong"},
    {another_binding, EACCES, "proof of the key is wrong"},
    {two_challenges, EPROTO, "second challenge"},
};

START_TEST(with_a_key)
{
	struct rig r = {0};
	struct gs_options opt;

	make_key();
	fake_start(&r.f, servers[_i].script);
	opt = rig_options(&r);
	opt.key_file = path;
	if (servers[_i].err == 0)
		ck_ok(gs_connect(&opt, &r.t));
	else
		ck_fails(gs_connect(&opt, &r.t), servers[_i].err, servers[_i].text);
	ck_assert_int_eq(r.t != NULL, servers[_i].err == 0);
	rig_down(&r);
	drop_key();
}
END_TEST

START_TEST(without_a_key)
{
	struct rig r = {0};
	struct gs_options opt;

	fake_start(&r.f, only_the_hello);
	opt = rig_options(&r);
	ck_fails(gs_connect(&opt, &r.t), EACCES, "wants a key");
	rig_down(&r);
}
END_TEST

/* Each hello has a nonce of its own. */
START_TEST(nonces_differ)
{
	uint8_t first[AUTH_NONCE_LEN];

	make_key();
	for (int i = 0; i < 2; i++) {
		struct rig r = {0};
		struct gs_options opt;

		fake_start(&r.f, all_right);
		opt = rig_options(&r);
		opt.key_file = path;
		ck_ok(gs_connect(&opt, &r.t));
		rig_down(&r);
		if (i == 0)
			memcpy(first, heard.trainer_nonce, sizeof(first));
	}
	ck_assert_mem_ne(first, heard.trainer_nonce, sizeof(first));
	drop_key();
}
END_TEST

Suite *access_suite(void)
{
	Suite *s = suite_create("access");
	TCase *c = tcase_create("key");

	tcase_set_timeout(c, 30);
	tcase_add_loop_test(c, with_a_key, 0, sizeof(servers) / sizeof(servers[0]));
	tcase_add_test(c, without_a_key);
	tcase_add_test(c, nonces_differ);
	suite_add_tcase(s, c);
	return s;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The key: who has it is let in, by a server that shows that it has it too. Everybody else is told so
 * and gets nothing, and those who train notice nothing of them.
 */
#include "cases.h"
#include "keys.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"

static void open_bed(struct bed *bed, uint32_t trainers, const char *key)
{
	struct srv_options opt = bed_options(trainers, SRV_ASYNC);

	opt.block_kib = 1;
	opt.key_file = key;
	opt.insecure = key == NULL;
	bed_start(bed, &opt);
}

static gs_trainer *connect_with(const char *uri, const char *key)
{
	struct gs_options opt = trainer_options(uri, -1);
	gs_trainer *t;

	opt.key_file = key;
	ok(gs_connect(&opt, &t));
	return t;
}

static void trains(gs_trainer *t)
{
	float grad[RAW_A_ELEMS] = {1}, w[RAW_A_ELEMS];
	gs_param *a = declare_line(t, "a", RAW_A_ELEMS, 1, 0);

	declare_line(t, "b", RAW_B_ELEMS, 1, 0);
	ok(gs_start(t));
	ok(gs_push(t, a, grad));
	ok(gs_pull(t, a, GS_ORDERED, w));
	must(w[0] == -1 && w[1] == 0, "weights");
	leave(t);
}

/* Only the right trainer trained, and so many were refused for the key. */
static void close_bed(struct bed *bed, const char *key, uint64_t refused, uint64_t violations)
{
	bed_wait_connected(bed, 0);
	must(bed_stats(bed).refused_key == refused, "%llu refused",
	     (unsigned long long)bed_stats(bed).refused_key);
	must(bed_stats(bed).violations == violations, "%llu violations",
	     (unsigned long long)bed_stats(bed).violations);
	trains(connect_with(bed->uri, key));
	bed_wait_connected(bed, 0);
	bed_stop(bed);
	key_files_end();
}

START_TEST(both_have_it)
{
	const char *key = key_file(key_right);
	struct bed bed;

	open_bed(&bed, 1, key);
	close_bed(&bed, key, 0, 0);
}
END_TEST

START_TEST(the_trainer_has_none)
{
	const char *key = key_file(key_right);
	struct gs_options opt;
	gs_trainer *t = NULL;
	struct bed bed;

	open_bed(&bed, 1, key);
	opt = trainer_options(bed.uri, -1);
	fails(gs_connect(&opt, &t), EACCES, "wants a key", "key file");
	must(!t, "an output was touched");
	close_bed(&bed, key, 1, 0);
}
END_TEST

START_TEST(the_trainer_has_another)
{
	const char *key = key_file(key_right), *other = key_file(key_wrong);
	struct gs_options opt;
	gs_trainer *t = NULL;
	struct bed bed;

	open_bed(&bed, 1, key);
	opt = trainer_options(bed.uri, -1);
	opt.key_file = other;
	fails(gs_connect(&opt, &t), EACCES, "the proof of the key is wrong");
	must(!strstr(err_text(), "opens"), "it gives away a key: %s", err_text());
	close_bed(&bed, key, 1, 0);
}
END_TEST

START_TEST(the_server_has_none)
{
	const char *key = key_file(key_right);
	struct gs_options opt;
	gs_trainer *t = NULL;
	struct bed bed;

	open_bed(&bed, 1, NULL);
	opt = trainer_options(bed.uri, -1);
	opt.key_file = key;
	fails(gs_connect(&opt, &t), EACCES, "does not prove");
	close_bed(&bed, NULL, 0, 0);
}
END_TEST

START_TEST(a_key_file_that_is_none)
{
	struct gs_options opt = trainer_options(e2e_uri, -1);
	gs_trainer *t = NULL;

	opt.key_file = "/nowhere/key";
	fails(gs_connect(&opt, &t), ENOENT, "/nowhere/key");
	opt.key_file = "/dev/zero";
	fails(gs_connect(&opt, &t), EINVAL, "not a regular file");
}
END_TEST

/* ---- proofs by hand ---------------------------------------------------------------------------- */

START_TEST(right_by_hand)
{
	const char *key = key_file(key_right);
	struct wire_welcome welcome;
	struct talker k;
	struct bed bed;

	open_bed(&bed, 1, key);
	talker_challenged(&k, bed.uri, key);
	talker_prove(&k, AUTH_TRAINER);
	welcome = raw_expect(&k.r, WIRE_WELCOME).welcome;
	must(welcome.has_mac && auth_check(k.key, AUTH_SERVER, &k.t, welcome.mac),
	     "the server's proof");
	must(!auth_check(k.key, AUTH_TRAINER, &k.t, welcome.mac), "it is the trainer's own");
	raw_close(&k.r);
	talker_free(&k);
	close_bed(&bed, key, 0, 0);
}
END_TEST

/* What a proof is about, changed after hello. */
static void other_nonce(struct auth_transcript *t)
{
	t->trainer_nonce[5] ^= 1;
}

static void other_challenge(struct auth_transcript *t)
{
	t->server_nonce[31] ^= 1;
}

static void other_rank(struct auth_transcript *t)
{
	t->rank = 0;
}

static void other_name(struct auth_transcript *t)
{
	t->name = "by hand ";
}

static void other_session(struct auth_transcript *t)
{
	t->session = t->trainer_nonce;
}

static void other_connection(struct auth_transcript *t)
{
	t->binding[0] ^= 1;
}

static const struct {
	const char *what;
	void (*change)(struct auth_transcript *t);
} changes[] = {
    {"trainer's nonce", other_nonce}, {"server's nonce", other_challenge},
    {"rank", other_rank},             {"name", other_name},
    {"session", other_session},       {"connection", other_connection},
};
enum { CHANGES = sizeof(changes) / sizeof(changes[0]) };

START_TEST(wrong_by_hand)
{
	const char *key = key_file(key_right), *other = key_file(key_wrong);
	struct talker k;
	struct bed bed;

	open_bed(&bed, 1, key);
	for (unsigned i = 0; i < CHANGES + 2; i++) {
		talker_challenged(&k, bed.uri, i == CHANGES ? other : key);
		if (i < CHANGES)
			changes[i].change(&k.t);
		talker_prove(&k, i == CHANGES + 1 ? AUTH_SERVER : AUTH_TRAINER);
		RAW_ENDS(&k.r, WIRE_E_ACCESS, "the proof of the key is wrong");
		talker_free(&k);
	}
	close_bed(&bed, key, CHANGES + 2, 0);
}
END_TEST

/* All that one trainer said, heard on the way and said again by another: hello, and proof. */
START_TEST(replayed)
{
	const char *key = key_file(key_right);
	struct wire_msg proof = {.kind = WIRE_PROOF};
	struct talker k;
	struct bed bed;
	struct raw r;

	open_bed(&bed, 2, key);
	talker_challenged(&k, bed.uri, key);
	auth_prove(k.key, AUTH_TRAINER, &k.t, proof.proof.mac);
	raw_send(&k.r, &proof);
	raw_expect(&k.r, WIRE_WELCOME);
	raw_connect(&r, bed.uri, 0);
	raw_send(&r, &k.hello);
	must(memcmp(raw_expect(&r, WIRE_CHALLENGE).challenge.nonce, k.t.server_nonce,
		    AUTH_NONCE_LEN) != 0, "the same challenge again");
	raw_send(&r, &proof);
	RAW_ENDS(&r, WIRE_E_ACCESS, "the proof of the key is wrong");
	raw_close(&k.r);
	talker_free(&k);
	close_bed(&bed, key, 1, 0);
}
END_TEST

/* Without a proof there is no rank, no declaring, no second try. */
START_TEST(out_of_turn)
{
	static const enum wire_kind kinds[] = {WIRE_HELLO, WIRE_DECLARE, WIRE_ATTACH, WIRE_BYE};
	const char *key = key_file(key_right);
	struct wire_msg proof = {.kind = WIRE_PROOF};
	struct talker k;
	struct bed bed;
	struct raw r;

	open_bed(&bed, 1, key);
	raw_connect(&r, bed.uri, 0);
	raw_send(&r, &proof);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "proof message", "connected");
	for (unsigned i = 0; i < 4; i++) {
		struct wire_msg msg = {.kind = kinds[i]};

		talker_challenged(&k, bed.uri, key);
		if (kinds[i] == WIRE_HELLO)
			msg = k.hello;
		if (kinds[i] == WIRE_DECLARE)
			msg.declare = (struct wire_declare){
			    .last = true, .n = 1, .param = {raw_lines[0]}};
		raw_send(&k.r, &msg);
		RAW_ENDS(&k.r, WIRE_E_PROTOCOL, wire_kind_name(kinds[i]), "proving its key");
		talker_free(&k);
	}
	talker_challenged(&k, bed.uri, key);
	talker_prove(&k, AUTH_TRAINER);
	raw_expect(&k.r, WIRE_WELCOME);
	talker_prove(&k, AUTH_TRAINER);
	RAW_ENDS(&k.r, WIRE_E_PROTOCOL, "proof message", "declaring");
	talker_free(&k);
	close_bed(&bed, key, 0, 6);
}
END_TEST

/* ---- what is logged ---------------------------------------------------------------------------- */

struct log_text {
	size_t len;
	char bytes[256 << 10];
};

static void must_not_have(const struct log_text *log, const void *bytes, size_t len,
			  const char *what)
{
	must(!memmem(log->bytes, log->len, bytes, len), "%s is in the log", what);
}

/* As it is (but for control characters, which no line shows), in hex, and in base64, at each of its
 * three phases but for the ends. */
static void has_none_of(const struct log_text *log, const uint8_t *secret, size_t len,
			const char *what)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char hex[2 * 64 + 1], upper[2 * 64 + 1], base[100], plain[64];

	for (size_t i = 0; i < len; i++) {
		snprintf(hex + 2 * i, 3, "%02x", secret[i]);
		snprintf(upper + 2 * i, 3, "%02X", secret[i]);
		plain[i] = secret[i] < 0x20 || secret[i] == 0x7f ? ' ' : (char)secret[i];
	}
	must_not_have(log, plain, len, what);
	must_not_have(log, hex, 2 * len, what);
	must_not_have(log, upper, 2 * len, what);
	/* Half of it is enough to be found out. */
	must_not_have(log, hex, len, what);
	for (size_t phase = 0; phase < 3; phase++) {
		size_t n = 0;

		for (size_t i = phase; i + 3 <= len; i += 3) {
			uint32_t v = (uint32_t)secret[i] << 16 | (uint32_t)secret[i + 1] << 8 |
				     secret[i + 2];

			for (int k = 18; k >= 0; k -= 6)
				base[n++] = digits[v >> k & 63];
		}
		must_not_have(log, base, n, what);
	}
}

/* Everything that is said at the level debug while somebody comes with the key, somebody without, and
 * somebody with another. */
START_TEST(nothing_secret_is_logged)
{
	static struct log_text log;
	const char *key = key_file(key_right), *other = key_file(key_wrong);
	int err = dup(STDERR_FILENO), fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	uint8_t token[WIRE_SESSION_LEN], mac[2][AUTH_MAC_LEN], nonce[2][AUTH_NONCE_LEN];
	struct wire_welcome welcome;
	struct gs_options opt;
	struct talker k;
	gs_trainer *t;
	struct bed bed;

	must(err >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0, "no file for the log");
	log_set_level(LOG_DEBUG);
	open_bed(&bed, 1, key);
	trains(connect_with(bed.uri, key));
	bed_wait_connected(&bed, 0);
	talker_challenged(&k, bed.uri, key);
	auth_prove(k.key, AUTH_TRAINER, &k.t, mac[0]);
	talker_prove(&k, AUTH_TRAINER);
	welcome = raw_expect(&k.r, WIRE_WELCOME).welcome;
	memcpy(token, welcome.session, sizeof(token));
	memcpy(mac[1], welcome.mac, AUTH_MAC_LEN);
	memcpy(nonce[0], k.t.trainer_nonce, AUTH_NONCE_LEN);
	memcpy(nonce[1], k.t.server_nonce, AUTH_NONCE_LEN);
	raw_close(&k.r);
	talker_free(&k);
	bed_wait_connected(&bed, 0);
	opt = trainer_options(bed.uri, -1);
	fails(gs_connect(&opt, &t), EACCES, "wants a key");
	opt.key_file = other;
	fails(gs_connect(&opt, &t), EACCES, "is wrong");
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
	log_set_level(LOG_ERROR);
	must(dup2(err, STDERR_FILENO) >= 0, "no stderr");

	ssize_t n = pread(fd, log.bytes, sizeof(log.bytes), 0);

	must(n > 0 && (size_t)n < sizeof(log.bytes), "a log of %zd bytes", n);
	log.len = (size_t)n;
	must(memmem(log.bytes, log.len, "proving its key", 15), "the log is not the one");
	has_none_of(&log, (const uint8_t *)key_right, 32, "the key");
	has_none_of(&log, (const uint8_t *)key_wrong, 32, "the other key");
	has_none_of(&log, token, sizeof(token), "a session's token");
	for (int i = 0; i < 2; i++) {
		has_none_of(&log, mac[i], AUTH_MAC_LEN, "a mac");
		has_none_of(&log, nonce[i], AUTH_NONCE_LEN, "a nonce");
	}
	close(fd);
	close(err);
	key_files_end();
}
END_TEST

TCase *access_case(void)
{
	TCase *t = e2e_case("access");

	tcase_add_test(t, both_have_it);
	tcase_add_test(t, the_trainer_has_none);
	tcase_add_test(t, the_trainer_has_another);
	tcase_add_test(t, the_server_has_none);
	tcase_add_test(t, a_key_file_that_is_none);
	tcase_add_test(t, right_by_hand);
	tcase_add_test(t, wrong_by_hand);
	tcase_add_test(t, replayed);
	tcase_add_test(t, out_of_turn);
	tcase_add_test(t, nothing_secret_is_logged);
	return t;
}

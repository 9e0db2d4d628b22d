/* SPDX-License-Identifier: Apache-2.0
 *
 * The codec with bytes from a peer that is broken or worse. Protobuf is built here by hand (tag,
 * length, bytes), so that what is sent need not be what our encoder would send.
 */
#include "wire_samples.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* ---- a writer of protobuf -------------------------------------------------------------------- */

struct pb {
	uint8_t b[8192];
	size_t n;
};

static void pb_varint(struct pb *p, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		p->b[p->n++] = (uint8_t)(v | 0x80);
	p->b[p->n++] = (uint8_t)v;
}

static void pb_uint(struct pb *p, unsigned field, uint64_t v)
{
	pb_varint(p, field << 3);
	pb_varint(p, v);
}

static void pb_bytes(struct pb *p, unsigned field, const void *data, size_t len)
{
	pb_varint(p, field << 3 | 2);
	pb_varint(p, len);
	memcpy(p->b + p->n, data, len);
	p->n += len;
}

static void pb_double(struct pb *p, unsigned field, double v)
{
	pb_varint(p, field << 3 | 1);
	memcpy(p->b + p->n, &v, 8); /* this host is little-endian, as the wire */
	p->n += 8;
}

static void pb_sub(struct pb *p, unsigned field, const struct pb *sub)
{
	pb_bytes(p, field, sub->b, sub->n);
}

enum {
	F_HELLO = 1,
	F_WELCOME = 2,
	F_DECLARE = 3,
	F_GRANT = 4,
	F_ERROR = 10,
	F_CHALLENGE = 14,
	F_PROOF = 15,
	F_SAVED = 17,
};

static const uint8_t long_bytes[64];

static void refused(const struct pb *body, unsigned field, int err, const char *text)
{
	struct wire_msg out, before;
	struct pb msg = {.n = 0};

	pb_sub(&msg, field, body);
	memset(&out, 0xa5, sizeof(out));
	before = out;
	ck_assert_int_eq(wire_decode(msg.b, msg.n, &out), -err);
	ck_assert_msg(strstr(err_text(), text), "\"%s\" is not in \"%s\"", text, err_text());
	ck_assert_mem_eq(&out, &before, sizeof(out));
}

/* A parameter that would pass, but for what the caller adds to it. */
static struct pb good_param(void)
{
	struct pb p = {.n = 0};

	pb_bytes(&p, 1, "w", 1);
	pb_bytes(&p, 2, "\x05", 1); /* packed */
	pb_bytes(&p, 3, "sgd", 3);
	pb_uint(&p, 5, WIRE_INIT_CONSTANT);
	return p;
}

static void param_refused(const struct pb *param, int err, const char *text)
{
	struct pb d = {.n = 0};

	pb_uint(&d, 1, 1);
	pb_sub(&d, 2, param);
	refused(&d, F_DECLARE, err, text);
}

START_TEST(the_hand_written_base_is_valid)
{
	struct pb p = good_param(), d = {.n = 0}, msg = {.n = 0};
	struct wire_msg out;

	pb_uint(&d, 1, 1);
	pb_sub(&d, 2, &p);
	pb_sub(&msg, F_DECLARE, &d);
	ck_assert_msg(wire_decode(msg.b, msg.n, &out) == 0, "%s", err_text());
	ck_assert_uint_eq(out.declare.param[0].dim[0], 5);
}
END_TEST

START_TEST(bad_parameters)
{
	static const uint8_t nine_dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
	static const uint8_t big_dims[] = {0x80, 0x80, 0x80, 0x80, 0x10,
					   0x80, 0x80, 0x80, 0x80, 0x10};
	char long_name[WIRE_NAME_MAX + 2];
	struct pb p;

	memset(long_name, 'x', sizeof(long_name));
	p = good_param(), pb_bytes(&p, 1, long_name, WIRE_NAME_MAX + 1);
	param_refused(&p, EPROTO, "param[0]: name: 128 bytes; the limit is 127");
	p = good_param(), pb_bytes(&p, 1, "a\0b", 3);
	param_refused(&p, EPROTO, "name: byte 1 of 3 is zero");
	p = good_param(), pb_bytes(&p, 1, "", 0);
	param_refused(&p, EPROTO, "name: 0 bytes; at least 1");
	p = good_param(), pb_bytes(&p, 1, "a\nb", 3);
	param_refused(&p, EPROTO, "name: byte 1 is 0x0a");
	p = good_param(), pb_bytes(&p, 1, "__metadata__", 12);
	param_refused(&p, EPROTO, "param[0]: name: __metadata__");
	p = good_param(), pb_bytes(&p, 3, "sgd\0", 4);
	param_refused(&p, EPROTO, "rule: byte 3 of 4 is zero");
	p = good_param(), pb_bytes(&p, 3, long_name, 24);
	param_refused(&p, EPROTO, "rule: 24 bytes; the limit is 23");
	p = good_param(), pb_bytes(&p, 2, nine_dims, 8);
	param_refused(&p, EPROTO, "ndim: 9; the limit is 8");
	p = good_param(), pb_bytes(&p, 2, big_dims, sizeof(big_dims)); /* 2^32 · 2^32 */
	param_refused(&p, EPROTO, "dim[2]: 4294967296; the elements in all");
	p = good_param(), pb_uint(&p, 2, 0);
	param_refused(&p, EPROTO, "dim[1]: 0; must be 1");
	p = good_param(), pb_uint(&p, 5, 77);
	param_refused(&p, EPROTO, "init: 77; known are 1 to 4");
	p = good_param(), pb_uint(&p, 5, 0);
	param_refused(&p, EPROTO, "init: 0; known are 1 to 4");
	p = good_param(), pb_double(&p, 6, NAN);
	param_refused(&p, EPROTO, "init_a: nan");
	p = good_param(), pb_double(&p, 7, -INFINITY);
	param_refused(&p, EPROTO, "init_b: -inf");
}
END_TEST

START_TEST(bad_settings)
{
	struct pb p = good_param(), s = {.n = 0};

	pb_bytes(&s, 1, "lr", 2);
	pb_double(&s, 2, NAN);
	pb_sub(&p, 4, &s);
	param_refused(&p, EPROTO, "setting[0]: lr: nan");

	p = good_param();
	s.n = 0;
	pb_bytes(&s, 1, "l\0r", 3);
	pb_sub(&p, 4, &s);
	param_refused(&p, EPROTO, "setting[0]: name: byte 1 of 3 is zero");

	p = good_param();
	s.n = 0;
	pb_bytes(&s, 1, "lr", 2);
	for (int i = 0; i <= (int)WIRE_SETTINGS_MAX; i++)
		pb_sub(&p, 4, &s);
	param_refused(&p, EPROTO, "settings: 17 of them; the limit is 16");
}
END_TEST

START_TEST(bad_bodies)
{
	struct pb b = {.n = 0}, p = good_param();

	refused(&b, F_DECLARE, EPROTO, "param: none");
	refused(&b, F_ERROR, EPROTO, "code: 0");
	pb_uint(&b, 1, 1); /* last, with no refs */
	refused(&b, F_GRANT, EPROTO, "grant message: weights: missing");
	for (int i = 0; i <= (int)WIRE_PARAMS_MAX; i++)
		pb_sub(&b, 2, &p);
	refused(&b, F_DECLARE, EPROTO, "param: 3 of them; the limit is 2");
	b.n = 0;
	pb_bytes(&b, 7, long_bytes, 16);
	refused(&b, F_WELCOME, EPROTO, "mode: 0");
	pb_uint(&b, 4, UINT32_MAX);
	refused(&b, F_WELCOME, EPROTO, "mode: -1");
	b.n = 0;
	pb_uint(&b, 2, 3); /* zigzag: -2 */
	refused(&b, F_HELLO, EPROTO, "rank: -2");
	b.n = 0;
	pb_bytes(&b, 2, "\xff", 1); /* a place that is no message */
	refused(&b, F_GRANT, EPROTO, "that are not one");
}
END_TEST

/* Bytes of a fixed length: none, one less, one more, and the length of its neighbour. */
static void length_refused(unsigned msg, unsigned field, size_t want, bool optional,
			   const char *name)
{
	const size_t lengths[] = {0, 1, want - 1, want + 1, want == 32 ? 16 : 32};
	struct pb b;

	for (unsigned i = optional ? 1 : 0; i < 5; i++) {
		char text[80];

		b.n = 0;
		if (msg == F_WELCOME && field != 7)
			pb_bytes(&b, 7, long_bytes, 16);
		pb_bytes(&b, field, long_bytes, lengths[i]);
		snprintf(text, sizeof(text), "%s: %zu bytes; must be %zu%s", name, lengths[i],
			 want, optional ? ", or none" : "");
		refused(&b, msg, EPROTO, text);
	}
}

START_TEST(bad_lengths)
{
	length_refused(F_HELLO, 4, WIRE_NONCE_LEN, true, "hello message: nonce");
	length_refused(F_HELLO, 5, WIRE_SESSION_LEN, true, "hello message: session");
	length_refused(F_WELCOME, 7, WIRE_SESSION_LEN, false, "welcome message: session");
	length_refused(F_WELCOME, 9, WIRE_MAC_LEN, true, "welcome message: mac");
	length_refused(F_CHALLENGE, 1, WIRE_NONCE_LEN, false, "challenge message: nonce");
	length_refused(F_PROOF, 1, WIRE_MAC_LEN, false, "proof message: mac");
}
END_TEST

START_TEST(bad_answers_to_a_save)
{
	static char text[WIRE_TEXT_MAX + 1];
	struct pb b = {.n = 0};

	memset(text, 'x', sizeof(text));
	pb_uint(&b, 2, 13);
	refused(&b, F_SAVED, EPROTO, "saved message: code: 13; known are 1 to 12");
	b.n = 0;
	pb_uint(&b, 2, UINT32_MAX);
	refused(&b, F_SAVED, EPROTO, "saved message: code: -1");
	b.n = 0;
	pb_bytes(&b, 3, "a\x1b", 2);
	refused(&b, F_SAVED, EPROTO, "saved message: text: byte 1 is the control character 0x1b");
	b.n = 0;
	pb_bytes(&b, 3, text, sizeof(text));
	refused(&b, F_SAVED, EPROTO, "saved message: text: 512 bytes; the limit is 511");
}
END_TEST

START_TEST(unknown_kind)
{
	struct pb msg = {.n = 0};
	struct wire_msg out;

	ck_assert_int_eq(wire_decode(NULL, 0, &out), -EPROTO);
	ck_assert_msg(strstr(err_text(), "kind: 0"), "%s", err_text());
	pb_bytes(&msg, 18, "", 0);
	ck_assert_int_eq(wire_peek(msg.b, msg.n), 0);
	ck_assert_int_eq(wire_decode(msg.b, msg.n, &out), -EPROTO);
	ck_assert_msg(strstr(err_text(), "kind: 0"), "%s", err_text());
}
END_TEST

START_TEST(two_kinds_in_one)
{
	/* Protobuf lets the last one count; but a look at the first byte has to tell the kind. */
	struct pb msg = {.n = 0}, start = {.n = 0};
	struct wire_msg out;

	pb_uint(&start, 1, 9);
	pb_bytes(&msg, F_HELLO, "", 0);
	pb_sub(&msg, 8, &start);
	ck_assert_int_eq(wire_peek(msg.b, msg.n), WIRE_HELLO);
	ck_assert_int_eq(wire_decode(msg.b, msg.n, &out), -EPROTO);
	ck_assert_msg(strstr(err_text(), "begins as kind 1 and ends as 8"), "%s", err_text());
}
END_TEST

START_TEST(unknown_fields_are_skipped)
{
	struct pb msg = {.n = 0}, ready = {.n = 0};
	struct wire_msg out;

	pb_uint(&ready, 1, 1);
	pb_uint(&ready, 99, 5);
	pb_sub(&msg, 6, &ready);
	ck_assert_int_eq(wire_decode(msg.b, msg.n, &out), 0);
	ck_assert(out.ready.init);
}
END_TEST

START_TEST(too_long)
{
	static uint8_t buf[WIRE_MSG_MAX + 1];
	struct wire_msg out;

	ck_assert_int_eq(wire_decode(buf, sizeof(buf), &out), -EPROTO);
	ck_assert_msg(strstr(err_text(), "4097 bytes; the limit is 4096"), "%s", err_text());
}
END_TEST

START_TEST(memory_bombs)
{
	/* Two bytes on the wire, some fifty in memory. */
	struct pb msg = {.n = 0}, grant = {.n = 0};
	struct wire_msg out;

	while (grant.n < WIRE_MSG_MAX - 100)
		pb_bytes(&grant, 2, "", 0);
	refused(&grant, F_GRANT, ENOMEM, "unpack to more than");

	/* Unknown fields are kept by protobuf-c. */
	while (msg.n < WIRE_MSG_MAX - 10)
		pb_uint(&msg, 99, 1);
	ck_assert_int_eq(wire_decode(msg.b, msg.n, &out), -ENOMEM);

	/* A length that the message doesn't have. */
	msg.n = 0;
	pb_varint(&msg, F_HELLO << 3 | 2);
	pb_varint(&msg, UINT32_MAX);
	ck_assert_int_eq(wire_decode(msg.b, msg.n, &out), -EPROTO);
}
END_TEST

/* ---- our own messages, damaged --------------------------------------------------------------- */

/* Decodes from a heap block of exactly that length, so that ASan sees one byte too far. A message
 * that passes must also encode again: then it keeps every bound. */
static void refused_or_valid(const uint8_t *bytes, size_t len)
{
	struct wire_msg out;
	uint8_t again[2 * WIRE_MSG_MAX], *exact = malloc(len ? len : 1);

	memcpy(exact, bytes, len);
	int rc = wire_decode(exact, len, &out);
	if (rc == 0)
		ck_assert_msg(wire_encode(&out, again, sizeof(again)) > 0, "%s", err_text());
	else
		ck_assert_msg(rc == -EPROTO || rc == -ENOMEM, "%d", rc);
	free(exact);
}

START_TEST(every_truncation)
{
	struct wire_msg m = sample(_i);
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(&m, buf, sizeof(buf));

	for (int n = 0; n < len; n++)
		refused_or_valid(buf, (size_t)n);
}
END_TEST

static uint64_t random_state;

static uint64_t random_next(void)
{
	random_state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t z = random_state;
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

START_TEST(every_single_bit)
{
	struct wire_msg m = sample(_i);
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(&m, buf, sizeof(buf));

	for (int bit = 0; bit < 8 * len; bit++) {
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		refused_or_valid(buf, (size_t)len);
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

START_TEST(many_random_damages)
{
	struct wire_msg m = sample(_i);
	uint8_t good[WIRE_MSG_MAX], buf[WIRE_MSG_MAX];
	size_t len = (size_t)wire_encode(&m, good, sizeof(good));

	random_state = (uint64_t)_i;
	for (int round = 0; round < 3000; round++) {
		memcpy(buf, good, len);
		for (uint64_t k = 1 + random_next() % 8; k > 0; k--) {
			uint64_t r = random_next();

			if (r & 1)
				buf[(r >> 8) % len] ^= (uint8_t)(1 << (r >> 2) % 8);
			else
				buf[(r >> 8) % len] = (uint8_t)(r >> 1);
		}
		refused_or_valid(buf, len);
	}
}
END_TEST

START_TEST(pure_noise)
{
	uint8_t buf[WIRE_MSG_MAX];

	random_state = 4711;
	for (int round = 0; round < 20000; round++) {
		size_t len = random_next() % 200;

		for (size_t i = 0; i < len; i++)
			buf[i] = (uint8_t)random_next();
		refused_or_valid(buf, len);
	}
}
END_TEST

Suite *wire_hostile_suite(void)
{
	Suite *s = suite_create("wire, hostile");
	TCase *c = tcase_create("hand-written"), *d = tcase_create("damaged");

	tcase_add_test(c, the_hand_written_base_is_valid);
	tcase_add_test(c, bad_parameters);
	tcase_add_test(c, bad_settings);
	tcase_add_test(c, bad_bodies);
	tcase_add_test(c, bad_lengths);
	tcase_add_test(c, bad_answers_to_a_save);
	tcase_add_test(c, unknown_kind);
	tcase_add_test(c, two_kinds_in_one);
	tcase_add_test(c, unknown_fields_are_skipped);
	tcase_add_test(c, too_long);
	tcase_add_test(c, memory_bombs);
	suite_add_tcase(s, c);
	tcase_set_timeout(d, 60);
	tcase_add_loop_test(d, every_truncation, 0, SAMPLES);
	tcase_add_loop_test(d, every_single_bit, 0, SAMPLES);
	tcase_add_loop_test(d, many_random_damages, 0, SAMPLES);
	tcase_add_test(d, pure_noise);
	suite_add_tcase(s, d);
	return s;
}

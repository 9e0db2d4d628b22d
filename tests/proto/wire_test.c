/* SPDX-License-Identifier: Apache-2.0
 *
 * The codec with messages of our own: what goes in comes out, everything fits, and every bound of
 * wire.h is held on the way out.
 */
#include "wire_samples.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

START_TEST(round_trip)
{
	struct wire_msg in = sample(_i), out;
	uint8_t buf[WIRE_MSG_MAX];

	memset(&out, 0xa5, sizeof(out));
	int len = wire_encode(&in, buf, sizeof(buf));
	ck_assert_msg(len > 0, "sample %d: %s", _i, err_text());
	ck_assert_int_eq(wire_decode(buf, (size_t)len, &out), 0);
	/* Samples are built from zeroed structs; decoding zeroes too. So whole structs compare. */
	ck_assert_int_eq(out.kind, in.kind);
	ck_assert_mem_eq(&out, &in, sizeof(in));
}
END_TEST

START_TEST(samples_cover_every_kind)
{
	unsigned seen = 0;

	for (int i = 0; i < SAMPLES; i++)
		seen |= 1u << sample(i).kind;
	for (int k = WIRE_HELLO; k <= WIRE_SAVED; k++)
		ck_assert_msg(seen >> k & 1, "no sample of %s", wire_kind_name(k));
}
END_TEST

START_TEST(longest_declare_fits)
{
	struct wire_msg m = sample_longest_declare();
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(&m, buf, sizeof(buf));

	ck_assert_msg(len > 0, "%s", err_text());
	/* Room for fields to come: a third of a message. */
	ck_assert_int_le(len, (int)WIRE_MSG_MAX * 2 / 3);
}
END_TEST

START_TEST(a_short_buffer_is_said)
{
	struct wire_msg m = sample(_i);
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(&m, buf, sizeof(buf));

	memset(buf, 0xa5, sizeof(buf));
	ck_assert_int_eq(wire_encode(&m, buf, (size_t)len - 1), -EMSGSIZE);
	for (size_t i = 0; i < sizeof(buf); i++)
		ck_assert_uint_eq(buf[i], 0xa5);
	ck_assert_int_eq(wire_encode(&m, buf, (size_t)len), len);
}
END_TEST

/* ---- bounds ---------------------------------------------------------------------------------- */

struct bound {
	const char *text; /* in the error */
	void (*spoil)(struct wire_msg *m);
};

static struct wire_param *spoil_param(struct wire_msg *m)
{
	*m = sample(4);
	return &m->declare.param[1];
}

#define SPOIL(name, ...)                     \
	static void name(struct wire_msg *m) \
	{                                    \
		__VA_ARGS__;                 \
	}

SPOIL(kind_zero, m->kind = 0)
SPOIL(kind_next, m->kind = WIRE_SAVED + 1)
SPOIL(hello_rank, *m = sample(0); m->hello.rank = -2)
SPOIL(hello_name, *m = sample(0); strcpy(m->hello.name, "a\x1b[2J"))
SPOIL(hello_open, *m = sample(0); memset(m->hello.name, 'x', sizeof(m->hello.name)))
SPOIL(mode_zero, *m = sample(2); m->welcome.mode = 0)
SPOIL(mode_four, *m = sample(2); m->welcome.mode = 4)
SPOIL(ssp_zero, *m = sample(16); m->welcome.staleness = 0)
SPOIL(async_stale, *m = sample(2); m->welcome.staleness = 1)
SPOIL(odd_schedule, strcpy(spoil_param(m)->schedule, "a\x1b"))
SPOIL(grad_three, spoil_param(m)->grad_type = 3)
SPOIL(weight_three, spoil_param(m)->weight_type = 3)
SPOIL(reduce_three, spoil_param(m)->reduce = 3)
SPOIL(nonfinite_three, spoil_param(m)->nonfinite = 3)
SPOIL(storage_three, spoil_param(m)->storage = 3)
SPOIL(dense_rows, spoil_param(m)->pull_rows = 1)
SPOIL(table_dims, *m = sample(19); m->declare.param[0].ndim = 1)
SPOIL(table_init, *m = sample(19); m->declare.param[0].init = WIRE_INIT_TRAINER)
SPOIL(no_slot_rows, *m = sample(19); m->declare.param[0].slot_rows = 0)
SPOIL(few_push_rows, *m = sample(19); m->declare.param[0].push_rows = 4095)
SPOIL(long_rows, *m = sample(19); m->declare.param[0].dim[0] = 1;
      m->declare.param[0].dim[1] = UINT64_C(1) << 39; m->declare.param[0].slot_rows = 1;
      m->declare.param[0].push_rows = 2)
SPOIL(huge_pull_rows, *m = sample(19); m->declare.param[0].pull_rows = UINT32_MAX)
SPOIL(admit_table, *m = sample(19); m->declare.param[0].storage = WIRE_TABLE)
SPOIL(nan_rate, *m = sample(17); m->set_rate.rate = NAN)
SPOIL(less_rate, *m = sample(17); m->set_rate.rate = -1)
SPOIL(notice_code, *m = sample(20); m->notice.code = 0)
SPOIL(notice_text, *m = sample(20); m->notice.text[0] = 1)
SPOIL(no_params, *m = sample(3); m->declare.n = 0)
SPOIL(many_params, *m = sample(3); m->declare.n = WIRE_PARAMS_MAX + 1)
SPOIL(no_name, spoil_param(m)->name[0] = 0)
SPOIL(odd_name, strcpy(spoil_param(m)->name, "caf\xc3\xa9"))
SPOIL(open_name, memset(spoil_param(m)->name, 'x', WIRE_NAME_MAX + 1))
SPOIL(no_dims, spoil_param(m)->ndim = 0)
SPOIL(many_dims, spoil_param(m)->ndim = WIRE_DIMS_MAX + 1)
SPOIL(zero_dim, spoil_param(m)->dim[0] = 0)
SPOIL(huge_dim, spoil_param(m)->dim[0] = UINT64_C(1) << 40)
SPOIL(max_dim, spoil_param(m)->dim[0] = UINT64_MAX)
SPOIL(product, struct wire_param *p = spoil_param(m); p->ndim = 2; p->dim[0] = p->dim[1] = 1 << 20)
/* 2^32 · 2^32 is 0 in 64 bits. */
SPOIL(product_wraps, struct wire_param *p = spoil_param(m); p->ndim = 2;
      p->dim[0] = p->dim[1] = UINT64_C(1) << 32)
SPOIL(no_rule, spoil_param(m)->rule[0] = 0)
SPOIL(open_rule, memset(spoil_param(m)->rule, 'x', 24))
SPOIL(many_settings, spoil_param(m)->n_settings = WIRE_SETTINGS_MAX + 1)
SPOIL(no_setting_name, spoil_param(m)->n_settings = 1)
SPOIL(open_setting_name, struct wire_param *p = spoil_param(m); p->n_settings = 1;
      memset(p->setting[0].name, 'x', 24))
SPOIL(nan_setting, spoil_param(m); m->declare.param[0].setting[1].value = NAN)
SPOIL(inf_setting, spoil_param(m); m->declare.param[0].setting[1].value = -INFINITY)
SPOIL(init_zero, spoil_param(m)->init = 0)
SPOIL(init_five, spoil_param(m)->init = WIRE_INIT_NORMAL + 1)
SPOIL(nan_init_a, spoil_param(m)->init_a = NAN)
SPOIL(inf_init_b, spoil_param(m)->init_b = INFINITY)
SPOIL(uniform_order, spoil_param(m); m->declare.param[0].init_b = -1)
SPOIL(deviation, struct wire_param *p = spoil_param(m); p->init = WIRE_INIT_NORMAL; p->init_b = -1)
SPOIL(no_places, *m = sample(7); m->grant.n = 0)
SPOIL(many_places, *m = sample(7); m->grant.n = WIRE_PARAMS_MAX + 1)
SPOIL(code_zero, *m = sample(15); m->error.code = 0)
SPOIL(code_next, *m = sample(15); m->error.code = WIRE_E_STORE + 1)
SPOIL(saved_code, *m = sample(27); m->saved.code = 0)
SPOIL(saved_code_next, *m = sample(27); m->saved.code = WIRE_E_STORE + 1)
SPOIL(saved_text, *m = sample(27); m->saved.text[511 - 1] = '\r')
SPOIL(saved_open, *m = sample(26); memset(m->saved.text, 'x', sizeof(m->saved.text)))
SPOIL(text_bell, *m = sample(15); m->error.text[3] = '\a')
SPOIL(text_open, *m = sample(15); memset(m->error.text, 'x', sizeof(m->error.text)))

static const struct bound bounds[] = {
    {"kind: 0; known are 1 to 17", kind_zero},
    {"kind: 18; known are 1 to 17", kind_next},
    {"hello message: rank: -2; must be -1 at least", hello_rank},
    {"hello message: name: byte 1 is 0x1b; printable", hello_name},
    {"hello message: name: 128 bytes or more; the limit is 127", hello_open},
    {"welcome message: mode: 0; known are 1 to 3", mode_zero},
    {"welcome message: mode: 4; known are 1 to 3", mode_four},
    {"welcome message: staleness: 0; it is 1 at least in ssp mode, and 0 elsewhere", ssp_zero},
    {"welcome message: staleness: 1; it is 1 at least in ssp mode, and 0 elsewhere", async_stale},
    {"\"b\": schedule: byte 1 is the control character 0x1b", odd_schedule},
    {"grad_type: 3; known are 0 to 2", grad_three},
    {"weight_type: 3; known are 0 to 2", weight_three},
    {"reduce: 3; known are 0 to 2", reduce_three},
    {"nonfinite: 3; known are 0 to 2", nonfinite_three},
    {"storage: 3; known are 0 to 2", storage_three},
    {"only tables have them", dense_rows},
    {"ndim: 1; a table has 2", table_dims},
    {"init: a table's first values are constant, uniform or normal", table_init},
    {"slot_rows: 0; must be 1 to 67108864", no_slot_rows},
    {"push_rows: 4095; must be 4096 to 67108864", few_push_rows},
    {"push_rows: 2 rows of 549755813888 elements; the limit is 1099511627775", long_rows},
    {"pull_rows: 4294967295; must be 1 to 67108864", huge_pull_rows},
    {"only hashed tables have them", admit_table},
    {"set_rate message: rate: nan; must be a finite number", nan_rate},
    {"set_rate message: rate: -1; must be 0 at least", less_rate},
    {"notice message: code: 0; known are 1 to 12", notice_code},
    {"notice message: text: byte 0 is the control character 0x01", notice_text},
    {"declare message: param: none, in a message that is not the last", no_params},
    {"declare message: param: 3 of them; the limit is 2", many_params},
    {"declare message: param[1]: name: 0 bytes; at least 1", no_name},
    {"name: byte 3 is 0xc3; printable ASCII only", odd_name},
    {"name: 128 bytes or more; the limit is 127", open_name},
    {"param[1]: \"b\": ndim: 0; must be 1 to 8", no_dims},
    {"ndim: 9; must be 1 to 8", many_dims},
    {"dim[0]: 0; must be 1 at least", zero_dim},
    {"dim[0]: 1099511627776; the elements in all must be fewer than 2^40", huge_dim},
    {"dim[0]: 18446744073709551615; the elements in all", max_dim},
    {"dim[1]: 1048576; the elements in all must be fewer than 2^40", product},
    {"dim[1]: 4294967296; the elements in all must be fewer than 2^40", product_wraps},
    {"rule: 0 bytes; at least 1", no_rule},
    {"rule: 24 bytes or more; the limit is 23", open_rule},
    {"settings: 17 of them; the limit is 16", many_settings},
    {"setting[0]: name: 0 bytes; at least 1", no_setting_name},
    {"setting[0]: name: 24 bytes or more; the limit is 23", open_setting_name},
    {"setting[1]: momentum: nan; must be a finite number", nan_setting},
    {"setting[1]: momentum: -inf; must be a finite number", inf_setting},
    {"init: 0; known are 1 to 4", init_zero},
    {"init: 5; known are 1 to 4", init_five},
    {"init_a: nan; must be a finite number", nan_init_a},
    {"init_b: inf; must be a finite number", inf_init_b},
    {"init_b: -1; uniform needs at least init_a = -0.5", uniform_order},
    {"init_b: -1; a standard deviation is 0 at least", deviation},
    {"grant message: place: none, in a message that is not the last", no_places},
    {"grant message: place: 3 of them; the limit is 2", many_places},
    {"error message: code: 0; known are 1 to 12", code_zero},
    {"error message: code: 13; known are 1 to 12", code_next},
    {"saved message: code: 0; known are 1 to 12", saved_code},
    {"saved message: code: 13; known are 1 to 12", saved_code_next},
    {"saved message: text: byte 510 is the control character 0x0d", saved_text},
    {"saved message: text: 512 bytes or more; the limit is 511", saved_open},
    {"error message: text: byte 3 is the control character 0x07", text_bell},
    {"error message: text: 512 bytes or more; the limit is 511", text_open},
};

START_TEST(encoding_holds_the_bounds)
{
	struct wire_msg m = sample(0);
	uint8_t buf[WIRE_MSG_MAX];

	bounds[_i].spoil(&m);
	ck_assert_int_eq(wire_encode(&m, buf, sizeof(buf)), -EINVAL);
	ck_assert_msg(strstr(err_text(), bounds[_i].text), "\"%s\" is not in \"%s\"",
		      bounds[_i].text, err_text());
}
END_TEST

/* What is left out of a hello or a welcome is told from what is all zeros. */
START_TEST(left_out_is_not_zero)
{
	struct wire_msg m = sample(0), out;
	uint8_t buf[WIRE_MSG_MAX];

	for (int bits = 0; bits < 4; bits++) {
		m.hello.has_nonce = bits & 1;
		m.hello.resumes = bits & 2;
		int len = wire_encode(&m, buf, sizeof(buf));

		ck_assert_int_eq(wire_decode(buf, (size_t)len, &out), 0);
		ck_assert_int_eq(out.hello.has_nonce, bits & 1);
		ck_assert_int_eq(out.hello.resumes, bits >> 1);
	}
	m = sample(2);
	for (int mac = 0; mac < 2; mac++) {
		m.welcome.has_mac = mac;
		int len = wire_encode(&m, buf, sizeof(buf));

		ck_assert_int_eq(wire_decode(buf, (size_t)len, &out), 0);
		ck_assert_int_eq(out.welcome.has_mac, mac);
	}
}
END_TEST

START_TEST(every_kind_is_seen_by_its_first_bytes)
{
	struct wire_msg m = sample(_i);
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(&m, buf, sizeof(buf));

	/* From 16 on a kind takes two bytes. */
	ck_assert_int_eq(wire_peek(buf, (size_t)len), m.kind);
	ck_assert_int_eq(wire_peek(buf, m.kind < 16 ? 1 : 2), m.kind);
	ck_assert_int_eq(wire_peek(buf, m.kind < 16 ? 0 : 1), 0);
}
END_TEST

START_TEST(largest_tensor_passes)
{
	struct wire_msg m = sample(4);
	uint8_t buf[WIRE_MSG_MAX];

	m.declare.param[1].dim[0] = (UINT64_C(1) << 40) - 1;
	ck_assert_int_gt(wire_encode(&m, buf, sizeof(buf)), 0);
}
END_TEST

START_TEST(names_and_errnos)
{
	ck_assert_str_eq(wire_kind_name(WIRE_INIT_DONE), "init_done");
	ck_assert_str_eq(wire_kind_name(0), "unknown");
	ck_assert_str_eq(wire_kind_name(WIRE_CHALLENGE), "challenge");
	ck_assert_str_eq(wire_kind_name(WIRE_PROOF), "proof");
	ck_assert_str_eq(wire_kind_name(WIRE_SAVE), "save");
	ck_assert_str_eq(wire_kind_name(WIRE_SAVED), "saved");
	ck_assert_str_eq(wire_kind_name(WIRE_SAVED + 1), "unknown");
	ck_assert_int_eq(wire_error_errno(WIRE_E_VERSION), -EPROTONOSUPPORT);
	ck_assert_int_eq(wire_error_errno(WIRE_E_RANK), -EEXIST);
	ck_assert_int_eq(wire_error_errno(WIRE_E_RANGE), -ERANGE);
	ck_assert_int_eq(wire_error_errno(WIRE_E_FULL), -EUSERS);
	ck_assert_int_eq(wire_error_errno(WIRE_E_MISMATCH), -EINVAL);
	ck_assert_int_eq(wire_error_errno(WIRE_E_MEMORY), -ENOMEM);
	ck_assert_int_eq(wire_error_errno(WIRE_E_PROTOCOL), -EPROTO);
	ck_assert_int_eq(wire_error_errno(WIRE_E_SHUTDOWN), -ESHUTDOWN);
	ck_assert_int_eq(wire_error_errno(WIRE_E_INTERNAL), -EIO);
	ck_assert_int_eq(wire_error_errno(WIRE_E_CAPACITY), -ENOSPC);
	ck_assert_int_eq(wire_error_errno(WIRE_E_ACCESS), -EACCES);
	ck_assert_int_eq(wire_error_errno(WIRE_E_STORE), -EIO);
	ck_assert_int_eq(wire_error_errno(WIRE_E_PROTOCOL), -EPROTO);
}
END_TEST

Suite *wire_suite(void)
{
	Suite *s = suite_create("wire");
	TCase *c = tcase_create("own messages");

	tcase_add_loop_test(c, round_trip, 0, SAMPLES);
	tcase_add_test(c, samples_cover_every_kind);
	tcase_add_test(c, longest_declare_fits);
	tcase_add_loop_test(c, a_short_buffer_is_said, 0, SAMPLES);
	tcase_add_loop_test(c, encoding_holds_the_bounds, 0, sizeof(bounds) / sizeof(bounds[0]));
	tcase_add_test(c, left_out_is_not_zero);
	tcase_add_loop_test(c, every_kind_is_seen_by_its_first_bytes, 0, SAMPLES);
	tcase_add_test(c, largest_tensor_passes);
	tcase_add_test(c, names_and_errnos);
	suite_add_tcase(s, c);
	return s;
}

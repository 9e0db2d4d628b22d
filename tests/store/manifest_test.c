/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest: there and back, and every bound of it.
 */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "run.h"
#include "store/manifest.h"
#include "store_samples.h"

static void says(const char *text)
{
	ck_assert_msg(strstr(err_text(), text), "\"%s\" is not in \"%s\"", text, err_text());
}

static void sample_text(char **text)
{
	struct checkpoint_manifest m = sample_manifest(UINT64_MAX);

	ck_assert_msg(checkpoint_manifest_print(&m, text) == 0, "%s", err_text());
}

START_TEST(there_and_back)
{
	struct checkpoint_manifest m = sample_manifest(UINT64_MAX), got;
	char *text, *again;

	sample_text(&text);
	ck_assert_msg(checkpoint_manifest_parse(text, strlen(text), &got) == 0, "%s", err_text());
	ck_assert(got.format == m.format && got.number == m.number && got.written == m.written &&
		  got.mode == m.mode && got.staleness == m.staleness && got.step == m.step &&
		  got.trainers == m.trainers && got.server == m.server && got.params == m.params);
	ck_assert_mem_eq(&got.weights, &m.weights, sizeof(m.weights));
	ck_assert_mem_eq(&got.state, &m.state, sizeof(m.state));
	for (uint32_t i = 0; i < m.params; i++) {
		ck_assert_mem_eq(&got.param[i].decl, &m.param[i].decl, sizeof(m.param[i].decl));
		ck_assert(got.param[i].rate == m.param[i].rate &&
			  got.param[i].updates == m.param[i].updates &&
			  got.param[i].blocks == m.param[i].blocks &&
			  got.param[i].block_elems == m.param[i].block_elems);
	}
	ck_assert_int_eq(checkpoint_manifest_print(&got, &again), 0);
	ck_assert_str_eq(text, again);
	checkpoint_manifest_free(&got);
	free(text);
	free(again);
}
END_TEST

START_TEST(any_byte_changed)
{
	struct checkpoint_manifest got = {.step = 4};
	char *text;

	sample_text(&text);
	size_t len = strlen(text);
	for (size_t i = 0; i < len; i++) {
		text[i] ^= (char)(1 << i % 7);
		ck_assert_msg(checkpoint_manifest_parse(text, len, &got) == -EBADMSG, "byte %zu",
			      i);
		text[i] ^= (char)(1 << i % 7);
		ck_assert_msg(checkpoint_manifest_parse(text, i, &got) == -EBADMSG, "cut at %zu",
			      i);
	}
	ck_assert_int_eq(checkpoint_manifest_parse(text, len + 1, &got), -EBADMSG);
	ck_assert_uint_eq(got.step, 4);
	free(text);
}
END_TEST

/* The sample with `from` made `to`, once, under a checksum of its own. */
static int parse_with(const char *from, const char *to)
{
	struct checkpoint_manifest got = {0};
	char *text, *plain = NULL, *sealed;

	sample_text(&text);
	strcpy(strstr(text, ",\n  \"checksum\""), "\n}");
	char *at = strstr(text, from);
	ck_assert_msg(at != NULL, "'%s' is not in the sample", from);
	ck_assert_int_gt(
	    asprintf(&plain, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)), 0);
	sealed = manifest_seal(plain, strlen(plain));
	ck_assert_ptr_nonnull(sealed);
	int rc = checkpoint_manifest_parse(sealed, strlen(sealed), &got);
	if (rc == 0)
		checkpoint_manifest_free(&got);
	free(text);
	free(plain);
	free(sealed);
	return rc;
}

static const struct {
	const char *from, *to, *text;
} bad[] = {
    {"\"format\": 1", "\"format\": 2", "format: 2; this program knows 1"},
    {"\"format\": 1", "\"format\": 0", "format: 0"},
    {"\"format\": 1", "\"format\": \"1\"", "format: must be"},
    {"\"format\": 1", "\"formal\": 1", "format: must be"},
    {"\"format\": 1,", "\"format\": 1, \"more\": 1,", "12 members; must be 11"},
    {"\"format\": 1,", "\"format\": 1, \"format\": 1,", "duplicate"},
    {"\"number\": 1", "\"number\": 0", "number: 0"},
    {"\"number\": 1", "\"number\": -1", "number: must be"},
    {"\"number\": 1", "\"number\": 1.0", "number: must be"},
    {"\"number\": 1", "\"number\": 9007199254740992", "number: must be"},
    {"\"number\": 1", "\"number\": \"9007199254740991\"", "number: must be"},
    {"\"number\": 1", "\"number\": \"018446744073709551615\"", "number: must be"},
    {"\"number\": 1", "\"number\": \"18446744073709551616\"", "number: must be"},
    {"\"number\": 1", "\"number\": \"1844674407370955161x\"", "number: must be"},
    {"\"number\": 1", "\"number\": 99999999999999999999", "too big"},
    {"\"written\": 1700000000", "\"written\": -1", "written"},
    {"\"written\": 1700000000", "\"written\": \"18446744073709551615\"", "written"},
    {"\"ssp\"", "\"sync\"", "staleness: 3"},
    {"\"ssp\"", "\"async\"", "staleness: 3"},
    {"\"ssp\"", "\"other\"", "mode: 'other'"},
    {"\"ssp\"", "1", "mode: '(no string)'"},
    {"\"staleness\": 3", "\"staleness\": 0", "staleness: 0"},
    {"\"staleness\": 3", "\"staleness\": 4294967296", "staleness: 4294967296"},
    {"\"step\": \"18446744073709551615\"", "\"step\": null", "step: must be"},
    {"\"trainers\": 2", "\"trainers\": 0", "trainers: 0"},
    {"\"trainers\": 2", "\"trainers\": 4294967296", "trainers: 4294967296"},
    {"\"fedcba9876543210\"", "\"0000000000000000\"", "server 0"},
    {"\"fedcba9876543210\"", "\"FEDCBA9876543210\"", "server: must be"},
    {"\"fedcba9876543210\"", "\"fedcba987654321\"", "server: must be"},
    {"\"fedcba9876543210\"", "\"fedcba98765432100\"", "server: must be"},
    {"\"fedcba9876543210\"", "1", "server: must be"},
    /* files: these two, and no other place */
    {"\"weights.safetensors\": {", "\"../weights.safetensors\": {", "weights.safetensors: must be"},
    {"\"weights.safetensors\": {", "\"/etc/passwd\": {", "weights.safetensors: must be"},
    {"\"state.safetensors\": {", "\"state.safetensors\": {}, \"more\": {", "3 members; must be 2"},
    {"\"bytes\": 1,", "\"bytes\": 0,", "bytes: 0"},
    {"\"bytes\": 1,", "\"bytes\": 1, \"path\": \"../x\",", "3 members; must be 2"},
    {"\"xxh3\": \"", "\"xxh3\": \"0", "xxh3: must be a string of 32"},
    /* parameters */
    {"\"params\": [", "\"params\": [1,", "params[0]: it: must be an object"},
    {"\"params\": [", "\"params\": [[],", "params[0]: it: must be an object"},
    {"\"name\": \"words\"", "\"name\": \"hashed\"", "two parameters of this name"},
    {"\"name\": \"words\"", "\"name\": \"\"", "name: 0 bytes"},
    {"\"name\": \"words\"", "\"name\": \"a\\nb\"", "printable ASCII only"},
    {"\"name\": \"words\"", "\"name\": \"a\\u0000b\"", "u0000"},
    {"\"name\": \"words\"", "\"name\": \"a\xc3\xa9\"", "printable ASCII only"},
    {"\"name\": \"words\"",
     "\"name\": "
     "\"0123456789012345678901234567890123456789012345678901234567890123456789012345678901"
     "2345678901234567890123456789012345678901234567\"",
     "name: 128 bytes; the limit is 127"},
    {"\"name\": \"words\"", "\"name\": 1", "name: must be a string"},
    {"\"name\": \"words\",", "\"name\": \"words\", \"more\": 1,", "20 members; must be 19"},
    {"\"table\"", "\"tables\"", "storage: 'tables'"},
    {"\"table\"", "\"dense\"", "only tables have them"},
    {"\"bf16\"", "\"f64\"", "grad_type: 'f64'"},
    {"\"weighted\"", "\"max\"", "reduce: 'max'"},
    {"\"skip\"", "\"ignore\"", "nonfinite: 'ignore'"},
    {"\"adam\"", "\"\"", "rule: 0 bytes"},
    {"\"adam\"", "\"0123456789012345678901234\"", "optimizer: 25 bytes; the limit is 23"},
    {"\"lr\"", "\"\"", "name: 0 bytes"},
    {"\"lr\"", "1", "settings: must be a string"},
    {"\"lr\",", "\"lr\", 1,", "settings: must be pairs"},
    {"\"lr\",", "\"lr\", \"x\"], [\"z\",", "settings: must be a number"},
    {"\"settings\": [", "\"settings\": [1,", "settings: must be pairs"},
    {"\"settings\": []", "\"settings\": {}", "settings: must be an array"},
    {"\"cosine warmup=10", "\"\\u0007", "control character"},
    {"\"rate\": 0.10000000000000001", "\"rate\": -0.1", "rate: -0.1"},
    {"\"rate\": 0.10000000000000001", "\"rate\": 1e999", "real number overflow"},
    {"\"rate\": 0.10000000000000001", "\"rate\": NaN", "invalid token"},
    {"\"rate\": 0.10000000000000001", "\"rate\": \"0.1\"", "rate: must be a number"},
    {"\"uniform\"", "\"gauss\"", "kind: 'gauss'"},
    {"\"uniform\"", "\"trainer\"", "first values are constant"},
    {"\"a\": -0.5", "\"a\": 0.5", "uniform needs at least"},
    {"\"ffffffffffffffff\"", "\"-fffffffffffffff\"", "seed: must be"},
    {"\"init\": {", "\"init\": {\"x\": 1,", "init: has 5 members"},
    {"\"slot_rows\": 2", "\"slot_rows\": 5", "push_rows: 4"},
    {"\"slot_rows\": 2", "\"slot_rows\": 4294967296", "slot_rows: 4294967296"},
    {"\"pull_rows\": 6", "\"pull_rows\": 0", "pull_rows: 0"},
    {"\"admit_after\": 0", "\"admit_after\": 1", "only tables have them"},
    {"\"evict_after\": 0", "\"evict_after\": -1", "evict_after: must be"},
    {"      10,\n        4\n", "10, 5", "5 blocks of 10"},
    {"      10,\n        4\n", "0, 4", "blocks: 0"},
    {"      10,\n        4\n", "10, 4294967296", "blocks: 4294967296"},
    {"      10,\n        4\n", "10", "blocks: must be two"},
    {"\"updates\": 77", "\"updates\": -1", "updates: must be"},
    {"        7,\n        5\n", "", "ndim: 0"},
    {"        7,\n        5\n", "7, 0", "shape: 0; must be 1"},
    {"        7,\n        5\n", "1, 1, 1, 1, 1, 1, 1, 1, 1", "array of 8 numbers at most"},
    {"        7,\n        5\n", "1048576, 1048576", "fewer than 2^40"},
    {"        7,\n        5\n", "\"18446744073709551615\", \"18446744073709551615\"", "2^40"},
};

START_TEST(bad_member)
{
	ck_assert_msg(parse_with(bad[_i].from, bad[_i].to) == -EBADMSG, "%s", bad[_i].to);
	says(bad[_i].text);
}
END_TEST

START_TEST(unchanged_it_is_good)
{
	ck_assert_msg(parse_with("\"format\": 1", "\"format\": 1") == 0, "%s", err_text());
	ck_assert_msg(parse_with("\"rate\": 0.10000000000000001", "\"rate\": 1") == 0, "%s",
		      err_text());
}
END_TEST

START_TEST(not_an_object)
{
	static const char *const texts[] = {"[\n}", "1\n}", "[1\n}",
					    "\n}",  "{\n}", "{\"format\":1\n}"};
	struct checkpoint_manifest got;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char *sealed = manifest_seal(texts[i], strlen(texts[i]));

		ck_assert_int_eq(checkpoint_manifest_parse(sealed, strlen(sealed), &got), -EBADMSG);
		free(sealed);
	}
	ck_assert_int_eq(checkpoint_manifest_parse(NULL, 0, &got), -EBADMSG);
	ck_assert_ptr_null(manifest_seal("{}", 2));
}
END_TEST

static void not_printed(const struct checkpoint_manifest *m, const char *text)
{
	char *out = NULL;

	ck_assert_int_eq(checkpoint_manifest_print(m, &out), -EINVAL);
	says(text);
	ck_assert_ptr_null(out);
}

START_TEST(what_cannot_be_printed)
{
	struct checkpoint_manifest m = sample_manifest(1);
	struct checkpoint_param p = m.param[0], twice[2];

	m.mode = (enum wire_mode)4;
	not_printed(&m, "mode: 4");
	m = sample_manifest(1);
	m.mode = WIRE_SYNC;
	not_printed(&m, "staleness: 3");
	m = sample_manifest(1);
	m.server = 0;
	not_printed(&m, "server 0");
	m = sample_manifest(1);
	m.params = 1;
	m.param = &p;
	p.rate = NAN;
	not_printed(&m, "rate: ");
	p.rate = 1;
	p.decl.setting[0].value = INFINITY;
	not_printed(&m, "must be a finite number");
	p = *sample_manifest(1).param;
	strcpy(p.decl.schedule, "\xff");
	not_printed(&m, "UTF-8");
	twice[0] = twice[1] = *sample_manifest(1).param;
	m.param = twice;
	m.params = 2;
	not_printed(&m, "two parameters");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("manifest");
	TCase *tc = tcase_create("manifest");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, there_and_back);
	tcase_add_test(tc, any_byte_changed);
	tcase_add_loop_test(tc, bad_member, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tc, unchanged_it_is_good);
	tcase_add_test(tc, not_an_object);
	tcase_add_test(tc, what_cannot_be_printed);
	suite_add_tcase(suite, tc);
	return run_all(srunner_create(suite));
}

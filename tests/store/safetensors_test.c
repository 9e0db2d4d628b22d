/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of tensors: what is written can be read, and what is not sound is refused.
 */
#include <check.h>
#include <errno.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "run.h"
#include "store_samples.h"

static const char *dir, *path;

static void setup(void)
{
	dir = sample_dir();
	path = in_dir(dir, "t.safetensors");
}

static void says(const char *text)
{
	ck_assert_msg(strstr(err_text(), text), "\"%s\" is not in \"%s\"", text, err_text());
}

/* ---- ours ------------------------------------------------------------------------------------ */

/* Lengths that are a multiple of 8, 4, 2 and 1, in an order that would not do. */
static const struct store_tensor mixed[] = {
    {.name = "odd bytes", .dtype = STORE_I8, .ndim = 1, .dim = {3}},
    {.name = "scalar", .dtype = STORE_F32, .ndim = 0},
    {.name = "none", .dtype = STORE_BF16, .ndim = 3, .dim = {4, 0, 2}},
    {.name = "halves", .dtype = STORE_F16, .ndim = 2, .dim = {1, 3}},
    {.name = "odd floats", .dtype = STORE_F32, .ndim = 2, .dim = {5, 1}},
    {.name = "doubles", .dtype = STORE_F64, .ndim = 1, .dim = {3}},
    {.name = "\xc3\xa9\"\\\n\t", .dtype = STORE_U16, .ndim = 1, .dim = {4}},
    {.name = "bool", .dtype = STORE_BOOL, .ndim = 1, .dim = {9}},
    {.name = "i64", .dtype = STORE_I64, .ndim = 8, .dim = {1, 1, 1, 1, 1, 1, 1, 2}},
    {.name = "u32", .dtype = STORE_U32, .ndim = 1, .dim = {3}},
    {.name = "i16", .dtype = STORE_I16, .ndim = 1, .dim = {1}},
    {.name = "i32", .dtype = STORE_I32, .ndim = 1, .dim = {2}},
    {.name = "u64", .dtype = STORE_U64, .ndim = 1, .dim = {1}},
    {.name = "u8", .dtype = STORE_U8, .ndim = 1, .dim = {8}},
};
enum { MIXED = sizeof(mixed) / sizeof(mixed[0]) };

static void same_tensor(const struct store_tensor *a, const struct store_tensor *b)
{
	ck_assert_str_eq(a->name, b->name);
	ck_assert(a->dtype == b->dtype && a->ndim == b->ndim);
	ck_assert_mem_eq(a->dim, b->dim, sizeof(a->dim));
}

static void aligned(const struct store_tensor *t)
{
	uint64_t want = 8;

	while (t->len % want)
		want /= 2;
	ck_assert_uint_eq((uintptr_t)t->data % want, 0);
	ck_assert_uint_ge(want, t->len ? store_dtype_size(t->dtype) : 1);
}

static void check_mixed(const struct store_file *f)
{
	ck_assert_uint_eq(store_count(f), MIXED);
	for (int i = 0; i < MIXED; i++) {
		const struct store_tensor *t = store_find(f, mixed[i].name);

		ck_assert_ptr_nonnull(t);
		same_tensor(t, &mixed[i]);
		aligned(t);
		ck_assert(i == 0 || (char *)store_at(f, (uint32_t)i)->data >=
					(char *)store_at(f, (uint32_t)i - 1)->data);
	}
	ck_assert_ptr_null(store_find(f, "no such"));
	ck_assert_ptr_null(store_find(f, ""));
	ck_assert_str_eq(store_metadata(f, "key"), "value \"\xc3\xa9\"");
	ck_assert_str_eq(store_metadata(f, "b"), "");
	ck_assert_ptr_null(store_metadata(f, "c"));
	ck_assert(sample_holds(f, 3));
}

START_TEST(round_trip)
{
	const char *meta[][2] = {{"key", "value \"\xc3\xa9\""}, {"b", ""}};
	struct store_file *f;
	uint64_t made[2], read[2];

	ck_assert_msg(store_create(path, mixed, MIXED, meta, 2, &f) == 0, "%s", err_text());
	sample_fill(f, 3);
	check_mixed(f);
	ck_assert_int_eq(store_sync(f), 0);
	store_hash(f, made);
	store_close(f);
	ck_assert_msg(store_open(path, &f) == 0, "%s", err_text());
	check_mixed(f);
	store_hash(f, read);
	ck_assert_mem_eq(made, read, sizeof(made));
	ck_assert_str_eq(store_path(f), path);
	store_close(f);
}
END_TEST

START_TEST(nothing_in_it)
{
	struct store_file *f;
	const char *key, *value;

	ck_assert_int_eq(store_create(path, NULL, 0, NULL, 0, &f), 0);
	store_close(f);
	ck_assert_int_eq(store_open(path, &f), 0);
	ck_assert_uint_eq(store_count(f), 0);
	ck_assert_ptr_null(store_find(f, "x"));
	ck_assert_ptr_null(store_metadata(f, "x"));
	ck_assert(!store_metadata_at(f, 0, &key, &value));
	ck_assert_uint_eq(store_size(f), 16);
	store_close(f);
}
END_TEST

START_TEST(what_cannot_be_made)
{
	static const struct {
		struct store_tensor t[2];
		uint32_t n;
		const char *text;
	} bad[] = {
	    {{{.name = "a"}, {.name = "a", .dtype = STORE_I8}}, 2, "two of this name"},
	    {{{.name = ""}}, 1, "0 bytes; must be 1"},
	    {{{.name = "__metadata__"}}, 1, "__metadata__"},
	    {{{.name = "\xff\xfe"}}, 1, "UTF-8"},
	    {{{.name = "a", .dtype = STORE_DTYPES}}, 1, "type 13"},
	    {{{.name = "a", .ndim = 9}}, 1, "9 dimensions"},
	    {{{.name = "a", .ndim = 1, .dim = {UINT64_C(1) << 53}}}, 1, "2^53"},
	    {{{.name = "a", .ndim = 3, .dim = {1u << 31, 1u << 31, 16}}}, 1, "2^53"},
	    {{{.name = "a", .dtype = STORE_I8, .ndim = 2, .dim = {1 << 30, 1 << 22}},
	      {.name = "b", .dtype = STORE_I8, .ndim = 2, .dim = {1 << 30, 1 << 22}}},
	     2,
	     "in all"},
	};
	struct store_file *f = NULL;
	struct store_tensor full;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(store_create(path, bad[i].t, bad[i].n, NULL, 0, &f), -EINVAL);
		says(bad[i].text);
		ck_assert(!file_exists(path));
	}
	memset(&full, 'x', sizeof(full)); /* a name without an end */
	ck_assert_int_eq(store_create(path, &full, 1, NULL, 0, &f), -EINVAL);
	file_write(path, "mine", 4);
	ck_assert_int_eq(store_create(path, mixed, MIXED, NULL, 0, &f), -EEXIST);
	struct bytes mine = file_read(path);
	ck_assert_uint_eq(mine.n, 4);
	free(mine.b);
	ck_assert_int_eq(store_create(in_dir(dir, "no/t"), mixed, MIXED, NULL, 0, &f), -ENOENT);
	const char *twice[][2] = {{"k", "1"}, {"k", "2"}}, *rubbish[][2] = {{"k", "\xff"}};
	ck_assert_int_eq(store_create(in_dir(dir, "m"), NULL, 0, twice, 2, &f), -EINVAL);
	ck_assert_int_eq(store_create(in_dir(dir, "m"), NULL, 0, rubbish, 1, &f), -EINVAL);
	ck_assert_ptr_null(f);
}
END_TEST

/* ---- others' --------------------------------------------------------------------------------- */

static void write_file(const char *header, size_t header_len, size_t data_len)
{
	uint64_t n = htole64(header_len);
	char *b = calloc(1, 8 + header_len + data_len);

	memcpy(b, &n, 8);
	memcpy(b + 8, header, header_len);
	for (size_t i = 0; i < data_len; i++)
		b[8 + header_len + i] = (char)i;
	file_write(path, b, 8 + header_len + data_len);
	free(b);
}

static int open_header(const char *header, size_t data_len, struct store_file **f)
{
	write_file(header, strlen(header), data_len);
	return store_open(path, f);
}

START_TEST(written_by_others)
{
	struct store_file *f;
	const char *key, *value;

	/* Any order, no alignment, white space, tensors of no bytes at the same place. */
	ck_assert_msg(
	    open_header("{ \"b\":{\"shape\":[2],\"data_offsets\":[1,9],\"dtype\":\"F32\"},\n"
			"\"e\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[1,1]},"
			"\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
			"\"__metadata__\":{\"format\":\"pt\"}} \n  ",
			9, &f) == 0,
	    "%s", err_text());
	ck_assert_str_eq(store_at(f, 0)->name, "a");
	ck_assert_str_eq(store_at(f, 1)->name, "e");
	ck_assert_str_eq(store_at(f, 2)->name, "b");
	ck_assert_mem_eq(store_find(f, "b")->data, "\1\2\3\4\5\6\7\10", 8);
	ck_assert_str_eq(store_metadata(f, "format"), "pt");
	ck_assert(store_metadata_at(f, 0, &key, &value));
	ck_assert_str_eq(key, "format");
	ck_assert(!store_metadata_at(f, 1, &key, &value));
	store_close(f);
	ck_assert_int_eq(open_header("{}", 0, &f), 0);
	store_close(f);
}
END_TEST

#define T(dtype, shape, from, to) \
	"{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"
#define A(value) "{\"a\":" value "}"

static const struct {
	const char *header;
	size_t data;
	const char *text;
} bad_headers[] = {
    /* not what it must be */
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {"{", 0, "header, byte"},
    {"{}x", 0, "end of file expected"},
    {"{}{}", 0, "end of file expected"},
    {"{\"a\":1}", 0, "must be an object"},
    {"{\"a\":[]}", 0, "must be an object"},
    {"{\"\":" T("\"F32\"", "[1]", "0", "4") "}", 4, "0 bytes; must be 1"},
    {"{\"a\\u0000b\":" T("\"F32\"", "[1]", "0", "4") "}", 4, "NUL"},
    {"{\"a\xff\":" T("\"F32\"", "[1]", "0", "4") "}", 4, "unable to decode"},
    {"{\"__metadata__\":[]}", 0, "__metadata__: must be an object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "'k' is not a string"},
    {"{\"__metadata__\":{\"k\":\"a\\u0000\"}}", 0, "u0000"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "duplicate"},
    /* members */
    {A("{}"), 0, "must be an object of"},
    {A("{\"dtype\":\"F32\",\"shape\":[1]}"), 4, "must be an object of"},
    {A("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":0}"), 4, "must be an object"},
    {A("{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}"), 4, "data_offsets: must be"},
    {A("{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"), 4,
     "duplicate"},
    {"{\"a\":" T("\"U8\"", "[1]", "0", "1") ",\"a\":" T("\"U8\"", "[1]", "1", "2") "}", 2,
     "duplicate"},
    {"{\"a\":" T("\"U8\"", "[1]", "0", "1") ",\"\\u0061\":" T("\"U8\"", "[1]", "1", "2") "}", 2,
     "duplicate"},
    /* dtype */
    {A(T("\"F33\"", "[1]", "0", "4")), 4, "'F33' is not known"},
    {A(T("\"f32\"", "[1]", "0", "4")), 4, "'f32' is not known"},
    {A(T("4", "[1]", "0", "4")), 4, "dtype: must be a string"},
    /* shape */
    {A(T("\"F32\"", "1", "0", "4")), 4, "shape: must be an array"},
    {A(T("\"F32\"", "[-1]", "0", "4")), 4, "shape: must be whole"},
    {A(T("\"F32\"", "[1.0]", "0", "4")), 4, "shape: must be whole"},
    {A(T("\"F32\"", "[\"1\"]", "0", "4")), 4, "shape: must be whole"},
    {A(T("\"F32\"", "[null]", "0", "4")), 4, "shape: must be whole"},
    {A(T("\"F32\"", "[9223372036854775808]", "0", "4")), 4, "too big"},
    {A(T("\"F32\"", "[18446744073709551617]", "0", "4")), 4, "too big"},
    {A(T("\"F32\"", "[4611686018427387904,4]", "0", "4")), 4, "more than 2^63 - 1"},
    {A(T("\"F32\"", "[4294967296,4294967296]", "0", "0")), 0, "more than 2^63 - 1"},
    {A(T("\"F32\"", "[2305843009213693952]", "0", "0")), 0, "more than 2^63 - 1"},
    {A(T("\"F32\"", "[0,4294967296,4294967296]", "0", "0")), 0, "more than 2^63 - 1"},
    {A(T("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "0", "4")), 4, "9 dimensions"},
    /* offsets */
    {A("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":4}"), 4, "array of two"},
    {A("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}"), 4, "array of two"},
    {A("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}"), 4, "array of two"},
    {A(T("\"F32\"", "[1]", "-4", "0")), 4, "data_offsets: must be whole"},
    {A(T("\"F32\"", "[1]", "0", "4.0")), 4, "data_offsets: must be whole"},
    {A(T("\"F32\"", "[1]", "4", "0")), 4, "4 to 0"},
    {A(T("\"F32\"", "[1]", "0", "4")), 3, "the data has 3"},
    {A(T("\"F32\"", "[1]", "9223372036854775804", "9223372036854775807")), 4, "the data has 4"},
    {A(T("\"F32\"", "[1]", "0", "3")), 4, "its shape and type make 4"},
    {A(T("\"F32\"", "[2]", "0", "4")), 4, "its shape and type make 8"},
    {A(T("\"F32\"", "[0]", "0", "4")), 4, "its shape and type make 0"},
    {A(T("\"F16\"", "[]", "0", "4")), 4, "its shape and type make 2"},
    /* places */
    {A(T("\"F32\"", "[1]", "0", "4")), 5, "the data has 5"},
    {A(T("\"F32\"", "[1]", "4", "8")), 8, "hole"},
    {"{}", 1, "the data has 1"},
    {"{\"a\":" T("\"U8\"", "[4]", "0", "4") ",\"b\":" T("\"U8\"", "[4]", "2", "6") "}", 6,
     "overlaps"},
    {"{\"a\":" T("\"U8\"", "[4]", "0", "4") ",\"b\":" T("\"U8\"", "[4]", "0", "4") "}", 4,
     "overlaps"},
    {"{\"a\":" T("\"U8\"", "[4]", "0", "4") ",\"b\":" T("\"U8\"", "[1]", "5", "6") "}", 6, "hole"},
    {"{\"a\":" T("\"U8\"", "[4]", "0", "4") ",\"b\":" T("\"U8\"", "[0]", "2", "2") "}", 4,
     "overlaps"},
};

START_TEST(bad_header)
{
	struct store_file *f = NULL;

	ck_assert_msg(open_header(bad_headers[_i].header, bad_headers[_i].data, &f) == -EBADMSG,
		      "%s", bad_headers[_i].header);
	says(bad_headers[_i].text);
	says(path);
	ck_assert_ptr_null(f);
}
END_TEST

START_TEST(bad_lengths)
{
	static const uint64_t lengths[] = {3,         100000000,  100000001,      UINT32_MAX,
					   INT64_MAX, UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 8};
	char b[10] = "";
	struct store_file *f = NULL;

	memcpy(b + 8, "{}", 2);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint64_t n = htole64(lengths[i]);

		memcpy(b, &n, 8);
		file_write(path, b, 10);
		ck_assert_int_eq(store_open(path, &f), -EBADMSG);
		says("its header would be");
	}
	for (size_t n = 0; n < 8; n++) {
		file_write(path, b, n);
		ck_assert_int_eq(store_open(path, &f), -EBADMSG);
		says("too short");
	}
}
END_TEST

/* A file that could hold it (of nothing but holes on the disk) is not read for it. */
START_TEST(header_of_more_than_the_limit)
{
	struct store_file *f = NULL;
	uint64_t n = htole64(100000001);

	file_write(path, &n, 8);
	ck_assert_int_eq(truncate(path, 200000000), 0);
	ck_assert_int_eq(store_open(path, &f), -EBADMSG);
	says("the limit is 100000000");
	ck_assert_ptr_null(f);
}
END_TEST

/* `n` times `piece`, between `head` and `tail`. */
static int open_long(const char *head, const char *piece, size_t n, const char *tail)
{
	char *text = malloc(strlen(head) + n * strlen(piece) + strlen(tail) + 1), *at = text;
	struct store_file *f = NULL;

	at = stpcpy(at, head);
	while (n--)
		at = stpcpy(at, piece);
	strcpy(at, tail);
	int rc = open_header(text, 0, &f);
	free(text);
	store_close(f);
	return rc;
}

START_TEST(deep_and_long)
{
	ck_assert_int_eq(open_long("{\"a\":", "[", 1000000, ""), -EBADMSG);
	says("depth");
	ck_assert_int_eq(open_long("", "{\"a\":", 1000000, ""), -EBADMSG);
	says("depth");
	ck_assert_int_eq(open_long("{\"", "n", 256, "\":" T("\"U8\"", "[0]", "0", "0") "}"),
			 -EBADMSG);
	says("256 bytes; must be 1 to 255");
	ck_assert_int_eq(open_long("{\"", "n", 255, "\":" T("\"U8\"", "[0]", "0", "0") "}"), 0);
	ck_assert_int_eq(open_long("{", " ", 1000000, "}"), 0);
}
END_TEST

START_TEST(no_file)
{
	struct store_file *f = NULL;

	ck_assert_int_eq(store_open(path, &f), -ENOENT);
	says(path);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(store_open(path, &f), -EBADMSG);
	says("not a regular file");
	ck_assert_int_eq(store_open(dir, &f), -EBADMSG);
	says("not a regular file");
	ck_assert_ptr_null(f);
}
END_TEST

/* ---- broken ---------------------------------------------------------------------------------- */

static struct bytes sound_file(void)
{
	struct store_file *f;

	ck_assert_int_eq(store_create(path, mixed, MIXED, NULL, 0, &f), 0);
	sample_fill(f, 5);
	store_close(f);
	return file_read(path);
}

START_TEST(every_cut)
{
	struct bytes b = sound_file();
	struct store_file *f = NULL;
	uint8_t *longer = calloc(1, b.n + 1);

	for (size_t n = 0; n < b.n; n++) {
		ck_assert_int_eq(truncate(path, (off_t)(b.n - 1 - n)), 0);
		ck_assert_msg(store_open(path, &f) == -EBADMSG, "%zu of %zu", b.n - 1 - n, b.n);
	}
	memcpy(longer, b.b, b.n);
	file_write(path, longer, b.n + 1);
	ck_assert_int_eq(store_open(path, &f), -EBADMSG);
	ck_assert_ptr_null(f);
	free(longer);
	free(b.b);
}
END_TEST

/* There is no checksum in the file: what opens must be readable to its last byte, no more. */
START_TEST(flipped_bits)
{
	struct bytes b = sound_file();
	unsigned opened = 0, sum = 0;

	srand(1);
	for (int i = 0; i < 500; i++) {
		size_t bit = (size_t)rand() % (b.n * 8);
		struct store_file *f;

		b.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
		file_write(path, b.b, b.n);
		if (store_open(path, &f) == 0) {
			opened++;
			for (uint32_t k = 0; k < store_count(f); k++)
				for (uint64_t j = 0; j < store_at(f, k)->len; j++)
					sum += ((uint8_t *)store_at(f, k)->data)[j];
			store_close(f);
		}
		b.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	ck_assert_msg(opened < 400 && sum != 1, "%u opened", opened);
	free(b.b);
}
END_TEST

/* Any byte: the hash is another. */
START_TEST(hash_of_all)
{
	struct bytes b = sound_file();
	uint64_t before[2], after[2];
	struct store_file *f;

	ck_assert_int_eq(store_open(path, &f), 0);
	store_hash(f, before);
	store_close(f);
	b.b[b.n - 1] ^= 1;
	file_write(path, b.b, b.n);
	ck_assert_int_eq(store_open(path, &f), 0);
	store_hash(f, after);
	store_close(f);
	ck_assert(before[0] != after[0] && before[1] != after[1]);
	free(b.b);
}
END_TEST

START_TEST(types)
{
	static const uint64_t sizes[STORE_DTYPES] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1};

	for (int i = 0; i < STORE_DTYPES; i++)
		ck_assert_uint_eq(store_dtype_size((enum store_dtype)i), sizes[i]);
	ck_assert_str_eq(store_dtype_name(STORE_BF16), "BF16");
	ck_assert_uint_eq(store_dtype_size(STORE_DTYPES), 0);
	ck_assert_str_eq(store_dtype_name(STORE_DTYPES), "unknown");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("safetensors");
	TCase *tc = tcase_create("files");

	tcase_add_checked_fixture(tc, setup, sample_clean);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, types);
	tcase_add_test(tc, round_trip);
	tcase_add_test(tc, nothing_in_it);
	tcase_add_test(tc, what_cannot_be_made);
	tcase_add_test(tc, written_by_others);
	tcase_add_loop_test(tc, bad_header, 0, sizeof(bad_headers) / sizeof(bad_headers[0]));
	tcase_add_test(tc, bad_lengths);
	tcase_add_test(tc, header_of_more_than_the_limit);
	tcase_add_test(tc, deep_and_long);
	tcase_add_test(tc, no_file);
	tcase_add_test(tc, every_cut);
	tcase_add_test(tc, flipped_bits);
	tcase_add_test(tc, hash_of_all);
	suite_add_tcase(suite, tc);
	return run_all(srunner_create(suite));
}

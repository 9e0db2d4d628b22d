/* SPDX-License-Identifier: Apache-2.0
 *
 * The data set's integrity, its split, and how batches are shared.
 */
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/err.h"
#include "demo/data.h"
#include "demo/digits.h"

enum { TEXT_MAX = 400000, PIXELS = 561718 };

/* demo/data/README.md */
static const unsigned class_counts[DIGITS_CLASSES] = {178, 182, 177, 183, 181,
						      182, 181, 179, 174, 180};

static struct digits *load(uint64_t seed)
{
	struct digits *d = NULL;

	ck_assert_int_eq(digits_load(seed, &d), 0);
	return d;
}

static struct digits_feed *feed(const struct digits *d, const struct digits_config *config,
				unsigned rank)
{
	struct digits_feed *f = NULL;

	ck_assert_msg(digits_feed_create(d, config, rank, &f) == 0, "%s", err_text());
	return f;
}

START_TEST(file_as_described)
{
	static uint8_t rows[DIGITS_ROWS][DIGITS_FEATURES + 1];
	char *text = malloc(TEXT_MAX);
	unsigned counts[DIGITS_CLASSES] = {0}, pixels = 0;

	ck_assert_int_eq(digits_unpack(digits_file, digits_file_size(), text, TEXT_MAX), 0);
	ck_assert_int_eq(digits_parse(text, rows), 0);
	free(text);
	for (unsigned r = 0; r < DIGITS_ROWS; r++) {
		counts[rows[r][DIGITS_FEATURES]]++;
		for (unsigned c = 0; c < DIGITS_FEATURES; c++)
			pixels += rows[r][c];
	}
	ck_assert_mem_eq(counts, class_counts, sizeof(counts));
	ck_assert_uint_eq(pixels, PIXELS);
}
END_TEST

START_TEST(load_splits_all_rows)
{
	struct digits *d = load(3);
	unsigned counts[DIGITS_CLASSES] = {0};
	double pixels = 0;

	for (unsigned r = 0; r < DIGITS_TRAIN; r++)
		counts[d->train_y[r]]++;
	for (unsigned r = 0; r < DIGITS_TEST; r++)
		counts[d->test_y[r]]++;
	ck_assert_mem_eq(counts, class_counts, sizeof(counts));
	for (unsigned r = 0; r < DIGITS_ROWS; r++)
		for (unsigned c = 0; c < DIGITS_FEATURES; c++) {
			float x =
			    r < DIGITS_TRAIN ? d->train_x[r][c] : d->test_x[r - DIGITS_TRAIN][c];

			if (x < 0 || x > 1)
				ck_abort_msg("row %u, column %u is %g", r, c, (double)x);
			pixels += x;
		}
	ck_assert_double_eq(pixels, PIXELS / 16.0);
	digits_free(d);
}
END_TEST

START_TEST(seed_decides_the_split)
{
	struct digits *a = load(1), *b = load(1), *c = load(2);

	ck_assert_mem_eq(a, b, sizeof(*a));
	ck_assert_mem_ne(a->test_y, c->test_y, sizeof(a->test_y));
	digits_free(a);
	digits_free(b);
	digits_free(c);
	digits_free(NULL);
}
END_TEST

START_TEST(damaged_data)
{
	static uint8_t rows[DIGITS_ROWS][DIGITS_FEATURES + 1];
	size_t size = digits_file_size();
	unsigned char *gz = malloc(size);
	char *text = malloc(TEXT_MAX);

	/* Any flipped byte of the compressed data is found, by its form or by its CRC. The header
	 * (10 bytes and a name) is passed over: its time and name mean nothing. */
	for (size_t at = 64; at < size; at += 997) {
		memcpy(gz, digits_file, size);
		gz[at] ^= 0x10;
		ck_assert_int_eq(digits_unpack(gz, size, text, TEXT_MAX), -EBADMSG);
	}
	ck_assert_int_eq(digits_unpack(digits_file, size - 1, text, TEXT_MAX), -EBADMSG);
	ck_assert_int_eq(digits_unpack(digits_file, 0, text, TEXT_MAX), -EBADMSG);
	/* More than there is room for. */
	ck_assert_int_eq(digits_unpack(digits_file, size, text, 1000), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err_text(), "damaged after 999 bytes"));

	ck_assert_int_eq(digits_parse("", rows), -EBADMSG);
	ck_assert_int_eq(digits_parse("17,", rows), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err_text(), "line 1, column 1: not from 0 to 16"));
	ck_assert_int_eq(digits_parse("1,,", rows), -EBADMSG);
	ck_assert_int_eq(digits_parse("-1,", rows), -EBADMSG);
	ck_assert_int_eq(digits_parse("0000000000000001,", rows), -EBADMSG);
	ck_assert_int_eq(digits_parse("1\n1\n", rows), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err_text(), "line 1: not 65 columns"));
	free(gz);
	free(text);
}
END_TEST

START_TEST(damaged_text)
{
	static uint8_t rows[DIGITS_ROWS][DIGITS_FEATURES + 1];
	char *text = malloc(TEXT_MAX), *last;
	size_t len;

	ck_assert_int_eq(digits_unpack(digits_file, digits_file_size(), text, TEXT_MAX), 0);
	len = strlen(text);
	last = strrchr(text, ',') + 1;
	*last = ':'; /* the character after 9 */
	ck_assert_int_eq(digits_parse(text, rows), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err_text(), "line 1797, column 65: not from 0 to 9"));
	*last = '9';
	ck_assert_int_eq(digits_parse(text, rows), 0);
	strcpy(text + len, "1");
	ck_assert_int_eq(digits_parse(text, rows), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err_text(), "more than 1797 lines"));
	text[len - 1] = 0;
	ck_assert_int_eq(digits_parse(text, rows), -EBADMSG);
	free(text);
}
END_TEST

static const struct {
	unsigned trainers, batch, epochs;
	const char *says;
} refused[] = {
    {1, 0, 1, "a batch of 0 rows: it must have 1 to 1437"},
    {1, 1438, 1, "a batch of 1438 rows"},
    {0, 48, 1, "0 trainers"},
    {49, 48, 1, "49 trainers: with a batch of 48 rows there must be 1 to 48"},
    {5, 48, 1, "a batch of 48 rows can't be shared equally by 5 trainers; 45 can"},
    {1, 48, 0, "0 epochs"},
};

START_TEST(refusals)
{
	struct digits_config c = digits_default();
	struct digits_feed *f;
	struct digits *d = load(1);

	ck_assert_int_eq(digits_check(&c), 0);
	c.trainers = refused[_i].trainers;
	c.batch = refused[_i].batch;
	c.epochs = refused[_i].epochs;
	ck_assert_int_eq(digits_check(&c), -EINVAL);
	ck_assert_msg(strstr(err_text(), refused[_i].says), "%s", err_text());
	ck_assert_int_eq(digits_feed_create(d, &c, 0, &f), -EINVAL);

	c = digits_default();
	ck_assert_int_eq(digits_feed_create(d, &c, 1, &f), -EINVAL);
	ck_assert_str_eq(err_text(), "rank 1: with 1 trainers it must be 0 to 0");
	digits_feed_destroy(NULL);
	digits_free(d);
}
END_TEST

/* digits.h, invariant 2. */
START_TEST(shards_make_the_batch)
{
	static const unsigned counts[] = {2, 3, 4, 6, 8, 48};
	struct digits_config one = digits_default(), c = one;
	struct digits *d = load(one.seed);
	struct digits_feed *whole = feed(d, &one, 0);

	c.trainers = counts[_i];
	ck_assert_uint_eq(digits_shard_rows(&c) * c.trainers, c.batch);
	ck_assert_uint_eq(digits_steps(&c), digits_steps(&one));
	for (unsigned rank = 0; rank < c.trainers; rank++) {
		struct digits_feed *f = feed(d, &c, rank);
		unsigned rows = digits_shard_rows(&c);
		const uint8_t *y, *part_y;
		const float *x, *part_x;

		for (unsigned step = 1; step <= digits_steps(&c); step += 13) {
			digits_feed_step(whole, step, &x, &y);
			digits_feed_step(f, step, &part_x, &part_y);
			ck_assert_mem_eq(part_x, x + rank * rows * DIGITS_FEATURES,
					 rows * DIGITS_FEATURES * sizeof(*x));
			ck_assert_mem_eq(part_y, y + rank * rows, rows);
		}
		digits_feed_destroy(f);
	}
	digits_feed_destroy(whole);
	digits_free(d);
}
END_TEST

/* Which training row this is; -1 if none. Images are all different. */
static int row_of(const struct digits *d, const float *x)
{
	for (int r = 0; r < DIGITS_TRAIN; r++)
		if (!memcmp(d->train_x[r], x, sizeof(d->train_x[r])))
			return r;
	return -1;
}

START_TEST(an_epoch_has_each_row_once)
{
	struct digits_config c = digits_default();
	struct digits *d = load(c.seed);
	struct digits_feed *f = feed(d, &c, 0);
	unsigned in_epoch = digits_steps(&c) / c.epochs;
	int first[2];

	ck_assert_uint_eq(in_epoch, DIGITS_TRAIN / c.batch);
	for (unsigned epoch = 0; epoch < 2; epoch++) {
		bool seen[DIGITS_TRAIN] = {false};

		for (unsigned s = 1; s <= in_epoch; s++) {
			const uint8_t *y;
			const float *x;

			digits_feed_step(f, epoch * in_epoch + s, &x, &y);
			for (unsigned i = 0; i < c.batch; i++) {
				int r = row_of(d, x + i * DIGITS_FEATURES);

				ck_assert(r >= 0 && !seen[r] && d->train_y[r] == y[i]);
				seen[r] = true;
				if (s == 1 && i == 0)
					first[epoch] = r;
			}
		}
	}
	/* Another epoch, another order. */
	ck_assert_int_ne(first[0], first[1]);
	digits_feed_destroy(f);
	digits_free(d);
}
END_TEST

START_TEST(steps_in_any_order)
{
	struct digits_config c = digits_default();
	struct digits *d = load(c.seed);
	struct digits_feed *forward = feed(d, &c, 0), *jumping = feed(d, &c, 0);
	const uint8_t *y, *other_y;
	const float *x, *other_x;

	for (unsigned step = digits_steps(&c); step >= 1; step -= step < 29 ? step : 29) {
		digits_feed_step(jumping, digits_steps(&c) + 1 - step, &x, &y);
		digits_feed_step(jumping, step, &x, &y);
		digits_feed_step(forward, step, &other_x, &other_y);
		ck_assert_mem_eq(x, other_x, c.batch * DIGITS_FEATURES * sizeof(*x));
		ck_assert_mem_eq(y, other_y, c.batch);
	}
	digits_feed_destroy(forward);
	digits_feed_destroy(jumping);
	digits_free(d);
}
END_TEST

Suite *digits_suite(void)
{
	Suite *suite = suite_create("digits");
	TCase *tc = tcase_create("data");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, file_as_described);
	tcase_add_test(tc, load_splits_all_rows);
	tcase_add_test(tc, seed_decides_the_split);
	tcase_add_test(tc, damaged_data);
	tcase_add_test(tc, damaged_text);
	tcase_add_loop_test(tc, refusals, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_loop_test(tc, shards_make_the_batch, 0, 6);
	tcase_add_test(tc, an_epoch_has_each_row_once);
	tcase_add_test(tc, steps_in_any_order);
	suite_add_tcase(suite, tc);
	return suite;
}

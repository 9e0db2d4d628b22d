/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a text, and what its words and sentences become.
 */
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "demo/words_corpus.h"
#include "demo/words_text.h"

/* Of Debian's bible-kjv-text. */
enum { VERSES = 31102, BIBLE_BYTES = 4404412 };

static struct words_corpus *corpus(const char *text, unsigned min_count)
{
	struct words_corpus *c = NULL;

	ck_assert_msg(words_corpus_create(strdup(text), 1, min_count, &c) == 0, "%s", err_text());
	return c;
}

START_TEST(reads_the_bible)
{
	static const char begin[] = "In the beginning God created the heaven and the earth.\n";
	unsigned lines = 0;
	char *text;

	ck_assert_msg(words_text_read(NULL, &text) == 0, "%s", err_text());
	for (const char *p = text; *p; p++)
		lines += *p == '\n';
	ck_assert_uint_eq(lines, VERSES);
	ck_assert_uint_eq(strlen(text), BIBLE_BYTES);
	/* The references are gone. */
	ck_assert_int_eq(strncmp(text + strspn(text, " "), begin, sizeof(begin) - 1), 0);
	ck_assert_ptr_null(strpbrk(text, "0123456789"));
	free(text);
}
END_TEST

START_TEST(reads_a_file)
{
	char name[] = "/tmp/gradslot-text-XXXXXX", *text = NULL;
	int fd = mkstemp(name);

	ck_assert_int_eq(write(fd, "a b\nc", 5), 5);
	ck_assert_int_eq(words_text_read(name, &text), 0);
	ck_assert_str_eq(text, "a b\nc");
	free(text);
	text = NULL;
	ck_assert_int_eq(write(fd, "\0d", 2), 2);
	ck_assert_int_eq(words_text_read(name, &text), -EBADMSG);
	ck_assert_ptr_null(text);
	close(fd);
	unlink(name);
	ck_assert_int_eq(words_text_read(name, &text), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err_text(), name));
	ck_assert_int_eq(words_text_read("/", &text), -EIO);
}
END_TEST

/* Enough lines for some to be held out, and the words of the first ones. */
#define MANY(line) line line line line line line line line line line
static const char text[] = "The dog, the DOG's tail; 'tis \xc3\xa9t\xc3\xa9!\n\n" MANY(
    MANY("the cat--a cat it's\n")) "rare";

START_TEST(numbers_words)
{
	struct words_corpus *c = corpus(text, 5);
	static const char *const words[] = {"cat", "the", "a", "it's"};

	/* By frequency, then by their bytes; the first line is one to train on. */
	ck_assert_uint_eq(c->words, 4);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_str_eq(c->word[i], words[i]);
		ck_assert_int_eq(words_corpus_find(c, words[i]), i);
	}
	ck_assert_int_eq(words_corpus_find(c, "dog"), -1);
	ck_assert_uint_eq(c->count[0], 2 * c->count[2]);
	ck_assert_uint_eq(c->count[1], 2 + c->count[2]);
	ck_assert_uint_eq(c->total, c->count[0] + c->count[1] + c->count[2] + c->count[3]);
	words_corpus_destroy(c);

	c = corpus(text, 1);
	static const char *const all[] = {"tail", "tis", "dog", "dog's", "\xc3\xa9t\xc3\xa9"};
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		ck_assert_msg(words_corpus_find(c, all[i]) >= 0, "no '%s'", all[i]);
	words_corpus_destroy(c);
	words_corpus_destroy(NULL);
}
END_TEST

/* The counts are of the sentences to train on, and every sentence is of one kind. */
START_TEST(holds_some_out)
{
	struct words_corpus *c = corpus(text, 5);
	uint64_t count[4] = {0};
	char *kind = calloc(c->sentences, 1);

	ck_assert_uint_eq(c->n_train + c->n_held, c->sentences);
	for (uint32_t i = 0; i < c->n_train; i++) {
		uint32_t s = c->train[i];

		kind[s] |= 1;
		ck_assert_uint_lt(c->start[s], c->start[s + 1]);
		for (uint32_t t = c->start[s]; t < c->start[s + 1]; t++)
			count[c->token[t]]++;
	}
	for (uint32_t i = 0; i < c->n_held; i++)
		kind[c->held[i]] |= 2;
	for (uint32_t s = 0; s < c->sentences; s++)
		ck_assert(kind[s] == 1 || kind[s] == 2);
	ck_assert_mem_eq(count, c->count, sizeof(count));
	ck_assert_uint_lt(c->n_held, c->n_train / 5);
	free(kind);
	words_corpus_destroy(c);
}
END_TEST

START_TEST(cuts_long_lines)
{
	enum { LONG = 2500, LINES = 60 };
	char *lines = malloc((2 * LONG + 1) * LINES + 1), *p = lines;
	struct words_corpus *c;

	for (unsigned l = 0; l < LINES; l++) {
		for (unsigned i = 0; i < LONG; i++) {
			*p++ = i % 2 ? 'a' : 'b';
			*p++ = ' ';
		}
		*p++ = '\n';
	}
	*p = 0;
	ck_assert_int_eq(words_corpus_create(lines, 1, 1, &c), 0);
	ck_assert_uint_eq(c->sentences, 3 * LINES);
	for (uint32_t s = 0; s < c->sentences; s++)
		ck_assert_uint_eq(c->start[s + 1] - c->start[s],
				  s % 3 < 2 ? WORDS_SENTENCE_MAX : LONG - 2 * WORDS_SENTENCE_MAX);
	words_corpus_destroy(c);
}
END_TEST

START_TEST(refuses)
{
	struct words_corpus *c = NULL;

	ck_assert_int_eq(words_corpus_create(strdup(""), 1, 1, &c), -EINVAL);
	ck_assert_int_eq(words_corpus_create(strdup("a a a a\n"), 1, 1, &c), -EINVAL);
	ck_assert_int_eq(words_corpus_create(strdup("a b a b\n"), 1, 1, &c), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "1 lines"));
	ck_assert_int_eq(words_corpus_create(strdup(text), 1, 1000, &c), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "1000 times"));
	ck_assert_ptr_null(c);
}
END_TEST

Suite *words_text_suite(void)
{
	Suite *suite = suite_create("words_text");
	TCase *tc = tcase_create("text");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, reads_the_bible);
	tcase_add_test(tc, reads_a_file);
	tcase_add_test(tc, numbers_words);
	tcase_add_test(tc, holds_some_out);
	tcase_add_test(tc, cuts_long_lines);
	tcase_add_test(tc, refuses);
	suite_add_tcase(suite, tc);
	return suite;
}

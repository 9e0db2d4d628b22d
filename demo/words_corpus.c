/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits a text into words, counts them, numbers the frequent ones.
 */
#include "demo/words_corpus.h"

#include <errno.h>
#include <search.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "demo/words.h"
#include "kernels/philox.h"

enum { DISTINCT_MAX = 1 << 22 };
static const uint32_t NONE = UINT32_MAX;

/* The text before its vocabulary is known. Its words are numbered as they come. */
struct raw {
	uint64_t seed;
	uint32_t *token, *start; /* as in the corpus */
	uint32_t n, sentences;
	char **word;
	uint64_t *count; /* in training sentences */
	uint32_t *final; /* the word's number in the vocabulary, or NONE */
	uint32_t words;
	struct hsearch_data index;
	bool indexed;
};

/* ---- words of a text --------------------------------------------------------------------- */

struct scan {
	char *at;
	bool line_ended;
};

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c > 127;
}

/* The next word, made lower-case and NUL-terminated in place; NULL at the end. *first: it is the
 * first of its line. */
static char *next_word(struct scan *s, bool *first)
{
	char *p = s->at, *word;

	for (*first = s->line_ended; *p && !is_letter(*p); p++)
		*first |= *p == '\n';
	if (!*p)
		return NULL;
	for (word = p; is_letter(*p) || (*p == '\'' && is_letter(p[1])); p++)
		if (*p >= 'A' && *p <= 'Z')
			*p += 'a' - 'A';
	s->line_ended = *p == '\n';
	s->at = *p ? p + 1 : p;
	*p = 0;
	return word;
}

/* Half of the bytes could be words of one letter: an upper bound for the arrays would be wasteful,
 * so they are counted first. */
static uint32_t count_words(const char *text)
{
	uint32_t n = 0;
	bool inside = false;

	for (const char *p = text; *p; p++) {
		bool in = is_letter(*p) || (inside && *p == '\'' && is_letter(p[1]));

		n += in && !inside;
		inside = in;
	}
	return n;
}

static bool held_out(uint64_t seed, uint32_t sentence)
{
	uint32_t r[4] = {sentence, 0, WORDS_DRAW_SPLIT, 0};

	philox4x32_10(r, seed);
	return (uint64_t)r[0] * WORDS_HELD_OUT >> 32 == 0;
}

/* ---- from the text to raw numbers -------------------------------------------------------- */

static void raw_end(struct raw *raw)
{
	if (raw->indexed)
		hdestroy_r(&raw->index);
	free(raw->token);
	free(raw->start);
	free(raw->word);
	free(raw->count);
	free(raw->final);
}

static int raw_start(struct raw *raw, uint32_t n)
{
	size_t distinct = n < DISTINCT_MAX ? n : DISTINCT_MAX;

	raw->token = calloc((size_t)n + 1, sizeof(*raw->token));
	raw->start = calloc((size_t)n + 1, sizeof(*raw->start));
	raw->word = calloc(distinct + 1, sizeof(*raw->word));
	raw->count = calloc(distinct + 1, sizeof(*raw->count));
	raw->final = calloc(distinct + 1, sizeof(*raw->final));
	/* A third of it stays empty, which keeps its searches short. */
	raw->indexed = hcreate_r(distinct + distinct / 2 + 16, &raw->index);
	if (!raw->token || !raw->start || !raw->word || !raw->count || !raw->final || !raw->indexed)
		return err_set(ENOMEM, "no memory for a text of %u words", n);
	return 0;
}

static int number_of(struct raw *raw, char *word, uint32_t *out)
{
	ENTRY entry = {.key = word, .data = (void *)(uintptr_t)raw->words}, *found;

	if (!hsearch_r(entry, FIND, &found, &raw->index)) {
		if (raw->words == DISTINCT_MAX || !hsearch_r(entry, ENTER, &found, &raw->index))
			return err_set(ENOMEM, "the text has more than %u different words",
				       raw->words);
		raw->word[raw->words++] = word;
	}
	*out = (uint32_t)(uintptr_t)found->data;
	return 0;
}

static int raw_read(struct raw *raw, char *text)
{
	struct scan scan = {.at = text, .line_ended = true};
	bool first, train = false;
	char *word;

	while ((word = next_word(&scan, &first))) {
		uint32_t number = 0;
		int rc = number_of(raw, word, &number);

		if (rc < 0)
			return rc;
		if (first) {
			train = !held_out(raw->seed, raw->sentences);
			raw->start[raw->sentences++] = raw->n;
		}
		raw->token[raw->n++] = number;
		raw->count[number] += train;
	}
	raw->start[raw->sentences] = raw->n;
	return 0;
}

/* ---- from raw numbers to the corpus ------------------------------------------------------ */

static int by_count(const void *va, const void *vb, void *arg)
{
	const uint32_t a = *(const uint32_t *)va, b = *(const uint32_t *)vb;
	const struct raw *raw = arg;

	if (raw->count[a] != raw->count[b])
		return raw->count[a] > raw->count[b] ? -1 : 1;
	return strcmp(raw->word[a], raw->word[b]);
}

static int make_vocabulary(struct words_corpus *c, struct raw *raw, unsigned min_count)
{
	uint32_t *order = calloc(raw->words + 1UL, sizeof(*order)), n = 0;

	for (uint32_t w = 0; order && w < raw->words; w++) {
		raw->final[w] = NONE;
		if (raw->count[w] >= min_count)
			order[n++] = w;
	}
	c->word = calloc(n + 1UL, sizeof(*c->word));
	c->count = calloc(n + 1UL, sizeof(*c->count));
	if (!order || !c->word || !c->count) {
		free(order);
		return err_set(ENOMEM, "no memory for a vocabulary of %u words", n);
	}
	qsort_r(order, n, sizeof(*order), by_count, raw);
	for (uint32_t i = 0; i < n; i++) {
		raw->final[order[i]] = i;
		c->word[i] = raw->word[order[i]];
		c->count[i] = raw->count[order[i]];
		c->total += c->count[i];
	}
	c->words = n;
	free(order);
	return 0;
}

static void add_sentence(struct words_corpus *c, uint32_t from, uint32_t to, bool held)
{
	for (; from < to; from += WORDS_SENTENCE_MAX) {
		uint32_t s = c->sentences++;

		if (held)
			c->held[c->n_held++] = s;
		else
			c->train[c->n_train++] = s;
		c->start[s] = from;
		c->start[s + 1] = to;
	}
}

static int make_sentences(struct words_corpus *c, const struct raw *raw)
{
	size_t most = (size_t)raw->sentences + raw->n / WORDS_SENTENCE_MAX + 1;
	uint32_t n = 0;

	c->token = calloc(raw->n + 1UL, sizeof(*c->token));
	c->start = calloc(most + 1, sizeof(*c->start));
	c->train = calloc(most, sizeof(*c->train));
	c->held = calloc(most, sizeof(*c->held));
	if (!c->token || !c->start || !c->train || !c->held)
		return err_set(ENOMEM, "no memory for a text of %u words", raw->n);
	for (uint32_t s = 0; s < raw->sentences; s++) {
		uint32_t from = n;

		for (uint32_t i = raw->start[s]; i < raw->start[s + 1]; i++)
			if (raw->final[raw->token[i]] != NONE)
				c->token[n++] = raw->final[raw->token[i]];
		add_sentence(c, from, n, held_out(raw->seed, s));
	}
	return 0;
}

static int corpus_check(const struct words_corpus *c, const struct raw *raw, unsigned min_count)
{
	if (c->words < 2)
		return err_set(EINVAL,
			       "%u of the text's %u different words are there %u times: there must "
			       "be 2 at least",
			       c->words, raw->words, min_count);
	if (!c->n_train || !c->n_held)
		return err_set(EINVAL,
			       "of the text's %u lines %u are for training and %u are held out: "
			       "there must be some of both",
			       raw->sentences, c->n_train, c->n_held);
	return 0;
}

int words_corpus_create(char *text, uint64_t seed, unsigned min_count, struct words_corpus **out)
{
	struct words_corpus *c = calloc(1, sizeof(*c));
	struct raw raw = {.seed = seed};
	int rc;

	if (!c) {
		free(text);
		return err_set(ENOMEM, "no memory for a text");
	}
	c->text = text;
	rc = raw_start(&raw, count_words(text));
	if (rc == 0)
		rc = raw_read(&raw, text);
	if (rc == 0)
		rc = make_vocabulary(c, &raw, min_count);
	if (rc == 0)
		rc = make_sentences(c, &raw);
	if (rc == 0)
		rc = corpus_check(c, &raw, min_count);
	raw_end(&raw);
	if (rc < 0)
		words_corpus_destroy(c);
	else
		*out = c;
	return rc;
}

void words_corpus_destroy(struct words_corpus *c)
{
	if (!c)
		return;
	free(c->word);
	free(c->count);
	free(c->token);
	free(c->start);
	free(c->train);
	free(c->held);
	free(c->text);
	free(c);
}

int64_t words_corpus_find(const struct words_corpus *c, const char *word)
{
	for (uint32_t w = 0; w < c->words; w++)
		if (!strcmp(c->word[w], word))
			return w;
	return -1;
}

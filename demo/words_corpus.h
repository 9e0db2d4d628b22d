/* SPDX-License-Identifier: Apache-2.0
 *
 * A text as numbers: its vocabulary, and its sentences as word numbers, some of them held out of
 * training.
 *
 * Invariants:
 *  1. Words are numbered by falling frequency, equal ones by their bytes, so that low rows of the
 *     tables are the busy ones.
 *  2. The vocabulary and its counts are of the training sentences alone. Other words are left out
 * of all sentences; a sentence has at least one word.
 */
#ifndef GS_DEMO_WORDS_CORPUS_H
#define GS_DEMO_WORDS_CORPUS_H

#include <stdint.h>

enum {
	WORDS_SENTENCE_MAX = 1000, /* longer ones are cut */
	WORDS_HELD_OUT = 20,       /* one sentence of so many */
};

struct words_corpus {
	uint32_t words; /* in the vocabulary */
	char **word;    /* text of each, in lower case */
	uint64_t *count;
	uint64_t total; /* the counts' sum: words of the training sentences */

	uint32_t *token; /* word numbers of all sentences, one behind the other */
	uint32_t *start; /* sentence s has the tokens start[s] .. start[s + 1] - 1 */
	uint32_t sentences, *train, *held; /* numbers of sentences */
	uint32_t n_train, n_held;

	char *text; /* what the words point into */
};

/* A sentence is a line; a word is a run of letters (any byte above 127 is one) and of apostrophes
 * between them. Takes `text`, which was malloc'ed, also on failure. Errors: -EINVAL (fewer than two
 * words are frequent enough, or no sentence is left to train on or to hold out), -ENOMEM. */
int words_corpus_create(char *text, uint64_t seed, unsigned min_count, struct words_corpus **out);
void words_corpus_destroy(struct words_corpus *corpus);

/* The number of a word, or -1. Looks through the vocabulary: not for inner loops. */
int64_t words_corpus_find(const struct words_corpus *corpus, const char *word);

#endif

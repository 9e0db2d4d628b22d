/* SPDX-License-Identifier: Apache-2.0
 *
 * The words example: skip-gram with negative sampling (T. Mikolov et al., "Distributed
 * Representations of Words and Phrases and their Compositionality", NIPS 2013). A word's vector is
 * trained to tell the words that stand near it from words drawn at random. Two tables, a row a
 * word: "in" for the word in the middle, "out" for the words around it. A step touches a few of
 * their rows.
 *
 * Everything is a function of the text and the configuration: processes that have the same ones
 * agree on the vocabulary, the split and every minibatch without a word between them.
 */
#ifndef GS_DEMO_WORDS_H
#define GS_DEMO_WORDS_H

#include <stdint.h>

#include "kernels/kern.h"

enum { WORDS_IN, WORDS_OUT, WORDS_TABLES };
extern const char *const words_tables[WORDS_TABLES]; /* their names */

enum { WORDS_TRAINERS_MAX = 48, WORDS_NEGATIVES_MAX = 64 };

struct words_config {
	uint64_t seed;     /* of the split, the draws and the initial vectors */
	unsigned trainers; /* each has a shard of the sentences, and an equal share of the batch */
	unsigned batch;    /* words in the middle, of all trainers together, in one step */
	unsigned epochs;
	unsigned dim;       /* of a vector */
	unsigned window;    /* words on each side at most */
	unsigned negatives; /* random words for each pair */
	unsigned min_count; /* rarer words are left out of the text */
	double sample;      /* words more frequent than this are thinned out */
	struct kern_opt opt;
	enum kern_dtype grad_dtype;
};

/* Seed 1, one trainer, and settings that were tuned on the King James Bible. */
struct words_config words_default(void);

/* -EINVAL, with the value and the limit in the text. */
int words_check(const struct words_config *config);

/* Words in the middle of one trainer's minibatch. */
unsigned words_share(const struct words_config *config);

/* A table's initial values, as kern_init_fill takes them: word2vec's. */
struct words_init {
	enum kern_init kind;
	uint64_t seed;
	double a, b;
};
struct words_init words_init_of(unsigned table, const struct words_config *config);

/* Of both tables, each rows · dim elements. */
uint64_t words_checksum(const float *const tables[WORDS_TABLES], uint64_t rows, unsigned dim);

/* What the draws are for: the third word of the generator's counter, so that they differ. */
enum words_draw {
	WORDS_DRAW_SPLIT, /* counter: sentence */
	WORDS_DRAW_ORDER, /* place, pass */
	WORDS_DRAW_TOKEN, /* token, pass: whether it is kept, and its window */
	WORDS_DRAW_NOISE, /* token, pass, -, number of four: the negatives of its pairs */
};

#endif

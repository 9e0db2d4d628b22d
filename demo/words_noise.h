/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws by frequency: which words of the text are kept, and which ones come as noise.
 */
#ifndef GS_DEMO_WORDS_NOISE_H
#define GS_DEMO_WORDS_NOISE_H

#include <stdbool.h>
#include <stdint.h>

struct words_noise;

/* Noise words come with probability ~ count^0.75. Frequent words of the text are kept with
 * word2vec's probability sqrt(sample/f) + sample/f, f being the word's share of the text. `n` is 1
 * at least, and every count. Errors: -ENOMEM. */
int words_noise_create(const uint64_t *count, uint32_t n, double sample, struct words_noise **out);
void words_noise_destroy(struct words_noise *noise);

/* A noise word, from 32 random bits. */
uint32_t words_noise_draw(const struct words_noise *noise, uint32_t random);
/* Whether this occurrence of a word is kept, from 32 random bits. */
bool words_noise_keeps(const struct words_noise *noise, uint32_t word, uint32_t random);
/* How many words of the whole text are kept, on average. */
double words_noise_kept(const struct words_noise *noise);

#endif

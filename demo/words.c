/* SPDX-License-Identifier: Apache-2.0
 *
 * The words example's settings.
 */
#include "demo/words.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

const char *const words_tables[WORDS_TABLES] = {"words.in", "words.out"};

struct words_config words_default(void)
{
	return (struct words_config){
	    .seed = 1,
	    .trainers = 1,
	    .batch = 1024,
	    .epochs = 3,
	    .dim = 64,
	    .window = 5,
	    .negatives = 5,
	    .min_count = 5,
	    .sample = 1e-3,
	};
}

int words_check(const struct words_config *c)
{
	if (c->trainers == 0 || c->trainers > WORDS_TRAINERS_MAX || c->trainers > c->batch)
		return err_set(EINVAL, "%u trainers: with a batch of %u words there may be 1 to %u",
			       c->trainers, c->batch,
			       c->batch < WORDS_TRAINERS_MAX ? c->batch : WORDS_TRAINERS_MAX);
	if (c->epochs == 0 || c->dim == 0 || c->window == 0 || c->negatives == 0 ||
	    c->min_count == 0)
		return err_set(EINVAL,
			       "%u epochs, vectors of %u, a window of %u, %u negatives, a minimum "
			       "count of %u: each must be at least 1",
			       c->epochs, c->dim, c->window, c->negatives, c->min_count);
	if (c->negatives > WORDS_NEGATIVES_MAX)
		return err_set(EINVAL, "%u negatives: there may be 1 to %d", c->negatives,
			       WORDS_NEGATIVES_MAX);
	if (!(c->sample > 0))
		return err_set(EINVAL,
			       "frequent words are thinned out above %g: it must be above 0",
			       c->sample);
	if (!kern_opt_by_rows(&c->opt))
		return err_set(EINVAL,
			       "optimizer %s can't be applied to some rows of a table alone",
			       kern_opt_name(&c->opt));
	return 0;
}

unsigned words_share(const struct words_config *config)
{
	return config->batch / config->trainers;
}

struct words_init words_init_of(unsigned table, const struct words_config *config)
{
	const char *name = words_tables[table];

	if (table == WORDS_OUT)
		return (struct words_init){.kind = KERN_INIT_ZERO};
	return (struct words_init){
	    .kind = KERN_INIT_UNIFORM,
	    .seed = kern_checksum(name, strlen(name), config->seed),
	    .a = -0.5 / config->dim,
	    .b = 0.5 / config->dim,
	};
}

uint64_t words_checksum(const float *const tables[WORDS_TABLES], uint64_t rows, unsigned dim)
{
	uint64_t sum = 0;

	for (unsigned t = 0; t < WORDS_TABLES; t++)
		sum = kern_checksum(tables[t], rows * dim * sizeof(float), sum);
	return sum;
}

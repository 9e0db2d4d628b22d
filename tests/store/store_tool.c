/* SPDX-License-Identifier: Apache-2.0
 *
 * store_tool make DIR STEP: a checkpoint of the sample's parameters; value i of each weight is
 *     sin(STEP + i) · 2^(i mod 40 - 20), the same in both.
 * store_tool copy IN OUT: opens a file of tensors and makes another with the same tensors in it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "store_samples.h"

static int failed(void)
{
	fprintf(stderr, "store_tool: %s\n", err_text());
	return 1;
}

static int make(const char *dir, uint64_t step)
{
	struct checkpoint_manifest m = sample_manifest(step);
	struct checkpoint_writer *w;

	if (checkpoint_begin(dir, sample_weights, SAMPLE_PARAMS, sample_states, SAMPLE_STATES, &w) <
	    0)
		return failed();
	for (uint32_t i = 0; i < SAMPLE_PARAMS; i++) {
		const struct store_tensor *t = store_at(checkpoint_weights(w), i);

		for (uint64_t k = 0; k < t->len / sizeof(float); k++)
			((float *)t->data)[k] =
			    (float)ldexp(sin((double)(step + k)), (int)(k % 40) - 20);
	}
	sample_fill(checkpoint_state(w), step);
	return checkpoint_commit(w, &m, 100, NULL) < 0 ? failed() : 0;
}

static int copy(const char *from, const char *to)
{
	enum { PAIRS = 16 };
	const char *meta[PAIRS][2];
	struct store_tensor tensor[64];
	struct store_file *in, *out;
	uint32_t n = 0;

	if (store_open(from, &in) < 0)
		return failed();
	while (n < PAIRS && store_metadata_at(in, n, &meta[n][0], &meta[n][1]))
		n++;
	for (uint32_t i = 0; i < store_count(in) && i < 64; i++)
		tensor[i] = *store_at(in, i);
	if (store_create(to, tensor, store_count(in), (const char *const(*)[2])meta, n, &out) < 0)
		return failed();
	for (uint32_t i = 0; i < store_count(out); i++) {
		const struct store_tensor *t = store_at(out, i);

		memcpy(t->data, store_find(in, t->name)->data, t->len);
	}
	int rc = store_sync(out);
	store_close(out);
	store_close(in);
	return rc < 0 ? failed() : 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "make"))
		return make(argv[2], strtoull(argv[3], NULL, 10));
	if (argc == 4 && !strcmp(argv[1], "copy"))
		return copy(argv[2], argv[3]);
	fprintf(stderr, "usage: store_tool make DIR STEP | copy IN OUT\n");
	return 2;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The fuzzer's bytes, taken from the front. What lies behind the end is zero.
 */
#ifndef GS_TESTS_FUZZ_INPUT_H
#define GS_TESTS_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct input {
	const uint8_t *at;
	size_t left;
};

/* Takes up to n bytes; *out is where they are. Returns how many there were. */
static inline size_t input_span(struct input *in, size_t n, const uint8_t **out)
{
	size_t take = n < in->left ? n : in->left;

	*out = in->at;
	in->at += take;
	in->left -= take;
	return take;
}

static inline void input_bytes(struct input *in, void *out, size_t n)
{
	const uint8_t *from;
	size_t got = input_span(in, n, &from);

	memset(out, 0, n);
	if (got)
		memcpy(out, from, got);
}

static inline uint8_t input_u8(struct input *in)
{
	uint8_t v;

	input_bytes(in, &v, sizeof(v));
	return v;
}

static inline uint32_t input_u32(struct input *in)
{
	uint32_t v;

	input_bytes(in, &v, sizeof(v));
	return v;
}

static inline uint64_t input_u64(struct input *in)
{
	uint64_t v;

	input_bytes(in, &v, sizeof(v));
	return v;
}

/* An invariant: always on, and told with its line. */
#define FUZZ_MUST(cond, ...)                                                     \
	do {                                                                     \
		if (!(cond)) {                                                   \
			fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);          \
			fprintf(stderr, __VA_ARGS__);                            \
			fputc('\n', stderr);                                     \
			abort();                                                 \
		}                                                                \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of rows, and the map from keys to rows, against simple ones that look at everything.
 */
#include "input.h"
#include "server/keymap.h"
#include "server/rowset.h"

enum { CAPACITY = 24, DIM = 2 };

struct simple {
	uint32_t n;
	int64_t id[CAPACITY];
	float value[CAPACITY][DIM];
};

static uint32_t find(const struct simple *s, int64_t id)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->id[i] == id)
			return i;
	return ROWSET_NONE;
}

static void compare(const struct rowset *set, const struct simple *s)
{
	FUZZ_MUST(set->n == s->n, "%u rows instead of %u", set->n, s->n);
	for (uint32_t i = 0; i < s->n; i++) {
		FUZZ_MUST(set->id[i] == s->id[i], "position %u: another id", i);
		FUZZ_MUST(rowset_find(set, s->id[i]) == i, "position %u is not found", i);
		FUZZ_MUST(!memcmp(rowset_value(set, i), s->value[i], sizeof(s->value[i])),
			  "position %u: another value", i);
	}
}

static void add(struct rowset *set, struct simple *s, struct input *in)
{
	int64_t id[4];
	float value[4][DIM];
	uint32_t n = input_u8(in) % 4 + 1, position[4], room = CAPACITY - s->n;

	for (uint32_t i = 0; i < n; i++) {
		uint8_t how = input_u8(in);

		id[i] = how & 1 ? (int64_t)input_u64(in) : how >> 1;
		for (int d = 0; d < DIM; d++)
			value[i][d] = (float)(int8_t)input_u8(in);
	}
	if (room < n)
		return;
	rowset_add(set, id, n, KERN_F32, value, position);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = find(s, id[i]);

		if (at == ROWSET_NONE) {
			at = s->n++;
			s->id[at] = id[i];
			memcpy(s->value[at], value[i], sizeof(value[i]));
		} else {
			for (int d = 0; d < DIM; d++)
				s->value[at][d] += value[i][d];
		}
		FUZZ_MUST(position[i] == at, "id %u went elsewhere", i);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	static struct simple s;
	struct rowset set;

	s.n = 0;
	FUZZ_MUST(rowset_create(CAPACITY, DIM, &set) == 0, "no memory");
	while (in.left) {
		uint8_t what = input_u8(&in);

		if (what % 8 == 0) {
			rowset_clear(&set);
			s.n = 0;
		} else if (what % 8 == 1) {
			rowset_scale(&set, -1);
			for (uint32_t i = 0; i < s.n; i++)
				for (int d = 0; d < DIM; d++)
					s.value[i][d] *= -1;
		} else {
			add(&set, &s, &in);
		}
		compare(&set, &s);
	}
	rowset_destroy(&set);
	return 0;
}

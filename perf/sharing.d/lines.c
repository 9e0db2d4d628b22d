/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/sharing.d/lines.h"

static void note_place(struct line_use *use, uint64_t bytes, bool write, uintptr_t pc)
{
	for (unsigned i = 0; i < LINE_PLACES; i++) {
		struct line_place *p = &use->place[i];

		if (p->pc && p->pc != pc)
			continue;
		p->pc = pc;
		p->n++;
		if (write)
			p->written |= bytes;
		else
			p->read |= bytes;
		return;
	}
	use->elsewhere++;
}

static void lose(struct line_use *use)
{
	if (use->counts && !use->met) {
		use->useless++;
		use->stale |= use->fresh; /* it has yet to see them */
	}
	use->has = false;
	use->counts = false;
	use->fresh = 0;
}

static void get(struct line_use *use)
{
	use->counts = use->knows; /* the first time it has to come in any case */
	use->met = false;
	use->fresh = use->stale;
	use->stale = 0;
	use->has = true;
	use->knows = true;
}

void line_touch(struct line *line, unsigned thread, uint64_t bytes, bool write, uintptr_t pc)
{
	struct line_use *use = &line->use[thread];

	if (!use->has)
		get(use);
	if (use->counts && !use->met && (use->fresh & bytes)) {
		use->met = true;
		use->needed++;
	}
	note_place(use, bytes, write, pc);
	if (!write)
		return;
	use->written |= bytes;
	for (unsigned i = 0; i < LINE_THREADS; i++) {
		struct line_use *other = &line->use[i];

		if (i == thread || !other->knows)
			continue;
		if (other->has)
			lose(other);
		other->stale |= bytes;
	}
}

void line_end(struct line *line)
{
	for (unsigned i = 0; i < LINE_THREADS; i++)
		lose(&line->use[i]);
}

uint64_t line_bytes(unsigned offset, uint64_t len)
{
	uint64_t all = len < LINE_BYTES ? (UINT64_C(1) << len) - 1 : UINT64_MAX;

	return all << offset;
}

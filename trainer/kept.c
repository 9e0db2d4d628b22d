/* SPDX-License-Identifier: Apache-2.0
 *
 * The kept words (layout.h): what the server has of this rank from before, told once ahead of
 * ready. They are copied then, so that what is checked is what is used.
 *
 * Async, ssp: the connection's first push is the rank's push number `base`, the least of the
 * parameter's words; blocks that are further have the first few of its pushes. The server waits for
 * the slowest block before a slot is used again, so none is further than there are slots.
 * Sync: a block either has the gradient of the step that the connection begins with, or not.
 */
#include "trainer/trainer.h"

#include <errno.h>

#include "base/err.h"

int kept_read(gs_trainer *t)
{
	for (uint32_t b = 0; b < t->link.blocks; b++) {
		uint64_t word = word_acquire(t->link.mail, layout_kept_off(t->link.blocks, b));

		t->link.kept[b] = word;
		if (word > LAYOUT_COUNT_MAX)
			return err_set(EPROTO, "block %u: it has %llu pushes of this rank", b,
				       (unsigned long long)word);
		if (word && t->init_asked)
			return err_set(EPROTO,
				       "block %u: it has %llu pushes of this rank, and no initial "
				       "weights",
				       b, (unsigned long long)word);
	}
	return 0;
}

struct range {
	uint64_t least, most;
};

static struct range range_of(const gs_param *p)
{
	const uint64_t *kept = p->t->link.kept + p->first_block;
	struct range r = {kept[0], kept[0]};

	for (uint32_t i = 1; i < param_words(p); i++) {
		if (kept[i] < r.least)
			r.least = kept[i];
		if (kept[i] > r.most)
			r.most = kept[i];
	}
	return r;
}

static int place_sync(gs_param *p)
{
	gs_trainer *t = p->t;
	struct range r = range_of(p);

	if (r.most > t->first_step)
		return err_set(
		    EPROTO,
		    "parameter \"%s\": it has this rank's gradient of step %llu; the step "
		    "is %llu",
		    p->wire.name, (unsigned long long)r.most, (unsigned long long)t->first_step);
	for (uint32_t i = 0; i < param_words(p); i++)
		t->link.skip[p->first_block + i] =
		    t->link.kept[p->first_block + i] == t->first_step;
	p->kept_step = r.least;
	p->touched_step = r.most;
	return 0;
}

static int place_pushes(gs_param *p)
{
	gs_trainer *t = p->t;
	struct range r = range_of(p);

	if (r.most - r.least > t->link.slots)
		return err_set(EPROTO,
			       "parameter \"%s\": one block has %llu pushes of this rank, another "
			       "%llu; there are %u slots",
			       p->wire.name, (unsigned long long)r.most,
			       (unsigned long long)r.least, t->link.slots);
	for (uint32_t i = 0; i < param_words(p); i++)
		t->link.skip[p->first_block + i] =
		    (uint8_t)(t->link.kept[p->first_block + i] - r.least);
	p->out.base = r.least;
	return 0;
}

int kept_place(gs_trainer *t)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < t->n_params; i++) {
		gs_param *p = t->param[i];

		p->out.inits = p->out.end = p->out.pushes;
		rc = trainer_is_sync(t) ? place_sync(p) : place_pushes(p);
	}
	return rc;
}

void kept_adopt(gs_trainer *t)
{
	t->step = t->first_step;
	t->posted = t->barrier = t->goes_on = false;
	t->released = 0;
	for (uint32_t i = 0; i < t->n_params; i++) {
		gs_param *p = t->param[i];

		p->made = p->begun = p->out.base;
		p->push_step = p->made_step = 0;
		p->accumulated = 0;
		p->seen = 0;
	}
}

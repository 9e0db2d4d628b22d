/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading weights: which way, and the way through mapped memory.
 *
 *                mapped (shm)                        over a network
 *   relaxed      loads                               READs
 *   consistent   version, loads, version             READ version, data, version, each fenced
 *   ordered      the server writes into the landing area, for both
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <string.h>

#include "base/copy.h"
#include "base/err.h"

#define PULL_PIECE (UINT64_C(64) << 10)

/* ---- copies ---------------------------------------------------------------------------------- */

void pull_size(struct pull *pull)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < pull->n; i++)
		bytes += param_weight_bytes(pull->param[i]);
	pull->large = bytes >= PULL_LARGE;
}

void pull_copy(const struct pull *pull, void *to, const void *from, uint64_t len)
{
	/* Each such copy ends with a fence: short ones don't pay for it. */
	if (pull->large && len >= PULL_PIECE)
		copy_streaming(to, from, len);
	else
		memcpy(to, from, len);
}

/* ---- one pull at a time in a landing area ---------------------------------------------------- */

static bool all_free(gs_trainer *t, void *arg)
{
	const struct pull *pull = arg;

	for (uint32_t i = 0; i < pull->n; i++) {
		if (pull->param[i]->pulling)
			return false;
	}
	return true;
}

static void give(const struct pull *pull, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		pull->param[i]->pulling = false;
}

/* All or none: two calls that each hold what the other waits for can't be. */
static int take(gs_trainer *t, const struct pull *pull)
{
	int rc = trainer_wait(t, all_free, (void *)(uintptr_t)pull, 0, "another pull");

	for (uint32_t i = 0; rc == 0 && i < pull->n; i++) {
		gs_param *p = pull->param[i];

		if (p->pulling) {
			give(pull, i);
			return err_set(EINVAL, "parameter \"%s\" is in the list twice",
				       p->wire.name);
		}
		p->pulling = true;
	}
	return rc;
}

int pull_begin(gs_trainer *t, const struct pull *pull)
{
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	rc = take(t, pull);
	if (rc < 0)
		trainer_exit(t);
	return rc;
}

void pull_end(gs_trainer *t, const struct pull *pull)
{
	if (pull->straight)
		lend_targets_back(t, pull);
	give(pull, pull->n);
	trainer_changed(t);
	trainer_exit(t);
}

int pull_finish(gs_trainer *t, const struct pull *pull, int rc)
{
	trainer_exit(t);
	for (uint32_t i = 0; rc == 0 && i < pull->n; i++)
		pull_copy(pull, pull->dst[i], param_landing(pull->param[i]),
			  param_weight_bytes(pull->param[i]));
	pthread_mutex_lock(&t->lock);
	pull_end(t, pull);
	return rc;
}

static bool all_come(gs_trainer *t, void *arg)
{
	const struct pull *pull = arg;

	for (uint32_t i = 0; i < pull->n; i++) {
		if (pull->param[i]->pull_left > 0)
			return false;
	}
	return true;
}

int pull_wait(gs_trainer *t, const struct pull *pull)
{
	return trainer_wait(t, all_come, (void *)(uintptr_t)pull, 0, "weights");
}

/* ---- mapped ---------------------------------------------------------------------------------- */

static const uint8_t *mapped(const gs_param *p)
{
	return p->t->link.weights_map + p->weights_off;
}

/* Before the weights: what is read then is of these updates, or later ones. */
static void note_seen(gs_param *p)
{
	p->seen = 1 + word_acquire(p->t->link.weights_map, layout_version_off(p->first_block)) / 2;
}

static void mapped_relaxed(const struct pull *pull, uint32_t i)
{
	gs_param *p = pull->param[i];
	void *dst = pull->dst[i];

	if (!trainer_is_sync(p->t)) /* where no gradient is old */
		note_seen(p);
	if (pull->still)
		pull_copy(pull, dst, mapped(p), p->weight_size * p->elems);
	else
		copy_live(dst, mapped(p), p->elems, p->weight_size);
}

static bool mapped_block(gs_param *p, uint32_t i, uint8_t *dst)
{
	const uint8_t *map = p->t->link.weights_map;
	uint64_t word_off = layout_version_off(p->first_block + i);
	uint64_t at = block_first_elem(p, i) * p->weight_size;

	for (int try = 0; try < PULL_TRIES; try++) {
		uint64_t before = word_acquire(map, word_off);

		if (before % 2)
			continue;
		copy_live(dst + at, mapped(p) + at, block_elems(p, i), p->weight_size);
		if (word_acquire(map, word_off) == before)
			return true;
	}
	return false;
}

/* One block through the queue. */
static int mapped_ask(gs_param *p, uint32_t i, uint8_t *dst)
{
	gs_trainer *t = p->t;
	struct pull pull = {.param = &p, .n = 1};
	uint64_t at = block_first_elem(p, i) * p->weight_size;
	int rc = pull_begin(t, &pull);

	if (rc < 0)
		return rc;
	rc = pull_queue_ask(p, i, i + 1);
	if (rc == 0)
		rc = pull_wait(t, &pull);
	trainer_exit(t);
	if (rc == 0)
		memcpy(dst + at, param_landing(p) + at, p->weight_size * block_elems(p, i));
	pthread_mutex_lock(&t->lock);
	pull_end(t, &pull);
	return rc;
}

static int mapped_consistent(gs_param *p, uint8_t *dst)
{
	int rc = 0;

	note_seen(p);
	for (uint32_t i = 0; rc == 0 && i < p->blocks; i++) {
		if (!mapped_block(p, i, dst))
			rc = mapped_ask(p, i, dst);
	}
	return rc;
}

static int pull_mapped(const struct pull *pull, enum gs_consistency how)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < pull->n; i++) {
		param_fetch(pull->param, i, pull->n);
		if (how == GS_RELAXED)
			mapped_relaxed(pull, i);
		else
			rc = mapped_consistent(pull->param[i], pull->dst[i]);
	}
	return rc;
}

/* ---- the API --------------------------------------------------------------------------------- */

/* In sync mode nobody writes a parameter between a release and this trainer's push of it, or its
 * barrier: then any copy will do. */
static bool stands_still(const gs_trainer *t, const gs_param *p)
{
	return trainer_is_sync(t) && !t->posted && p->push_step != t->step &&
	       p->touched_step != t->step;
}

bool pull_stands_still(const gs_trainer *t, const struct pull *pull)
{
	for (uint32_t i = 0; i < pull->n; i++) {
		if (!stands_still(t, pull->param[i]))
			return false;
	}
	return true;
}

static int check_param(const gs_trainer *t, const gs_param *p, uint32_t i)
{
	if (!p || p->t != t)
		return err_set(EINVAL, "parameter %u is not one of this trainer's", i);
	return 0;
}

static int check_dense(const gs_trainer *t, const gs_param *p, uint32_t i)
{
	int rc = check_param(t, p, i);

	if (rc == 0 && param_is_table(p))
		rc =
		    err_set(EINVAL, "parameter \"%s\" is a table: call gs_pull_rows", p->wire.name);
	return rc;
}

int pull_check_one(const gs_trainer *t, const gs_param *p, const void *dst, uint32_t i)
{
	int rc = check_dense(t, p, i);

	if (rc == 0 && !dst)
		rc = err_set(EINVAL, "gs_pull: destination %u is NULL", i);
	return rc;
}

/* It has a place that this process can look at. */
static int check_place(const gs_trainer *t, const gs_param *p)
{
	if (!t->link.weights_map)
		return err_set(EOPNOTSUPP,
			       "weights can be looked at in place over shm only; this is %s",
			       t->transport);
	if (p->by_queue || p->wire.storage == WIRE_HASHED)
		return err_set(EOPNOTSUPP, "the weights of \"%s\" are not looked at in place: %s",
			       p->wire.name,
			       p->by_queue ? "dc_lambda needs to know what was pulled"
					   : "the rows of a hashed table have no fixed place");
	return 0;
}

int view_check_one(const gs_trainer *t, const gs_param *p, uint32_t i)
{
	int rc = check_dense(t, p, i);

	return rc < 0 ? rc : check_place(t, p);
}

int pull_list(gs_param *p)
{
	if (p->listed == p->t->lists)
		return err_set(EINVAL, "parameter \"%s\" is in the list twice", p->wire.name);
	p->listed = p->t->lists;
	return 0;
}

/* All that is to be known of the list, in one pass. */
static int look_at(gs_trainer *t, struct pull *pull)
{
	pull->by_queue = false;
	pull->still = true;
	t->lists++;
	for (uint32_t i = 0; i < pull->n; i++) {
		gs_param *p = pull->param[i];
		int rc = pull_check_one(t, p, pull->dst[i], i);

		param_fetch(pull->param, i, pull->n);
		if (rc == 0)
			rc = pull_list(p);
		if (rc < 0)
			return rc;
		/* One of them is pulled through its queue always: then all are, in this call. */
		pull->by_queue |= p->by_queue;
		pull->still &= stands_still(t, p);
	}
	return 0;
}

int pull_check(gs_trainer *t, struct pull *pull)
{
	if (pull->n > 0 && (!pull->param || !pull->dst))
		return err_set(EINVAL, "gs_pull: NULL");
	int rc = trainer_enter_working(t);
	if (rc < 0)
		return rc;
	rc = look_at(t, pull);
	trainer_exit(t);
	return rc;
}

int gs_pull_many(gs_trainer *t, gs_param *const *p, void *const *dst, uint32_t n,
		 enum gs_consistency how)
{
	struct pull pull = {.param = p, .dst = dst, .n = n};

	if (how != GS_RELAXED && how != GS_CONSISTENT && how != GS_ORDERED)
		return err_set(EINVAL, "gs_pull: consistency %d; known are %d to %d", (int)how,
			       GS_RELAXED, GS_ORDERED);
	int rc = pull_check(t, &pull);
	if (rc < 0 || n == 0)
		return rc;
	pull_size(&pull);
	if (how == GS_ORDERED || pull.by_queue)
		return pull_queue(t, &pull);
	if (t->link.weights_map)
		return pull_mapped(&pull, how);
	return how == GS_RELAXED ? pull_runs(t, &pull) : pull_wire_consistent(t, &pull);
}

int gs_pull(gs_trainer *t, gs_param *p, enum gs_consistency how, void *dst)
{
	return gs_pull_many(t, &p, &dst, 1, how);
}

int gs_weights_view(gs_trainer *t, gs_param *p, const void **out)
{
	if (!out)
		return err_set(EINVAL, "gs_weights_view: NULL");
	int rc = trainer_enter_working(t);
	if (rc < 0)
		return rc;
	rc = check_param(t, p, 0);
	if (rc == 0)
		rc = check_place(t, p);
	if (rc == 0)
		*out = mapped(p);
	trainer_exit(t);
	return rc;
}

int gs_block_version(gs_trainer *t, gs_param *p, uint64_t elem, uint64_t *out)
{
	uint64_t word = 0;

	if (!out)
		return err_set(EINVAL, "gs_block_version: NULL");
	int rc = trainer_enter_working(t);
	if (rc < 0)
		return rc;
	rc = check_param(t, p, 0);
	if (rc == 0 && elem >= p->elems)
		rc = err_set(EINVAL, "element %llu; \"%s\" has %llu", (unsigned long long)elem,
			     p->wire.name, (unsigned long long)p->elems);
	trainer_exit(t);
	if (rc < 0)
		return rc;
	uint32_t block = p->first_block + (uint32_t)(elem / p->block_elems);
	if (t->link.weights_map)
		word = word_acquire(t->link.weights_map, layout_version_off(block));
	else
		rc = pull_wire_version(p, block, &word);
	if (rc == 0)
		*out = word / 2;
	return rc;
}

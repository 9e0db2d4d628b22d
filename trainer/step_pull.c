/* SPDX-License-Identifier: Apache-2.0
 *
 * A step's end and the pull behind it in one: blocks are read as soon as their update is made,
 * while others are still being updated or on their way.
 *
 * When may a block be read before the release? In sync mode it is updated once a step at most, and
 * not before this trainer has delivered its gradient or passed the step's barrier. So between the
 * release of step k-1 and this trainer's first push or barrier of step k+1 its version word is
 * base, base + 1 (under update) and base + 2 at most, in this order; and base + 2 says that what
 * lies there is what step k leaves. A published copy in 16 bits is written by the same pass, so it
 * is as far as the word.
 *
 * Invariants:
 *  1. link.base has a block's version word of between two steps: it was read after a release, and
 *     before this trainer's first push or barrier behind it. p->base_step is the step that began
 * then; in any other step nothing is known, and the parameter is read after the release.
 *  2. A block whose word is not base + 2 (nobody pushed it, or its update waits for the barrier) is
 *     read after the release: then every block is as the step leaves it.
 *  3. The step stays posted until all weights are here. So a call that lost the server and is made
 *     again after gs_reconnect waits for the same step, and reads all of them again.
 *
 * A trainer that sleeps is woken by the release, never by a version word. While there is something
 * that may move it wakes up now and then by itself.
 */
#include "trainer/step_pull.h"

#include <errno.h>
#include <sched.h>

#include "base/clock.h"
#include "base/err.h"

/* How long it sleeps at once: so many ms at first, and twice as long whenever nothing has moved. */
enum { NAP_MS = 1, NAP_MAX_MS = 16 };
/* Between two yields of one that only looks: what it waits for may need its processor. */
#define YIELD_NS (50 * NS_PER_US)

/* ---- waiting --------------------------------------------------------------------------------- */

bool step_pull_over(struct step_pull *r)
{
	return step_released(r->t, r->step);
}

static bool is_over(gs_trainer *t, void *arg)
{
	return step_pull_over(arg);
}

void step_pull_moved(struct step_pull *r)
{
	r->idle_since = 0;
	r->nap_ms = NAP_MS;
}

static bool may_spin(const struct step_pull *r, uint64_t now)
{
	return r->t->spin_us == TP_SPIN_FOREVER ||
	       now - r->idle_since < (uint64_t)r->t->spin_us * NS_PER_US;
}

/* Lets others in for as long as a look takes. */
static int look(struct step_pull *r, uint64_t now)
{
	gs_trainer *t = r->t;

	pthread_mutex_unlock(&t->lock);
	if (now - r->yielded >= YIELD_NS) {
		sched_yield();
		r->yielded = now;
	}
	cpu_relax();
	pthread_mutex_lock(&t->lock);
	trainer_poll(t);
	beat_look(t);
	return t->err ? trainer_error(t) : 0;
}

static int nap(struct step_pull *r)
{
	int rc = trainer_wait(r->t, is_over, r, r->nap_ms, "the step's release");

	r->nap_ms = r->nap_ms < NAP_MAX_MS ? 2 * r->nap_ms : NAP_MAX_MS;
	return rc == -ETIMEDOUT ? 0 : rc;
}

int step_pull_pause(struct step_pull *r, uint64_t ns)
{
	uint64_t now = clock_ns(), until = now + ns;
	int rc;

	if (!r->idle_since)
		r->idle_since = r->yielded = now;
	if (!may_spin(r, now))
		return nap(r);
	do {
		rc = look(r, now);
		now = clock_ns();
	} while (rc == 0 && now < until && !step_pull_over(r));
	return rc;
}

/* ---- what may be read ------------------------------------------------------------------------ */

static bool knows_base(const struct step_pull *r, const gs_param *p)
{
	return p->base_step == r->step;
}

bool step_pull_may_move(const struct step_pull *r, const gs_param *p)
{
	return p->pulled < p->blocks && knows_base(r, p);
}

bool step_pull_has_moved(const gs_param *p, uint32_t i, uint64_t word)
{
	return word % 2 == 0 && word == p->t->link.base[p->first_block + i] + 2;
}

/* Those before `first` have been read; false: nothing that is left can move. */
bool step_pull_skip_done(struct step_pull *r)
{
	while (r->first < r->pull.n && !step_pull_may_move(r, r->pull.param[r->first]))
		r->first++;
	return r->first < r->pull.n;
}

/* ---- mapped ---------------------------------------------------------------------------------- */

static uint64_t version(const gs_param *p, uint32_t i)
{
	return word_acquire(p->t->link.weights_map, layout_version_off(p->first_block + i));
}

static void copy_blocks(struct step_pull *r, uint32_t k, uint32_t end)
{
	gs_param *p = r->pull.param[k];
	uint64_t at = block_first_elem(p, p->pulled),
		 to = end < p->blocks ? block_first_elem(p, end) : p->elems;

	pull_copy(&r->pull, (uint8_t *)r->pull.dst[k] + at * p->weight_size,
		  p->t->link.weights_map + p->weights_off + at * p->weight_size,
		  (to - at) * p->weight_size);
	p->pulled = end;
}

/* Without the lock. True: some were. A parameter's blocks are updated in the order in which they
 * are pushed, so only the first that is missing is looked at. */
static bool copy_moved(struct step_pull *r)
{
	bool some = false;

	for (uint32_t k = r->first; k < r->pull.n; k++) {
		gs_param *p = r->pull.param[k];

		while (step_pull_may_move(r, p) &&
		       step_pull_has_moved(p, p->pulled, version(p, p->pulled))) {
			copy_blocks(r, k, p->pulled + 1);
			some = true;
		}
	}
	return some;
}

static int ahead_mapped(struct step_pull *r)
{
	gs_trainer *t = r->t;
	int rc = 0;

	while (rc == 0 && !step_pull_over(r) && step_pull_skip_done(r)) {
		pthread_mutex_unlock(&t->lock);
		bool some = copy_moved(r);
		pthread_mutex_lock(&t->lock);
		if (some)
			step_pull_moved(r);
		else
			rc = step_pull_pause(r, 0);
		trainer_poll(t);
	}
	return rc;
}

/* The step is over: what is not here yet, and the bases of the next. */
static int rest_mapped(struct step_pull *r)
{
	gs_trainer *t = r->t;

	pthread_mutex_unlock(&t->lock);
	for (uint32_t k = 0; k < r->pull.n; k++) {
		gs_param *p = r->pull.param[k];

		if (p->pulled < p->blocks)
			copy_blocks(r, k, p->blocks);
		for (uint32_t i = 0; i < p->blocks; i++)
			t->link.base[p->first_block + i] = version(p, i);
	}
	pthread_mutex_lock(&t->lock);
	return 0;
}

/* ---- both ways ------------------------------------------------------------------------------- */

static void begin(struct step_pull *r)
{
	step_pull_moved(r);
	for (uint32_t k = 0; k < r->pull.n; k++) {
		gs_param *p = r->pull.param[k];

		p->pulled = p->landed = p->copied = 0;
	}
}

static int end_and_pull(struct step_pull *r)
{
	gs_trainer *t = r->t;
	bool maps = t->link.weights_map;
	int rc = t->goes_on ? 0 : step_post(t);

	if (rc == 0)
		rc = maps ? ahead_mapped(r) : step_wire_ahead(r);
	if (rc == 0)
		rc = step_wait_released(t, r->step);
	if (rc == 0)
		rc = maps ? rest_mapped(r) : step_wire_rest(r);
	if (rc < 0)
		return rc;
	for (uint32_t k = 0; k < r->pull.n; k++)
		r->pull.param[k]->base_step = r->step + 1;
	step_advance(t, r->step);
	return trainer_refused(t);
}

/* The step's end, and then the pull; as above the step stays posted until that is done. */
static int end_step(gs_trainer *t, uint64_t *step)
{
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	*step = t->step;
	rc = t->goes_on ? 0 : step_post(t);
	if (rc == 0)
		rc = step_wait_released(t, *step);
	trainer_exit(t);
	return rc;
}

static int ordinary(gs_trainer *t, const struct pull *pull)
{
	uint64_t step;
	int rc = end_step(t, &step);

	if (rc == 0)
		rc = gs_pull_many(t, pull->param, pull->dst, pull->n, GS_RELAXED);
	if (rc < 0)
		return rc;
	rc = trainer_enter_working(t);
	if (rc < 0)
		return rc;
	step_advance(t, step);
	rc = trainer_refused(t);
	trainer_exit(t);
	return rc;
}

int gs_step_pull(gs_trainer *t, gs_param *const *p, void *const *dst, uint32_t n)
{
	struct step_pull r = {.t = t, .pull = {.param = p, .dst = dst, .n = n}};
	int rc = pull_check(t, &r.pull);

	if (rc < 0)
		return rc;
	if (!trainer_is_sync(t) || r.pull.by_queue)
		return ordinary(t, &r.pull);
	pull_size(&r.pull);
	rc = pull_begin(t, &r.pull);
	if (rc < 0)
		return rc;
	r.step = t->step;
	begin(&r);
	rc = end_and_pull(&r);
	pull_end(t, &r.pull);
	return rc;
}

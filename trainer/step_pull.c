/* SPDX-License-Identifier: Apache-2.0
 *
 * A step's end and the pull behind it in one: blocks are read as soon as their update is made,
 * while others are still being updated or on their way. Where weights are mapped they may be shown in
 * place (gs_step_view) instead of copied.
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
 *     before this trainer's first push or barrier behind it; or it is the base + 2 that the step left.
 *     p->base_step is the step that began then; in any other step nothing is known, and the parameter
 *     is read after the release.
 *  2. A block whose word is not base + 2 (nobody pushed it, or its update waits for the barrier) is
 *     read after the release: then every block is as the step leaves it.
 *  3. The step stays posted until all weights are here. So a call that lost the server and is made
 *     again after gs_reconnect waits for the same step, and reads all of them again.
 *
 * A trainer that sleeps is woken by the release, never by a version word. While there is something
 * that may move it wakes up now and then by itself: often while much of it is mapped and moves.
 */
#include "trainer/step_pull.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/spin.h"

/* How long it sleeps at once: so long at first, and twice as long whenever nothing has moved. */
enum { NAP_US = 1000, NAP_MAX_US = 16000 };
/* Updating so much takes longer than a doze, behind which it is in the cache still. Until less is left
 * it does not poll, but leaves the processor to those who update. */
#define FAR UINT64_C(4 << 20)
#define DOZE_US 50

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
	r->nap_us = r->unmoved >= FAR ? DOZE_US : NAP_US;
}

static bool may_spin(const struct step_pull *r, uint64_t now)
{
	if (r->t->spin_us == TP_SPIN_FOREVER)
		return true;
	return r->unmoved < FAR && !yields_barred(&r->t->yields, now) &&
	       now - r->idle_since < (uint64_t)r->t->spin_us * NS_PER_US;
}

/* Lets others in for as long as a look takes. */
static int look(struct step_pull *r, uint64_t now)
{
	gs_trainer *t = r->t;

	pthread_mutex_unlock(&t->lock);
	yields_turn(&t->yields, now);
	cpu_relax();
	pthread_mutex_lock(&t->lock);
	trainer_poll(t);
	beat_look(t);
	return t->err ? trainer_error(t) : 0;
}

/* Too short to be woken from. */
static int doze(struct step_pull *r)
{
	const struct timespec time = {.tv_nsec = r->nap_us * 1000L};
	gs_trainer *t = r->t;

	pthread_mutex_unlock(&t->lock);
	nanosleep(&time, NULL);
	pthread_mutex_lock(&t->lock);
	trainer_poll(t);
	return t->err ? trainer_error(t) : 0;
}

static int nap(struct step_pull *r)
{
	uint32_t most = r->unmoved >= FAR ? NAP_US : NAP_MAX_US;
	int rc = r->nap_us < NAP_US ? doze(r)
				    : trainer_wait(r->t, is_over, r, r->nap_us / 1000,
						   "the step's release");

	r->nap_us = 2 * r->nap_us < most ? 2 * r->nap_us : most;
	return rc == -ETIMEDOUT ? 0 : rc;
}

int step_pull_pause(struct step_pull *r, uint64_t ns)
{
	uint64_t now = clock_ns(), until = now + ns;
	int rc;

	if (!r->idle_since) {
		r->idle_since = now;
		yields_begin(&r->t->yields, now);
	}
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

/* ---- both ways ------------------------------------------------------------------------------- */

static int end_and_pull(struct step_pull *r, int (*ahead)(struct step_pull *r),
			int (*rest)(struct step_pull *r))
{
	gs_trainer *t = r->t;

	r->step = t->step;
	step_pull_moved(r);
	int rc = t->goes_on ? 0 : step_post(t);
	if (rc == 0)
		rc = ahead(r);
	if (rc == 0)
		rc = step_wait_released(t, r->step);
	if (rc == 0)
		rc = rest(r);
	if (rc < 0)
		return rc;
	step_advance(t, r->step);
	return trainer_refused(t);
}

/* Parameter k may be in the list, of which those before it are. With the lock. */
static int check_listed(const struct step_pull *r, uint32_t k)
{
	gs_param *p = r->pull.param[k];
	int rc = r->view ? view_check_one(r->t, p, k)
			 : pull_check_one(r->t, p, r->pull.dst[k], k);

	return rc < 0 ? rc : pull_list(p);
}

static int check_views(const struct step_pull *r)
{
	int rc = trainer_enter_working(r->t);

	if (rc < 0)
		return rc;
	r->t->lists++;
	for (uint32_t k = 0; rc == 0 && k < r->pull.n; k++)
		rc = check_listed(r, k);
	trainer_exit(r->t);
	return rc;
}

static int view_all(const struct step_pull *r)
{
	int rc = check_views(r);

	for (uint32_t k = 0; rc == 0 && k < r->pull.n; k++) {
		const gs_param *p = r->pull.param[k];

		r->view(r->ctx, k, 0, p->elems, p->t->link.weights_map + p->weights_off);
	}
	return rc;
}

/* What was to be read in a step that is over. */
static int read_all(const struct step_pull *r)
{
	return r->view ? view_all(r)
		       : gs_pull_many(r->t, r->pull.param, r->pull.dst, r->pull.n, GS_RELAXED);
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

static int ordinary(struct step_pull *r)
{
	gs_trainer *t = r->t;
	uint64_t step;
	int rc = end_step(t, &step);

	if (rc == 0)
		rc = read_all(r);
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

/* ---- mapped ---------------------------------------------------------------------------------- */

/* After so many parameters that have not moved a look is over: each takes a cache line from the server,
 * which is about to write it. So it gets the time to do some of many before the next. */
enum { STILL_MAX = 8, MANY = 64 };
#define LET_WORK_NS 1000

/* Weights that lie one behind the other on both sides, yet to be copied: long copies are cheaper. */
struct stretch {
	const uint8_t *from;
	uint8_t *to;
	uint64_t len;
};

#define STRETCH_MAX (UINT64_C(256) << 10)

static uint64_t version(const gs_param *p, uint32_t i)
{
	return word_acquire(p->t->link.weights_map, layout_version_off(p->first_block + i));
}

static void copy_stretch(const struct step_pull *r, struct stretch *s)
{
	if (s->len)
		pull_copy(&r->pull, s->to, s->from, s->len);
	s->len = 0;
}

static void add_to_stretch(const struct step_pull *r, struct stretch *s, const uint8_t *from,
			   uint8_t *to, uint64_t len)
{
	if (from != s->from + s->len || to != s->to + s->len || s->len + len > STRETCH_MAX) {
		copy_stretch(r, s);
		s->from = from;
		s->to = to;
	}
	s->len += len;
}

/* Blocks of parameter k up to `end`. */
static void take_blocks(struct step_pull *r, struct stretch *s, uint32_t k, uint32_t end)
{
	gs_param *p = r->pull.param[k];
	uint64_t first = block_first_elem(p, p->pulled), at = first * p->weight_size;
	uint64_t count = (end < p->blocks ? block_first_elem(p, end) : p->elems) - first;
	const uint8_t *from = p->t->link.weights_map + p->weights_off + at;

	p->pulled = end;
	r->unmoved -= count * p->weight_size;
	if (r->view)
		r->view(r->ctx, k, first, count, from);
	else
		add_to_stretch(r, s, from, (uint8_t *)r->pull.dst[k] + at, count * p->weight_size);
}

/* All of it is here, or will be when the stretch is copied: the words are those that the step leaves. */
static void take_rest(struct step_pull *r, struct stretch *s, uint32_t k)
{
	gs_param *p = r->pull.param[k];

	if (p->pulled < p->blocks)
		take_blocks(r, s, k, p->blocks);
	for (uint32_t i = 0; i < p->blocks; i++)
		p->t->link.base[p->first_block + i] = version(p, i);
	p->base_step = r->step + 1;
	r->left--;
}

/* True: some blocks have moved. A parameter's blocks are updated in the order in which they are pushed,
 * so only the first that is missing is looked at. */
static bool take_moved(struct step_pull *r, struct stretch *s, uint32_t k)
{
	gs_param *p = r->pull.param[k];
	uint32_t before = p->pulled;

	while (p->pulled < p->blocks && step_pull_has_moved(p, p->pulled, version(p, p->pulled)))
		take_blocks(r, s, k, p->pulled + 1);
	if (p->pulled == p->blocks)
		take_rest(r, s, k);
	return p->pulled > before;
}

/* From parameter *at on, to the end of the list or to where they seem to stand still, which is put into
 * *at. */
static bool look_on(struct step_pull *r, struct stretch *s, uint32_t *at)
{
	uint32_t still = 0;
	bool some = false;

	for (; *at < r->pull.n && still < STILL_MAX; ++*at) {
		param_fetch_pull(r->pull.param, *at, r->pull.n);
		if (!step_pull_may_move(r, r->pull.param[*at]))
			continue;
		if (take_moved(r, s, *at))
			some = true;
		else
			still++;
	}
	return some;
}

/* Without the lock. True: some were. Mostly they move in the order of the list; in case they don't, each
 * look that finds none at its head goes on somewhere else. */
static bool take_all_moved(struct step_pull *r)
{
	struct stretch s = {NULL, NULL, 0};
	uint32_t at = r->first;
	bool some = look_on(r, &s, &at);

	if (!some) {
		if (r->at < at || r->at >= r->pull.n)
			r->at = at;
		some = look_on(r, &s, &r->at);
	}
	copy_stretch(r, &s);
	return some;
}

static int ahead_mapped(struct step_pull *r)
{
	gs_trainer *t = r->t;
	int rc = 0;

	while (rc == 0 && !step_pull_over(r) && step_pull_skip_done(r)) {
		pthread_mutex_unlock(&t->lock);
		bool some = take_all_moved(r);
		pthread_mutex_lock(&t->lock);
		if (some)
			step_pull_moved(r);
		else
			rc = step_pull_pause(r, r->left > MANY ? LET_WORK_NS : 0);
		trainer_poll(t);
	}
	return rc;
}

/* The step is over: what is not here yet, and the bases of the next. */
static int rest_mapped(struct step_pull *r)
{
	struct stretch s = {NULL, NULL, 0};
	gs_trainer *t = r->t;

	pthread_mutex_unlock(&t->lock);
	for (uint32_t k = 0; r->left && k < r->pull.n; k++) {
		param_fetch_pull(r->pull.param, k, r->pull.n);
		if (r->pull.param[k]->pulled < r->pull.param[k]->blocks)
			take_rest(r, &s, k);
	}
	copy_stretch(r, &s);
	pthread_mutex_lock(&t->lock);
	return 0;
}

/* Nothing of landing areas is used: it is enough that the parameters are in one such call at a time, each
 * once. With the lock. */
static int check_mapped(struct step_pull *r)
{
	r->t->lists++;
	for (uint32_t k = 0; k < r->pull.n; k++) {
		gs_param *p = r->pull.param[k];
		int rc = check_listed(r, k);

		param_fetch_pull(r->pull.param, k, r->pull.n);
		if (rc < 0)
			return rc;
		p->pulled = 0;
		r->pull.by_queue |= p->by_queue;
		r->unmoved += p->weight_size * p->elems;
	}
	r->pull.large = r->unmoved >= PULL_LARGE;
	r->left = r->pull.n;
	return 0;
}

static bool is_free(gs_trainer *t, void *arg)
{
	return !t->step_pulls;
}

static int step_pull_mapped(struct step_pull *r)
{
	gs_trainer *t = r->t;
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	uint64_t step = t->step;
	/* The step was posted, then: that is an error, or another thread waits for it again, too. */
	if (t->step_pulls)
		rc = t->goes_on
			 ? trainer_wait(t, is_free, NULL, 0, "another gs_step_pull or gs_step_view")
			 : step_post(t);
	if (rc == 0 && t->step != step) {
		trainer_exit(t);
		return read_all(r);
	}
	if (rc == 0)
		rc = check_mapped(r);
	if (rc == 0 && !r->pull.by_queue) {
		t->step_pulls = true;
		rc = end_and_pull(r, ahead_mapped, rest_mapped);
		t->step_pulls = false;
		trainer_changed(t);
	}
	trainer_exit(t);
	return rc == 0 && r->pull.by_queue ? ordinary(r) : rc;
}

/* ---- over a network, and the API -------------------------------------------------------------- */

static int step_pull_wire(struct step_pull *r)
{
	gs_trainer *t = r->t;
	int rc = pull_check(t, &r->pull);

	if (rc < 0)
		return rc;
	if (r->pull.by_queue)
		return ordinary(r);
	pull_size(&r->pull);
	rc = pull_begin(t, &r->pull);
	if (rc < 0)
		return rc;
	for (uint32_t k = 0; k < r->pull.n; k++) {
		gs_param *p = r->pull.param[k];

		p->pulled = p->landed = p->copied = 0;
	}
	lend_targets(t, &r->pull);
	rc = end_and_pull(r, step_wire_ahead, step_wire_rest);
	pull_end(t, &r->pull);
	return rc;
}

int gs_step_pull(gs_trainer *t, gs_param *const *p, void *const *dst, uint32_t n)
{
	struct step_pull r = {.t = t, .pull = {.param = p, .dst = dst, .n = n}};

	if (!trainer_is_sync(t)) {
		int rc = pull_check(t, &r.pull);

		return rc < 0 ? rc : ordinary(&r);
	}
	if (n > 0 && (!p || !dst))
		return err_set(EINVAL, "gs_pull: NULL");
	return t->link.weights_map ? step_pull_mapped(&r) : step_pull_wire(&r);
}

int gs_step_view(gs_trainer *t, gs_param *const *p, uint32_t n, gs_view_fn *fn, void *ctx)
{
	struct step_pull r = {.t = t, .pull = {.param = p, .n = n}, .view = fn, .ctx = ctx};

	if (!t || !fn || (n > 0 && !p))
		return err_set(EINVAL, "gs_step_view: NULL");
	if (trainer_is_sync(t))
		return step_pull_mapped(&r);
	int rc = check_views(&r);

	return rc < 0 ? rc : ordinary(&r);
}

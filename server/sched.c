/* SPDX-License-Identifier: Apache-2.0
 *
 * Scheduling of actors, and the workers' spin-then-sleep.
 */
#include "server/sched.h"

#include <errno.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/spin.h"

enum {
	/* Items of one actor before another gets its turn. */
	RUN_BATCH = 64,
	POLLS_PER_CLOCK = 32,
};

void sched_init(struct sched *s, uint32_t workers)
{
	s->workers = workers;
	atomic_init(&s->runq, NULL);
	atomic_init(&s->stop, false);
	atomic_init(&s->sleepers, 0);
	atomic_init(&s->awake, 0);
	sem_init(&s->wake, 0, 0);
}

void sched_fini(struct sched *s)
{
	runq_destroy(s->runq);
	sem_destroy(&s->wake);
}

/* The other half of sleep_until_work's order: the actor is in the queue before the look for
 * sleepers, so either the sleeper's last look finds it or this one finds the sleeper. */
static void wake_one(struct sched *s)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&s->sleepers, memory_order_relaxed))
		sem_post(&s->wake);
}

int sched_set_actors(struct sched *s, uint32_t actors)
{
	struct runq *q = runq_create(actors);

	if (!q)
		return err_set(ENOMEM, "no memory for a run queue of %u parameters", actors);
	atomic_store(&s->runq, q);
	return 0;
}

static void hand_over(struct sched *s, struct actor *actor)
{
	runq_push(s->runq, actor);
	wake_one(s);
}

static void run_all(struct actor *actor)
{
	while (actor_run(actor, RUN_BATCH))
		;
}

/* ---- a poller's turn ------------------------------------------------------------------------- */

static _Thread_local struct turn *mine;

void sched_take_turns(struct sched *s, struct turn *turn)
{
	*turn = (struct turn){.n = 0, .limit = turn_limit(s->workers, 0)};
	mine = turn;
}

/* Runs what is owed as far as the turn allows, and hands on the rest. */
static void run_owed(struct sched *s, struct turn *turn, struct actor *actor)
{
	uint32_t n = turn_items(&actor->cost, actor_pending(actor), turn->spent, turn->limit);
	bool more = true;

	turn->spent += n * turn_each(&actor->cost);
	if (n)
		more = actor_run(actor, n);
	if (more && s->workers)
		hand_over(s, actor);
	else if (more)
		run_all(actor);
}

static void let_go(struct sched *s, struct turn *turn, struct actor *actor)
{
	atomic_store_explicit(&actor->holder, NULL, memory_order_relaxed);
	if (actor_let_go(actor))
		run_owed(s, turn, actor);
}

void sched_turn(struct sched *s)
{
	struct turn *turn = mine;

	/* What one does may have this thread hold another. */
	for (uint32_t i = 0; i < turn->n; i++)
		if (atomic_load_explicit(&turn->actor[i]->holder, memory_order_relaxed) == turn)
			let_go(s, turn, turn->actor[i]);
	turn->n = 0;
	turn->spent = 0;
	turn->limit =
	    turn_limit(s->workers, atomic_load_explicit(&s->awake, memory_order_relaxed));
}

void sched_end_turns(void)
{
	mine = NULL;
}

static void handle_here(struct turn *turn, struct actor *actor, struct item *item)
{
	turn->spent += (item->kind == ITEM_PACK ? actor->cost.pack : actor->cost.each) + TURN_ITEM;
	actor->busy = true;
	actor->handle(actor, item);
	actor->busy = false;
}

/* By one who holds the actor. An item goes past the queue when that is empty, so the order stays. (The
 * counter does not tell: an item is pushed before it is counted, so one that was counted may have given its
 * run to another, and be in the queue still.) */
static void post_held(struct sched *s, struct turn *turn, struct actor *actor, struct item *item)
{
	if (!actor->busy && actor_pending(actor) == 1 && queue_is_empty(&actor->queue) &&
	    turn->spent < turn->limit) {
		handle_here(turn, actor, item);
		return;
	}
	actor_post(actor, item);
	/* Enough for this turn: a worker may as well begin. */
	if (!actor->busy && turn->spent >= turn->limit)
		let_go(s, turn, actor);
}

/* True: it was, and is held from here on. */
static bool handle_and_hold(struct sched *s, struct turn *turn, struct actor *actor,
			    struct item *item)
{
	uint64_t cost = item_from_trainer(item->kind) ? actor->cost.most : actor->cost.whole;

	if (turn->n == TURN_MAX || turn->spent >= turn->limit || !turn_keeps(cost, turn->limit) ||
	    !actor_hold(actor))
		return false;
	atomic_store_explicit(&actor->holder, turn, memory_order_relaxed);
	turn->actor[turn->n++] = actor;
	post_held(s, turn, actor, item);
	return true;
}

bool sched_hold(struct actor *actor)
{
	struct turn *turn = mine;

	if (turn->spent >= turn->limit || !turn_keeps(actor->cost.most, turn->limit) ||
	    !actor_hold(actor))
		return false;
	turn->spent += actor->cost.each + TURN_ITEM;
	return true;
}

void sched_let_go(struct sched *s, struct actor *actor)
{
	if (actor_let_go(actor))
		run_owed(s, mine, actor);
}

void sched_post(struct sched *s, struct actor *actor, struct item *item)
{
	struct turn *turn = mine;

	if (turn && atomic_load_explicit(&actor->holder, memory_order_relaxed) == turn)
		post_held(s, turn, actor, item);
	else if (turn && !actor->at_once && handle_and_hold(s, turn, actor, item))
		return;
	else if (!actor_post(actor, item))
		return;
	else if (actor->at_once || !s->workers)
		run_all(actor);
	else
		hand_over(s, actor);
}

/* ---- workers --------------------------------------------------------------------------------- */

static struct actor *take(struct sched *s)
{
	struct runq *q = atomic_load_explicit(&s->runq, memory_order_acquire);

	return q ? runq_pop(q) : NULL;
}

static struct actor *sleep_until_work(struct sched *s)
{
	struct actor *actor;

	atomic_fetch_add_explicit(&s->sleepers, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	actor = take(s);
	if (!actor && !atomic_load(&s->stop)) {
		while (sem_wait(&s->wake) && errno == EINTR)
			;
	}
	atomic_fetch_sub_explicit(&s->sleepers, 1, memory_order_relaxed);
	return actor;
}

/* NULL: nothing came, or the stop. */
static struct actor *look_until(struct sched *s, struct spin *spin, uint64_t until)
{
	struct actor *actor = take(s);
	uint64_t now;

	for (uint32_t polls = 1; !actor; polls++) {
		if (atomic_load_explicit(&s->stop, memory_order_relaxed))
			break;
		if (polls % POLLS_PER_CLOCK == 0) {
			now = clock_ns();
			if (now >= until)
				break;
			yields_turn(&spin->yields, now);
		}
		cpu_relax();
		actor = take(s);
	}
	return actor;
}

static struct actor *next_actor(struct sched *s, struct spin *spin)
{
	struct actor *actor = take(s);
	uint64_t now, until;

	if (actor)
		return actor;
	now = clock_ns();
	until = spin_begin(spin, now);
	if (until > now) {
		atomic_fetch_add_explicit(&s->awake, 1, memory_order_relaxed);
		actor = look_until(s, spin, until);
		atomic_fetch_sub_explicit(&s->awake, 1, memory_order_relaxed);
	}
	if (actor) {
		spin_found(spin);
	} else if (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
		actor = sleep_until_work(s);
		spin_slept(spin, clock_ns());
	}
	return actor;
}

void sched_work(struct sched *s, int32_t spin_us)
{
	struct spin spin;

	spin_init(&spin, spin_us);
	for (;;) {
		/* Read before the queue is looked at: what was posted before the stop is found. */
		bool stop = atomic_load(&s->stop);
		struct actor *actor = stop ? take(s) : next_actor(s, &spin);

		if (actor) {
			if (actor_run(actor, RUN_BATCH))
				runq_push(s->runq, actor);
		} else if (stop) {
			return;
		}
	}
}

void sched_stop(struct sched *s)
{
	atomic_store(&s->stop, true);
	for (uint32_t i = 0; i < s->workers; i++)
		sem_post(&s->wake);
}

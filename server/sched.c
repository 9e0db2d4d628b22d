/* SPDX-License-Identifier: Apache-2.0
 *
 * Scheduling of actors, and the workers' spin-then-sleep.
 */
#include "server/sched.h"

#include <errno.h>

#include "base/clock.h"
#include "base/err.h"

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

void sched_post(struct sched *s, struct actor *actor, struct item *item)
{
	if (!actor_post(actor, item))
		return;
	if (actor->at_once || !s->workers) {
		while (actor_run(actor, RUN_BATCH))
			;
	} else {
		runq_push(s->runq, actor);
		wake_one(s);
	}
}

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

static struct actor *next_actor(struct sched *s, int32_t spin_us)
{
	uint64_t until = clock_ns() + (uint64_t)(spin_us < 0 ? 0 : spin_us) * NS_PER_US;

	for (uint32_t polls = 1;; polls++) {
		struct actor *actor = take(s);

		if (actor || atomic_load_explicit(&s->stop, memory_order_relaxed))
			return actor;
		cpu_relax();
		if (spin_us >= 0 && polls % POLLS_PER_CLOCK == 0 && clock_ns() >= until)
			return sleep_until_work(s);
	}
}

void sched_work(struct sched *s, int32_t spin_us)
{
	for (;;) {
		/* Read before the queue is looked at: what was posted before the stop is found. */
		bool stop = atomic_load(&s->stop);
		struct actor *actor = stop ? take(s) : next_actor(s, spin_us);

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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue, actor and scheduler together: many producers, any number of workers. Each actor checks
 * that it is never run by two threads at once, that each producer's items come in order, and that
 * none is lost or comes twice; its counters are plain variables, so that ThreadSanitizer checks the
 * hand-over too.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "server/actor.h"
#include "server/sched.h"
#include "suite.h"

enum { PRODUCERS = 4, MAX_ACTORS = 64, MAX_WORKERS = 4 };

struct probe {
	struct item item; /* first */
	uint32_t producer;
	uint64_t number;
};

struct subject {
	struct actor actor; /* first */
	_Atomic int inside;
	uint64_t next[PRODUCERS]; /* plain: the actor's own */
	uint64_t handled;
	struct sched *sched;
	struct subject *onward; /* who gets a copy of each item; NULL: nobody */
};

static _Atomic uint64_t total, failures;
static struct sched sched;
static pthread_barrier_t gate;

static void check_handle(struct actor *actor, struct item *item)
{
	struct subject *s = (struct subject *)actor;
	struct probe *p = (struct probe *)item;

	if (atomic_fetch_add(&s->inside, 1) != 0)
		atomic_fetch_add(&failures, 1);
	if (p->number != s->next[p->producer]++)
		atomic_fetch_add(&failures, 1);
	s->handled++;
	atomic_fetch_sub(&s->inside, 1);
	/* Re-posting from a handler, to an actor that others post to as well. */
	if (s->onward)
		sched_post(s->sched, &s->onward->actor, item);
	atomic_fetch_add(&total, 1);
}

static struct subject *make_subjects(uint32_t n, bool at_once)
{
	struct subject *s = aligned_alloc(64, n * sizeof(*s));

	memset(s, 0, n * sizeof(*s));
	for (uint32_t i = 0; i < n; i++) {
		actor_init(&s[i].actor, check_handle, at_once);
		s[i].sched = &sched;
	}
	return s;
}

struct producer {
	uint32_t id, actors, items; /* items for each actor */
	bool pause, turns; /* turns: as a poller, a turn every few items */
	struct subject *subject;
	struct probe *probe;
};

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void *produce(void *arg)
{
	struct producer *p = arg;
	uint64_t seed = 77 + p->id;
	struct turn turn;

	if (p->turns)
		sched_take_turns(&sched, &turn);
	pthread_barrier_wait(&gate);
	for (uint32_t i = 0; i < p->items; i++) {
		for (uint32_t a = 0; a < p->actors; a++) {
			struct probe *probe = &p->probe[(size_t)i * p->actors + a];

			probe->producer = p->id;
			probe->number = i;
			sched_post(&sched, &p->subject[a].actor, &probe->item);
		}
		/* Long enough for workers to fall asleep, at odd moments. */
		if (p->pause && rnd(&seed, 8) == 0)
			nap();
		if (p->turns && rnd(&seed, 3) == 0)
			sched_turn(&sched);
	}
	if (p->turns)
		sched_turn(&sched);
	return NULL;
}

static void *work(void *spin)
{
	sched_work(&sched, *(int32_t *)spin);
	return NULL;
}

/* Producers post `items` to each of the actors; returns once all are handled and workers ended. */
static void storm_of(uint32_t workers, uint32_t actors, uint32_t items, int32_t spin_us, bool pause,
		     bool turns, struct subject *subject)
{
	pthread_t worker[MAX_WORKERS], thread[PRODUCERS];
	struct producer producer[PRODUCERS];

	for (uint32_t i = 0; i < workers; i++)
		pthread_create(&worker[i], NULL, work, &spin_us);
	pthread_barrier_init(&gate, NULL, PRODUCERS);
	for (uint32_t i = 0; i < PRODUCERS; i++) {
		producer[i] = (struct producer){
		    i,     actors, items,
		    pause, turns,  subject, calloc((size_t)actors * items, sizeof(struct probe))};
		pthread_create(&thread[i], NULL, produce, &producer[i]);
	}
	for (uint32_t i = 0; i < PRODUCERS; i++)
		pthread_join(thread[i], NULL);
	sched_stop(&sched);
	for (uint32_t i = 0; i < workers; i++)
		pthread_join(worker[i], NULL);
	for (uint32_t i = 0; i < PRODUCERS; i++)
		free(producer[i].probe);
	pthread_barrier_destroy(&gate);
}

static void storm(uint32_t workers, uint32_t actors, uint32_t items, int32_t spin_us, bool pause,
		  struct subject *subject)
{
	storm_of(workers, actors, items, spin_us, pause, false, subject);
}

static void begin(uint32_t workers, uint32_t actors)
{
	total = failures = 0;
	sched_init(&sched, workers);
	ck_assert_int_eq(sched_set_actors(&sched, actors), 0);
}

static void all_handled(const struct subject *s, uint32_t actors, uint32_t items)
{
	ck_assert_uint_eq(failures, 0);
	for (uint32_t a = 0; a < actors; a++) {
		ck_assert_uint_eq(s[a].handled, (uint64_t)PRODUCERS * items);
		ck_assert_uint_eq(s[a].actor.pending, 0);
		for (uint32_t p = 0; p < PRODUCERS; p++)
			ck_assert_uint_eq(s[a].next[p], items);
	}
}

static const uint32_t worker_counts[] = {0, 1, 4};

START_TEST(many_producers)
{
	uint32_t workers = worker_counts[_i];

	for (uint32_t actors = 1; actors <= MAX_ACTORS; actors *= 8) {
		uint32_t items = 20000 / actors;
		struct subject *s = make_subjects(actors, false);

		begin(workers, actors);
		storm(workers, actors, items, 20, false, s);
		all_handled(s, actors, items);
		sched_fini(&sched);
		free(s);
	}
}
END_TEST

START_TEST(sleep_and_wake)
{
	struct subject *s = make_subjects(3, false);

	begin(worker_counts[_i], 3);
	storm(worker_counts[_i], 3, 1500, 0, true, s);
	all_handled(s, 3, 1500);
	sched_fini(&sched);
	free(s);
}
END_TEST

/* Items so heavy that of many only some fit a turn: pollers and workers run actors side by side. */
START_TEST(pollers_take_turns)
{
	uint32_t workers = worker_counts[_i], actors = 2 * TURN_MAX;
	struct subject *s = make_subjects(actors, false);

	for (uint32_t a = 0; a < actors; a++)
		s[a].actor.cost = (struct turn_cost){.most = TURN_WAKE, .each = TURN_WAKE / 40};
	begin(workers, actors);
	storm_of(workers, actors, 300, 20, true, true, s);
	all_handled(s, actors, 300);
	sched_fini(&sched);
	free(s);
}
END_TEST

/* Posts to each, in a turn of this thread's; nobody works. */
static void post_in_turn(struct subject *s, struct probe *probe, uint32_t n, enum item_kind kind)
{
	for (uint32_t i = 0; i < n; i++) {
		probe[i] = (struct probe){.item = {.kind = kind}, .number = s[i].handled};
		sched_post(&sched, &s[i].actor, &probe[i].item);
	}
}

START_TEST(what_is_light_is_done_at_once)
{
	struct subject *s = make_subjects(3, false);
	struct probe probe[3];
	struct turn turn;

	s[1].actor.cost.most = TURN_WAKE + 1;
	s[2].actor.cost.whole = TURN_WAKE + 1;
	begin(1, 3);
	sched_take_turns(&sched, &turn);
	post_in_turn(s, probe, 3, ITEM_GRAD);
	ck_assert_uint_eq(s[0].handled, 1);
	ck_assert_uint_eq(s[1].handled, 0); /* it waits for a worker */
	ck_assert_uint_eq(s[2].handled, 1);
	sched_turn(&sched);
	ck_assert_uint_eq(s[0].actor.pending + s[2].actor.pending, 0);
	/* All of an actor's is another matter. */
	probe[2] = (struct probe){.item = {.kind = ITEM_SETTLE}, .number = 1};
	sched_post(&sched, &s[2].actor, &probe[2].item);
	sched_turn(&sched);
	ck_assert_uint_eq(s[2].handled, 1);
	sched_fini(&sched);
	free(s);
}
END_TEST

START_TEST(a_poller_holds_what_is_idle)
{
	struct subject *s = make_subjects(2, false);
	struct probe probe[2];
	struct turn turn;

	s[0].actor.cost.each = TURN_WAKE;
	begin(1, 2);
	sched_take_turns(&sched, &turn);
	ck_assert(sched_hold(&s[0].actor));
	ck_assert(!sched_hold(&s[0].actor));
	ck_assert(!sched_hold(&s[1].actor)); /* the turn is full */
	/* What comes meanwhile waits, and then is owed a run: by a worker. */
	post_in_turn(s, probe, 1, ITEM_GRAD);
	ck_assert_uint_eq(s[0].handled, 0);
	sched_let_go(&sched, &s[0].actor);
	ck_assert_uint_eq(s[0].handled, 0);
	ck_assert_ptr_eq(runq_pop(sched.runq), &s[0].actor);
	ck_assert(!actor_run(&s[0].actor, 2));
	ck_assert_uint_eq(s[0].handled, 1);
	/* One that is too much for any turn is left alone. */
	s[1].actor.cost.most = TURN_WAKE + 1;
	sched_turn(&sched);
	ck_assert(!sched_hold(&s[1].actor));
	s[1].actor.cost.most = 0;
	ck_assert(sched_hold(&s[1].actor));
	sched_let_go(&sched, &s[1].actor);
	ck_assert_uint_eq(s[1].actor.pending, 0);
	sched_fini(&sched);
	free(s);
}
END_TEST

START_TEST(a_turn_is_bounded)
{
	enum { ACTORS = 8, ITEMS = 10 };
	struct subject *s = make_subjects(ACTORS, false);
	struct probe probe[ACTORS], more[ITEMS];
	uint64_t handled = 0;
	struct turn turn;

	/* Three of them fill it. */
	for (int i = 0; i < ACTORS; i++)
		s[i].actor.cost.each = TURN_WAKE / 3;
	begin(1, ACTORS);
	sched_take_turns(&sched, &turn);
	post_in_turn(s, probe, ACTORS, ITEM_GRAD);
	for (int i = 0; i < ACTORS; i++)
		handled += s[i].handled;
	ck_assert_uint_eq(handled, 3);
	sched_turn(&sched);
	/* Of one with many items some are done; the rest goes to a worker, in its order. */
	for (uint32_t i = 0; i < ITEMS; i++) {
		more[i] = (struct probe){.item = {.kind = ITEM_GRAD}, .number = 1 + i};
		sched_post(&sched, &s[0].actor, &more[i].item);
	}
	ck_assert_uint_eq(s[0].handled, 1 + 3);
	ck_assert_ptr_null(s[0].actor.holder);
	sched_turn(&sched);
	while (actor_run(&s[0].actor, 4))
		;
	ck_assert_uint_eq(s[0].handled, 1 + ITEMS);
	ck_assert_uint_eq(failures, 0);
	sched_fini(&sched);
	free(s);
}
END_TEST

/* Its handler posts to itself, and to one that posts back. */
struct echo {
	struct actor actor; /* first */
	struct actor *to[2];
	struct item item[2];
	int inside, handled;
};

static void echo(struct actor *actor, struct item *item)
{
	struct echo *e = (struct echo *)actor;

	ck_assert_int_eq(e->inside++, 0);
	if (e->handled++ == 0)
		for (int i = 0; i < 2; i++)
			sched_post(&sched, e->to[i], &e->item[i]);
	e->inside--;
}

START_TEST(a_held_actor_is_not_entered_twice)
{
	struct echo *e = aligned_alloc(64, 2 * sizeof(*e));
	struct item first = {.kind = ITEM_GRAD};
	struct turn turn;

	memset(e, 0, 2 * sizeof(*e));
	begin(1, 2);
	sched_take_turns(&sched, &turn);
	for (int i = 0; i < 2; i++) {
		actor_init(&e[i].actor, echo, false);
		e[i].to[0] = &e[i].actor;
		e[i].to[1] = &e[1 - i].actor;
	}
	sched_post(&sched, &e[0].actor, &first);
	sched_turn(&sched);
	ck_assert_int_eq(e[0].handled, 1 + 2);
	ck_assert_int_eq(e[1].handled, 1 + 1);
	ck_assert_uint_eq(e[0].actor.pending + e[1].actor.pending, 0);
	sched_fini(&sched);
	free(e);
}
END_TEST

static int rests;

static void count_rest(struct actor *actor)
{
	rests++;
}

START_TEST(a_run_has_an_end)
{
	struct subject *s = make_subjects(1, false);
	struct probe probe[4];
	struct turn turn;

	rests = 0;
	s[0].actor.rest = count_rest;
	begin(1, 1);
	sched_take_turns(&sched, &turn);
	for (uint32_t i = 0; i < 3; i++) {
		probe[i] = (struct probe){.item = {.kind = ITEM_GRAD}, .number = i};
		sched_post(&sched, &s[0].actor, &probe[i].item);
	}
	ck_assert_uint_eq(s[0].handled, 3);
	ck_assert_int_eq(rests, 0);
	sched_turn(&sched);
	ck_assert_int_eq(rests, 1);
	probe[3] = (struct probe){.number = 3};
	ck_assert(actor_post(&s[0].actor, &probe[3].item));
	ck_assert(!actor_run(&s[0].actor, 1));
	ck_assert_int_eq(rests, 2);
	sched_fini(&sched);
	free(s);
}
END_TEST

START_TEST(limits)
{
	struct turn_cost cost = {.each = 100 << 10};

	ck_assert_uint_eq(turn_limit(0, 0), UINT64_MAX);
	ck_assert_uint_eq(turn_limit(2, 0), TURN_WAKE);
	/* One that looks for work begins sooner. */
	ck_assert_uint_lt(turn_limit(2, 1), turn_limit(2, 0));
	ck_assert_uint_eq(turn_times(UINT64_MAX / 2, 3), UINT64_MAX);
	ck_assert_uint_eq(turn_items(&cost, 100, 0, TURN_WAKE), 5);
	ck_assert_uint_eq(turn_items(&cost, 3, 0, TURN_WAKE), 3);
	ck_assert_uint_eq(turn_items(&cost, 100, TURN_WAKE, TURN_WAKE), 0);
	/* One is done, however long it takes: or nothing would be. */
	ck_assert_uint_eq(turn_items(&cost, 100, 0, TURN_HAND), 1);
	ck_assert_uint_eq(turn_items(&cost, 100, 1, TURN_HAND), 0);
	ck_assert_uint_eq(turn_items(&cost, UINT32_MAX, 0, UINT64_MAX), UINT32_MAX);
}
END_TEST

START_TEST(at_once_runs_where_it_is_posted)
{
	struct subject *s = make_subjects(2, true);

	begin(2, 2); /* no worker ever runs: none would be needed */
	storm(0, 2, 20000, 0, false, s);
	all_handled(s, 2, 20000);
	sched_fini(&sched);
	free(s);
}
END_TEST

START_TEST(handlers_post_onward)
{
	enum { ACTORS = 5, ITEMS = 4000 };
	struct subject *s = make_subjects(ACTORS, false);
	pthread_t worker[4], thread[PRODUCERS];
	struct producer producer[PRODUCERS];
	int32_t spin = 5;

	/* A chain: each item goes through all, ends at the last. */
	for (uint32_t a = 0; a + 1 < ACTORS; a++)
		s[a].onward = &s[a + 1];
	begin(worker_counts[_i], ACTORS);
	pthread_barrier_init(&gate, NULL, PRODUCERS);
	for (uint32_t i = 0; i < worker_counts[_i]; i++)
		pthread_create(&worker[i], NULL, work, &spin);
	for (uint32_t i = 0; i < PRODUCERS; i++) {
		producer[i] =
		    (struct producer){i, 1, ITEMS, false, false, s, calloc(ITEMS, sizeof(struct probe))};
		pthread_create(&thread[i], NULL, produce, &producer[i]);
	}
	for (uint32_t i = 0; i < PRODUCERS; i++)
		pthread_join(thread[i], NULL);
	while (atomic_load(&total) < (uint64_t)ACTORS * PRODUCERS * ITEMS)
		nap();
	sched_stop(&sched);
	for (uint32_t i = 0; i < worker_counts[_i]; i++)
		pthread_join(worker[i], NULL);
	all_handled(s, ACTORS, ITEMS);
	for (uint32_t i = 0; i < PRODUCERS; i++)
		free(producer[i].probe);
	pthread_barrier_destroy(&gate);
	sched_fini(&sched);
	free(s);
}
END_TEST

START_TEST(workers_that_have_nothing_end)
{
	pthread_t worker[4];
	int32_t spin = 0;

	sched_init(&sched, 4);
	for (int i = 0; i < 4; i++)
		pthread_create(&worker[i], NULL, work, &spin);
	while (atomic_load(&sched.sleepers) < 4)
		nap();
	sched_stop(&sched);
	for (int i = 0; i < 4; i++)
		pthread_join(worker[i], NULL);
	sched_fini(&sched);
}
END_TEST

START_TEST(a_queue_is_first_in_first_out)
{
	struct queue q __attribute__((aligned(64)));
	struct probe probe[100];

	queue_init(&q);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 100; i++)
			queue_push(&q, &probe[i].item.node);
		for (uint32_t i = 0; i < 100; i++)
			ck_assert_ptr_eq(queue_pop(&q), &probe[i].item.node);
	}
}
END_TEST

START_TEST(a_run_is_bounded)
{
	struct subject *s = make_subjects(1, false);
	struct probe probe[10];

	for (uint32_t i = 0; i < 10; i++) {
		probe[i] = (struct probe){.number = i};
		ck_assert_int_eq(actor_post(&s->actor, &probe[i].item), i == 0);
	}
	ck_assert(actor_run(&s->actor, 4));
	ck_assert_uint_eq(s->handled, 4);
	ck_assert(actor_run(&s->actor, 4));
	ck_assert(!actor_run(&s->actor, 4));
	ck_assert_uint_eq(s->handled, 10);
	ck_assert(actor_post(&s->actor, &probe[0].item));
	free(s);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("actor");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_queue_is_first_in_first_out);
	tcase_add_test(t, a_run_is_bounded);
	tcase_add_loop_test(t, many_producers, 0, 3);
	tcase_add_loop_test(t, sleep_and_wake, 0, 3);
	tcase_add_test(t, limits);
	tcase_add_test(t, what_is_light_is_done_at_once);
	tcase_add_test(t, a_poller_holds_what_is_idle);
	tcase_add_test(t, a_turn_is_bounded);
	tcase_add_test(t, a_held_actor_is_not_entered_twice);
	tcase_add_test(t, a_run_has_an_end);
	tcase_add_loop_test(t, pollers_take_turns, 0, 3);
	tcase_add_test(t, at_once_runs_where_it_is_posted);
	tcase_add_loop_test(t, handlers_post_onward, 0, 3);
	tcase_add_test(t, workers_that_have_nothing_end);
	return run_suite("actor", t);
}

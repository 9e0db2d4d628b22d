/* SPDX-License-Identifier: Apache-2.0
 *
 * Several threads in one trainer.
 */
#include "fake.h"

#include <stdio.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 150, ELEMS = 100 };

struct team {
	struct rig r;
	gs_param *p[THREADS];
	pthread_barrier_t barrier;
};

struct member {
	struct team *team;
	int i;
	int rc;
};

static void serve(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

static void team_up(struct team *team, enum wire_mode mode, void (*script)(struct fake *f))
{
	team->r.f.mode = mode;
	fake_start(&team->r.f, script);
	ck_ok(rig_connect(&team->r));
	for (int i = 0; i < THREADS; i++) {
		struct gs_param_desc d = GS_PARAM_DESC_INIT;
		char name[8];

		snprintf(name, sizeof(name), "p%d", i);
		d.name = name;
		d.ndim = 1;
		d.shape[0] = ELEMS;
		ck_ok(gs_declare(team->r.t, &d, &team->p[i]));
	}
	ck_ok(gs_start(team->r.t));
	pthread_barrier_init(&team->barrier, NULL, THREADS);
}

static void team_run(struct team *team, struct member *m, void *(*work)(void *))
{
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++) {
		m[i] = (struct member){.team = team, .i = i};
		pthread_create(&thread[i], NULL, work, &m[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&team->barrier);
}

/* Each pushes its own parameter, and reads its own and its neighbour's. */
static void *work_async(void *arg)
{
	struct member *m = arg;
	gs_trainer *t = m->team->r.t;
	gs_param *own = m->team->p[m->i], *next = m->team->p[(m->i + 1) % THREADS];
	float g[ELEMS], w[ELEMS], v[ELEMS], *buf;

	for (int i = 0; i < ELEMS; i++)
		g[i] = -1;
	for (int round = 1; round <= ROUNDS; round++) {
		gs_param *both[2] = {own, next};
		void *dst[2] = {w, v};

		if (round % 3 == 0) {
			ck_ok(gs_grad_buffer(t, own, (void **)&buf));
			memcpy(buf, g, sizeof(g));
			ck_ok(gs_push(t, own, buf));
		} else {
			ck_ok(gs_push(t, own, g));
		}
		if (round % 5 == 0)
			ck_ok(gs_wait_applied(t, own));
		ck_ok(gs_pull_many(t, both, dst, 2, round % 2 ? GS_ORDERED : GS_CONSISTENT));
		if (round % 2 || round % 5 == 0)
			ck_assert_float_eq(w[ELEMS - 1], (float)round);
	}
	return NULL;
}

START_TEST(async_threads)
{
	struct team team = {.r = {.f = {.mode = 0}}};
	struct member m[THREADS];

	team_up(&team, WIRE_ASYNC, serve);
	team_run(&team, m, work_async);
	ck_ok(gs_leave(team.r.t));
	rig_down(&team.r);
}
END_TEST

/* All push, one ends the step, all wait for it. */
static void *work_sync(void *arg)
{
	struct member *m = arg;
	gs_trainer *t = m->team->r.t;
	float g[ELEMS], w[ELEMS];

	for (int i = 0; i < ELEMS; i++)
		g[i] = -1;
	for (int step = 1; step <= ROUNDS; step++) {
		ck_ok(gs_push(t, m->team->p[m->i], g));
		pthread_barrier_wait(&m->team->barrier);
		if (m->i == 0)
			ck_ok(gs_step_post(t));
		pthread_barrier_wait(&m->team->barrier);
		if (m->i == step % THREADS) {
			ck_ok(gs_step_wait(t));
		} else {
			ck_ok(gs_wait_applied(t, m->team->p[m->i]));
		}
		pthread_barrier_wait(&m->team->barrier);
		ck_ok(gs_pull(t, m->team->p[(m->i + step) % THREADS], GS_RELAXED, w));
		ck_assert_float_eq(w[ELEMS - 1], (float)step);
		pthread_barrier_wait(&m->team->barrier);
	}
	return NULL;
}

START_TEST(sync_threads)
{
	struct team team = {.r = {.f = {.mode = 0}}};
	struct member m[THREADS];

	team_up(&team, WIRE_SYNC, serve);
	team_run(&team, m, work_sync);
	ck_ok(gs_leave(team.r.t));
	rig_down(&team.r);
}
END_TEST

/* One landing area, fought for by two: who waits for it may be the one that leads. */
static void *pull_the_same(void *arg)
{
	struct member *m = arg;
	float w[ELEMS];

	for (int round = 0; m->i < 2 && round < 2000; round++)
		ck_ok(gs_pull(m->team->r.t, m->team->p[0], GS_ORDERED, w));
	return NULL;
}

START_TEST(one_landing_area)
{
	struct team team = {.r = {.f = {.mode = 0}}};
	struct member m[THREADS];

	team_up(&team, WIRE_ASYNC, serve);
	team_run(&team, m, pull_the_same);
	rig_down(&team.r);
}
END_TEST

/* All wait, each for something else, when the server dies. */
static void *wait_for_ever(void *arg)
{
	struct member *m = arg;
	gs_trainer *t = m->team->r.t;
	gs_param *own = m->team->p[m->i];
	float g[ELEMS] = {0};

	switch (m->i) {
	case 0:
		m->rc = gs_push(t, own, g);
		if (m->rc == 0)
			m->rc = gs_wait_applied(t, own);
		break;
	case 1:
		m->rc = gs_pull(t, own, GS_ORDERED, g);
		break;
	default: /* two of them, for the same landing area */
		m->rc = gs_pull(t, m->team->p[2], GS_ORDERED, g);
	}
	ck_assert(strstr(gs_last_error(), "the server is gone"));
	return NULL;
}

static void die_later(struct fake *f)
{
	struct tp_event ev;

	fake_up_to(f, STAGE_STARTED);
	while (fake_next(f, &ev, 100))
		;
	fake_close(f);
}

START_TEST(death_wakes_all)
{
	struct team team = {.r = {.f = {.mode = 0}}};
	struct member m[THREADS];

	team_up(&team, WIRE_ASYNC, die_later);
	team_run(&team, m, wait_for_ever);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(m[i].rc, -ECONNRESET);
	rig_down(&team.r);
}
END_TEST

Suite *threads_suite(void)
{
	Suite *s = suite_create("trainer: threads");
	TCase *c = tcase_create("threads");

	tcase_set_timeout(c, 120);
	tcase_add_test(c, async_threads);
	tcase_add_test(c, sync_threads);
	tcase_add_test(c, one_landing_area);
	tcase_add_test(c, death_wakes_all);
	suite_add_tcase(s, c);
	return s;
}

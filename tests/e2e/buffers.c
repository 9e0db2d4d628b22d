/* SPDX-License-Identifier: Apache-2.0
 *
 * Several threads on one trainer, the zero-copy buffer, the view of the weights, many at once.
 */
#include <signal.h>
#include <unistd.h>

#include "cases.h"
#include "child.h"
#include "harness.h"

enum { THREADS = 4 };

struct shared {
	gs_trainer *t;
	gs_param *p[THREADS];
	uint64_t elems;
	uint32_t pushes;
};

struct task {
	struct shared *s;
	uint32_t i;
	pthread_t thread;
};

static void *push_own(void *arg)
{
	struct task *task = arg;
	struct shared *s = task->s;
	gs_param *p = s->p[task->i];
	float *own = malloc(s->elems * sizeof(float)), *buf;

	for (uint32_t n = 1; n <= s->pushes; n++) {
		buf = own;
		if ((n + task->i) % 2)
			ok(gs_grad_buffer(s->t, p, (void **)&buf));
		must((uintptr_t)buf % 64 == 0 || buf == own, "not aligned");
		for (uint64_t e = 0; e < s->elems; e++)
			buf[e] = (float)(task->i + 1);
		ok(gs_push(s->t, p, buf));
		if (n % 5 == 0) {
			ok(gs_pull(s->t, p, GS_ORDERED, own));
			must(own[s->elems - 1] == -(float)(n * (task->i + 1)), "after %u: %g", n,
			     (double)own[s->elems - 1]);
		}
		if (n % 7 == 0)
			ok(gs_wait_applied(s->t, p));
	}
	free(own);
	return NULL;
}

START_TEST(threads_push_different_parameters)
{
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct shared s = {.elems = 2000, .pushes = scaled(200, 15)};
	struct task task[THREADS];
	char name[8];
	struct bed bed;

	if (left_out(_i, 3))
		return;
	opt.workers = (uint32_t)_i;
	opt.block_kib = 1;
	bed_start(&bed, &opt);
	s.t = connect_as(bed.uri, 0);
	for (int i = 0; i < THREADS; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		s.p[i] = declare_line(s.t, name, s.elems, 1, 0);
	}
	ok(gs_start(s.t));
	for (uint32_t i = 0; i < THREADS; i++) {
		task[i] = (struct task){&s, i, 0};
		pthread_create(&task[i].thread, NULL, push_own, &task[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(task[i].thread, NULL);
	leave(s.t);
	bed_stop(&bed);
}
END_TEST

static void *push_once(void *arg)
{
	struct task *task = arg;
	float *buf;

	ok(gs_grad_buffer(task->s->t, task->s->p[task->i], (void **)&buf));
	for (uint64_t e = 0; e < task->s->elems; e++)
		buf[e] = 1;
	ok(gs_push(task->s->t, task->s->p[task->i], buf));
	return NULL;
}

/* Sync: threads push the parts of a step, one of them ends it; then all are read at once. */
START_TEST(a_step_of_several_threads)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct shared s = {.elems = 5000};
	struct task task[THREADS];
	void *dst[THREADS];
	char name[8];
	struct bed bed;

	bed_start(&bed, &opt);
	s.t = connect_as(bed.uri, 0);
	for (int i = 0; i < THREADS; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		s.p[i] = declare_line(s.t, name, s.elems, 1, i);
		dst[i] = malloc(s.elems * sizeof(float));
	}
	ok(gs_start(s.t));
	for (uint32_t step = 1; step <= scaled(30, 5); step++) {
		for (uint32_t i = 0; i < THREADS; i++) {
			task[i] = (struct task){&s, i, 0};
			pthread_create(&task[i].thread, NULL, push_once, &task[i]);
		}
		for (int i = 0; i < THREADS; i++)
			pthread_join(task[i].thread, NULL);
		ok(gs_step_end(s.t));
		ok(gs_pull_many(s.t, s.p, dst, THREADS, (enum gs_consistency)(step % 3)));
		for (int i = 0; i < THREADS; i++)
			for (uint64_t e = 0; e < s.elems; e++)
				must(((float *)dst[i])[e] == (float)i - (float)step,
				     "step %u, p%d: %g", step, i,
				     (double)((float *)dst[i])[e]);
	}
	gs_param *twice[] = {s.p[1], s.p[1]};
	for (int how = GS_RELAXED; how <= GS_ORDERED; how++)
		fails(gs_pull_many(s.t, twice, dst, 2, (enum gs_consistency)how), EINVAL, "\"p1\"",
		      "twice");
	ok(gs_pull_many(s.t, NULL, NULL, 0, GS_RELAXED));
	for (int i = 0; i < THREADS; i++)
		free(dst[i]);
	leave(s.t);
	bed_stop(&bed);
}
END_TEST

static void show_nothing(void *ctx, uint32_t i, uint64_t first, uint64_t count, const void *weights)
{
	must(false, "%llu elements of parameter %u were shown", (unsigned long long)count, i);
}

START_TEST(weights_in_place)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	const float *view = NULL;
	struct gs_info info;
	struct child child;
	gs_trainer *t;
	gs_param *p;
	float one[7] = {1, 1, 1, 1, 1, 1, 1};
	struct bed bed;

	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	p = declare_line(t, "w", 7, 1, 3);
	ok(gs_start(t));
	gs_get_info(t, &info);
	must(info.load_store == over_shm(), "load_store over %s", info.transport);
	if (!over_shm()) {
		fails(gs_weights_view(t, p, (const void **)&view), EOPNOTSUPP, "shm");
		must(!view, "an output was touched");
		fails(gs_step_view(t, &p, 1, show_nothing, NULL), EOPNOTSUPP, "shm");
	} else {
		ok(gs_weights_view(t, p, (const void **)&view));
		must(view[6] == 3, "initial");
		ok(gs_push(t, p, one));
		ok(gs_wait_applied(t, p));
		must(view[0] == 2 && view[6] == 2, "after a push");
		/* Who writes to it dies of it, alone. */
		child_start(&child, "scribble", bed.uri, NULL);
		child_says(&child, "writing");
		int status = child_end(&child);
		must(status != 0, "the weights let themselves be written (%d)", status);
		must(view[0] == 2 && view[6] == 2, "somebody wrote the weights");
		bed_wait_connected(&bed, 1);
		ok(gs_push(t, p, one));
		ok(gs_wait_applied(t, p));
		must(view[3] == 1, "the server went on");
	}
	leave(t);
	bed_stop(&bed);
}
END_TEST

TCase *buffers_case(void)
{
	TCase *t = e2e_wire_case("buffers");

	tcase_add_loop_test(t, threads_push_different_parameters, 0, 3);
	tcase_add_test(t, a_step_of_several_threads);
	tcase_add_test(t, weights_in_place);
	return t;
}

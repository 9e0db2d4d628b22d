/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_reconnect, by whom and when: before there is anything to lose, by several threads, by a child;
 * and that it leaves nothing behind.
 */
#include "keeper.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/trainer.h"

static void serve(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

START_TEST(not_lost)
{
	struct rig r = {.f = {.mode = 0}};
	int rewound;

	rig_up(&r, WIRE_ASYNC, serve);
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "it works");
	ck_fails(gs_reconnect(r.t, NULL), EINVAL, "NULL");
	ck_fails(gs_reconnect(NULL, &rewound), EINVAL, "NULL");
	ck_ok(gs_leave(r.t));
	ck_fails(gs_reconnect(r.t, &rewound), EINVAL, "the trainer has lost no server");
	rig_down(&r);
}
END_TEST

/* The server goes before there was anything to lose: at each stage; the second one is there. */
static void go_early(struct fake *f)
{
	fake_up_to(f, *(enum stage *)f->arg);
	fake_gate(f, 1);
	fake_drop(f);
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

START_TEST(lost_before_the_start)
{
	enum stage last = (enum stage)_i;
	struct rig r = {.f = {.arg = &last, .mode = WIRE_SYNC}};
	float w[W_ELEMS] = {0};
	int rewound = 7;

	fake_start(&r.f, go_early);
	ck_ok(rig_connect(&r));
	rig_declare(&r, NULL);
	atomic_store(&r.f.allow, 1);
	if (last > STAGE_WELCOMED)
		ck_assert_int_eq(gs_start(r.t), -ECONNRESET);
	while (last == STAGE_WELCOMED && rig_try_declare(&r, NULL) == -EEXIST)
		usleep(1000);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 1);
	if (last == STAGE_WELCOMED)
		ck_ok(gs_start(r.t)); /* it is yet to be called */
	else
		ck_fails(gs_start(r.t), EBUSY, "called already");
	ck_ok(gs_push(r.t, r.w, w));
	ck_ok(gs_step_end(r.t));
	rig_down(&r);
}
END_TEST

static void *wait_for_step(void *arg)
{
	struct rig *r = arg;

	ck_assert_int_eq(gs_step_wait(r->t), -ECONNRESET);
	return NULL;
}

static void lose_two(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_expect_imm(f, IMM_BARRIER);
	fake_expect_imm(f, IMM_PULL);
	fake_drop(f);
	f->resumes = true;
	fake_up_to(f, STAGE_STARTED);
	fake_serve(f);
}

/* Two threads wait when it goes. */
START_TEST(lost_by_two_threads)
{
	struct rig r = {.f = {.mode = 0}};
	float b[B_ELEMS];
	pthread_t thread;
	int rewound;

	rig_up(&r, WIRE_SYNC, lose_two);
	ck_ok(gs_step_post(r.t));
	pthread_create(&thread, NULL, wait_for_step, &r);
	usleep(20000);
	ck_assert_int_eq(gs_pull(r.t, r.b, GS_ORDERED, b), -ECONNRESET);
	pthread_join(thread, NULL);
	ck_ok(gs_reconnect(r.t, &rewound));
	ck_assert_int_eq(rewound, 0);
	ck_ok(gs_step_wait(r.t));
	ck_ok(gs_pull(r.t, r.b, GS_ORDERED, b));
	ck_ok(gs_step_end(r.t));
	rig_down(&r);
}
END_TEST

static void *find_nobody(void *arg)
{
	struct rig *r = arg;
	int rewound;

	ck_assert_int_eq(gs_reconnect(r->t, &rewound), -ECONNREFUSED);
	return NULL;
}

/* Each of two threads hears that it is gone: the second to come is told that there is another. */
START_TEST(two_threads_come_back)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS] = {0};
	pthread_t thread;
	int rewound;

	rig_up_for(&r, WIRE_ASYNC, fake_end_for_good, 2000);
	rig_be_lost(&r);
	pthread_create(&thread, NULL, find_nobody, &r);
	usleep(300000);
	ck_fails(gs_reconnect(r.t, &rewound), EBUSY, "another thread");
	ck_fails(gs_push(r.t, r.w, w), ECONNRESET, "another thread");
	pthread_join(thread, NULL);
	ck_fails(gs_push(r.t, r.w, w), ECONNRESET, "the server is gone");
	find_nobody(&r);
	rig_down(&r);
}
END_TEST

/* What a child can't do its parent still can. */
START_TEST(a_forked_child)
{
	struct keeper k;

	keeper_init(&k, WIRE_SYNC, 2);
	k.end_after[0] = 6;
	keeper_up(&k);
	pid_t pid = fork();
	if (pid == 0) {
		int rewound;
		int rc = gs_reconnect(k.r.t, &rewound);

		gs_close(k.r.t);
		_exit(rc == -EINVAL && strstr(gs_last_error(), "parent") ? 0 : 1);
	}
	int status;
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	keeper_train(&k);
	ck_assert_int_gt(k.returns, 0);
	keeper_down(&k);
}
END_TEST

/* ---- nothing is left behind ------------------------------------------------------------------ */

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int count_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int n = 0;

	/* Arenas and rings; the allocator's own come and go. */
	for (char line[512]; fgets(line, sizeof(line), maps);)
		n += strstr(line, "memfd:") != NULL;
	fclose(maps);
	return n;
}

static void lose_often(struct fake *f)
{
	for (;;) {
		struct tp_event ev;

		if (!fake_try_accept(f))
			return;
		f->stage_done = STAGE_HELLO;
		fake_up_to(f, f->sessions % 5 == 3 ? STAGE_ATTACHED : STAGE_STARTED);
		while (f->stage_done > STAGE_STARTED && fake_next(f, &ev, FAKE_WAIT_MS) &&
		       ev.kind == TP_EV_IMM && imm_unpack(ev.imm).kind != IMM_BARRIER)
			;
		fake_drop(f);
		f->resumes = true;
		memset(f->kept, 0, sizeof(f->kept));
	}
}

START_TEST(nothing_is_left)
{
	struct rig r = {.f = {.mode = 0}};
	float w[W_ELEMS] = {0};
	int fds = 0, maps = 0, rewound;

	rig_up_for(&r, WIRE_SYNC, lose_often, 5000);
	ck_ok(gs_push(r.t, r.w, w));
	for (int i = 0; i < 200; i++) {
		ck_assert_int_eq(gs_step_end(r.t), -ECONNRESET);
		r.t->attempts = 0; /* there is no time to wait longer and longer */
		ck_ok(gs_reconnect(r.t, &rewound));
		ck_assert_int_eq(rewound, 0);
		if (i == 20) {
			fds = count_fds(); /* give or take a connection */
			maps = count_maps();
		}
	}
	ck_assert_int_le(count_fds(), fds + 20);
	ck_assert_int_le(count_maps(), maps + 20);
	atomic_store(&r.f.done, true);
	rig_down(&r);
}
END_TEST

TCase *reconnect_states_case(void)
{
	TCase *t = tcase_create("states");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, not_lost);
	tcase_add_loop_test(t, lost_before_the_start, STAGE_WELCOMED, STAGE_STARTED);
	tcase_add_test(t, lost_by_two_threads);
	tcase_add_test(t, two_threads_come_back);
	tcase_add_test(t, a_forked_child);
	tcase_add_test(t, nothing_is_left);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * When checkpoints are written, who is told, and what happens when they can't be.
 */
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cases.h"
#include "raw.h"
#include "saves.h"

/* ---- failing --------------------------------------------------------------------------------- */

START_TEST(disk_full)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	struct rlimit was, small;
	struct raw r;
	struct bed b;

	saves_begin();
	signal(SIGXFSZ, SIG_IGN);
	bed_start(&b, &opt);
	raw_join(&r, b.uri, 0);
	raw_wait_start(&r);
	getrlimit(RLIMIT_FSIZE, &was);
	small = (struct rlimit){2000, was.rlim_max};
	setrlimit(RLIMIT_FSIZE, &small);
	raw_send(&r, &(struct wire_msg){.kind = WIRE_SAVE});
	raw_barrier(&r, 1);
	struct wire_msg m = raw_expect(&r, WIRE_SAVED);
	must(m.saved.failed && m.saved.code == WIRE_E_STORE, "saved");
	has_words(m.saved.text, (const char *const[]){saves_dir, NULL});
	must(bed_stats(&b).checkpoint_failures == 1 && bed_stats(&b).checkpoints == 0, "counts");
	must(saves_left() == 0, "something is left in %s", saves_dir);
	setrlimit(RLIMIT_FSIZE, &was);
	raw_wait_release(&r, 1);
	raw_send(&r, &(struct wire_msg){.kind = WIRE_SAVE});
	raw_barrier(&r, 2);
	m = raw_expect(&r, WIRE_SAVED);
	must(!m.saved.failed && m.saved.step == saves_newest_step(), "saved");
	raw_close(&r);
	bed_stop(&b);
	saves_end();
}
END_TEST

/* ---- asking ---------------------------------------------------------------------------------- */

START_TEST(asked_for)
{
	struct srv_options opt = saves_options(3, SRV_ASYNC);
	struct raw r[3];
	struct wire_msg m;
	struct bed b;

	saves_begin();
	opt.block_kib = 1;
	bed_start(&b, &opt);
	for (uint32_t i = 0; i < 3; i++) {
		raw_join(&r[i], b.uri, (int32_t)i);
		raw_wait_start(&r[i]);
	}
	for (uint32_t i = 0; i < 3; i++)
		raw_send(&r[i], &(struct wire_msg){.kind = WIRE_SAVE});
	raw_close(&r[2]); /* does not hear it */
	for (uint32_t i = 0; i < 2; i++) {
		m = raw_expect(&r[i], WIRE_SAVED);
		must(!m.saved.failed, "failed: %s", m.saved.text);
		/* Data may come behind it. */
		raw_gradient(&r[i], 1, 0, 0, 1, true);
		raw_wait_credit(&r[i], 4, 1);
	}
	must(bed_stats(&b).checkpoints >= 1 && bed_stats(&b).checkpoints <= 3, "count");
	must(bed_stats(&b).violations == 0, "violations");
	raw_close(&r[0]);
	raw_close(&r[1]);
	bed_stop(&b);
	saves_end();
}
END_TEST

/* A wish that was answered costs nothing: a trainer may have one in each step, as fast as the server
 * answers. (It talks in single file: hello, declare, attach and all wishes are more than the burst.) */
START_TEST(asked_for_often)
{
	struct srv_options opt = saves_options(1, SRV_ASYNC);
	struct bed b;
	struct raw r;

	saves_begin();
	opt.talk_rate = 1;
	opt.talk_burst = 8;
	if (_i) /* a refusal is an answer */
		opt.checkpoint_dir = NULL;
	bed_start(&b, &opt);
	raw_join(&r, b.uri, 0);
	raw_wait_start(&r);
	for (uint32_t i = 0; i < scaled(100, 30); i++) {
		raw_send(&r, &(struct wire_msg){.kind = WIRE_SAVE});
		must(raw_expect(&r, WIRE_SAVED).saved.failed == (_i == 1), "saved");
	}
	raw_bye(&r);
	must(bed_stats(&b).flooded == 0, "flooded");
	bed_stop(&b);
	saves_end();
}
END_TEST

/* Each asks in the same step, ends it, and waits before it goes on: the end of that step is what they
 * get, and one checkpoint for both. */
START_TEST(waited_for)
{
	struct srv_options opt = saves_options(2, SRV_SYNC);
	struct wire_msg m;
	struct raw r[2];
	struct bed b;

	saves_begin();
	opt.workers = _i % 2 ? 0 : 1;
	bed_start(&b, &opt);
	for (uint32_t i = 0; i < 2; i++)
		raw_join(&r[i], b.uri, (int32_t)i);
	for (uint32_t i = 0; i < 2; i++)
		raw_wait_start(&r[i]);
	for (uint64_t step = 1; step <= 20; step++) {
		for (uint32_t i = 0; i < 2; i++) {
			raw_gradient(&r[i], 1, 0, step % 2, 1, false);
			raw_send(&r[i], &(struct wire_msg){.kind = WIRE_SAVE});
			raw_barrier(&r[i], step);
		}
		if (step % 3 == 0)
			srv_checkpoint(b.srv);
		for (uint32_t i = 0; i < 2; i++) {
			raw_wait_release(&r[i], step);
			m = raw_expect(&r[i], WIRE_SAVED);
			must(!m.saved.failed && m.saved.step == step, "step %llu in step %llu",
			     (unsigned long long)m.saved.step, (unsigned long long)step);
		}
		raw_barrier(&r[0], ++step);
		raw_barrier(&r[1], step);
		for (uint32_t i = 0; i < 2; i++)
			raw_wait_release(&r[i], step);
	}
	must(bed_stats(&b).checkpoint_failures == 0, "failures");
	raw_close(&r[0]);
	raw_close(&r[1]);
	bed_stop(&b);
	saves_end();
}
END_TEST

/* The library's way: what a trainer asks for in a step, it may wait for right behind it. */
static void *ask_and_wait(void *arg)
{
	gs_trainer *t = arg;

	ok(gs_start(t));
	for (uint64_t step = 1; step <= 20; step++) {
		uint64_t saved = 0;

		ok(gs_checkpoint(t));
		fails(gs_checkpoint(t), EALREADY, "already");
		ok(gs_step_end(t));
		ok(gs_checkpoint_wait(t, &saved));
		must(saved == step, "step %llu in step %llu", (unsigned long long)saved,
		     (unsigned long long)step);
		fails(gs_checkpoint_wait(t, &saved), EDEADLK, "asked");
	}
	return NULL;
}

START_TEST(by_the_library)
{
	struct srv_options opt = saves_options(2, SRV_SYNC);
	pthread_t thread[2];
	gs_trainer *t[2];
	struct bed b;

	saves_begin();
	opt.checkpoint_steps = _i ? 1 : 0; /* beside those that come by themselves */
	bed_start(&b, &opt);
	for (int32_t i = 0; i < 2; i++) {
		t[i] = connect_as(b.uri, i);
		declare_line(t[i], "w", 3000, 1, 0);
		must(pthread_create(&thread[i], NULL, ask_and_wait, t[i]) == 0, "thread");
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < 2; i++)
		leave(t[i]);
	bed_stop(&b);
	saves_end();
}
END_TEST

START_TEST(library_is_refused)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	gs_trainer *t;
	struct bed b;

	bed_start(&b, &opt);
	t = connect_as(b.uri, 0);
	declare_line(t, "w", 10, 1, 0);
	ok(gs_start(t));
	ok(gs_checkpoint(t));
	ok(gs_step_end(t));
	fails(gs_checkpoint_wait(t, NULL), ENOENT, "keeps no checkpoints");
	leave(t);
	bed_stop(&b);
}
END_TEST

START_TEST(nowhere_to_write)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct raw r;
	struct wire_msg m;
	struct bed b;

	bed_start(&b, &opt);
	raw_join(&r, b.uri, 0);
	raw_wait_start(&r);
	raw_send(&r, &(struct wire_msg){.kind = WIRE_SAVE});
	m = raw_expect(&r, WIRE_SAVED);
	must(m.saved.failed && m.saved.code == WIRE_E_MISMATCH, "saved");
	has_words(m.saved.text, (const char *const[]){"keeps no checkpoints", NULL});
	srv_checkpoint(b.srv);
	raw_close(&r);
	bed_stop(&b);
}
END_TEST

START_TEST(asked_twice)
{
	struct srv_options opt = saves_options(2, SRV_SYNC);
	struct raw r[2];
	struct bed b;

	saves_begin();
	bed_start(&b, &opt);
	for (uint32_t i = 0; i < 2; i++)
		raw_join(&r[i], b.uri, (int32_t)i);
	for (uint32_t i = 0; i < 2; i++)
		raw_wait_start(&r[i]);
	raw_send(&r[0], &(struct wire_msg){.kind = WIRE_SAVE});
	raw_send(&r[0], &(struct wire_msg){.kind = WIRE_SAVE});
	RAW_ENDS(&r[0], WIRE_E_PROTOCOL, "checkpoint", "waits");
	raw_close(&r[1]);
	bed_stop(&b);
	saves_end();
}
END_TEST

static bool is_quiet(void *arg)
{
	struct bed *b = arg;
	uint64_t n = bed_stats(b).checkpoints;

	nap_us(300000);
	return bed_stats(b).checkpoints == n;
}

/* By steps, and by time; the last ones are kept. */
START_TEST(cadence)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	uint64_t *number, before;
	gs_trainer *t;
	uint32_t n;
	struct bed b;

	saves_begin();
	opt.keep = 2;
	if (_i == 0)
		opt.checkpoint_steps = 4;
	else
		opt.checkpoint_ms = 50;
	bed_start(&b, &opt);
	t = connect_as(b.uri, 0);
	declare_line(t, "w", 100, 1, 0);
	ok(gs_start(t));
	for (uint32_t s = 0; s < 20 && _i == 0; s++) {
		ok(gs_step_end(t));
		nap_us(5000);
	}
	must(_i || bed_stats(&b).checkpoints <= 5, "%llu", (unsigned long long)bed_stats(&b).checkpoints);
	/* One that is due while another is being written is left out: more steps, on a slow disk. */
	while (bed_stats(&b).checkpoints < 3)
		ok(gs_step_end(t));
	leave(t);
	wait_until(is_quiet, &b, "an end of it, since nothing changes any more");
	before = bed_stats(&b).checkpoints;
	bed_stop(&b);
	ok(checkpoint_list(saves_dir, &number, &n));
	must(n == 2 && number[1] > before, "%u are kept, the last is %llu of %llu", n,
	     (unsigned long long)number[1], (unsigned long long)before);
	free(number);
	saves_end();
}
END_TEST

/* ---- the end --------------------------------------------------------------------------------- */

/* Stopped in the midst of a step: that is finished, and in the checkpoint. */
START_TEST(stopped_in_a_step)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	struct raw r;
	struct bed b;

	saves_begin();
	bed_start(&b, &opt);
	raw_join(&r, b.uri, 0);
	raw_wait_start(&r);
	raw_barrier(&r, 1);
	raw_wait_release(&r, 1);
	raw_gradient(&r, 1, 0, 0, 1, false);
	srv_stop(b.srv);
	nap_us(200000);
	must(bed_stats(&b).connected == 1 && bed_stats(&b).checkpoints == 0, "it did not wait");
	raw_barrier(&r, 2);
	pthread_join(b.thread, NULL);
	must(b.rc == 0, "srv_run: %d", b.rc);
	must(bed_stats(&b).checkpoint_step == 2, "step");
	srv_destroy(b.srv);
	must(saves_newest_step() == 2, "step");
	raw_free(&r);
	saves_end();
}
END_TEST

/* It does not end: after stop_ms, or when the server is stopped again. */
START_TEST(stopped_in_vain)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	struct raw r;
	struct bed b;

	saves_begin();
	opt.stop_ms = _i ? 3600 * 1000 : 100;
	bed_start(&b, &opt);
	raw_join(&r, b.uri, 0);
	raw_wait_start(&r);
	raw_gradient(&r, 1, 0, 0, 1, false);
	srv_stop(b.srv);
	if (_i) {
		nap_us(50000);
		srv_stop(b.srv);
	}
	pthread_join(b.thread, NULL);
	must(b.rc == (_i ? -ECANCELED : -ETIME), "srv_run: %d", b.rc);
	srv_destroy(b.srv);
	must(saves_left() == 0, "something is left in %s", saves_dir);
	raw_free(&r);
	saves_end();
}
END_TEST

/* What stop_ms bounds is the step: not how long the files take, nor the checkpoint before. */
START_TEST(stopped_with_much_to_write)
{
	struct srv_options opt = saves_options(1, _i ? SRV_SYNC : SRV_ASYNC);
	struct bed b;
	gs_trainer *t;

	saves_begin();
	opt.stop_ms = 1;
	bed_start(&b, &opt);
	t = connect_as(b.uri, 0);
	declare_line(t, "long", scaled(16 << 20, 1 << 20), 0.5, 1);
	ok(gs_start(t));
	leave(t);
	srv_checkpoint(b.srv);
	nap_us(2000);
	bed_stop(&b);
	must(saves_left() >= 1, "the last one was not written");
	saves_end();
}
END_TEST

/* With nobody there, nothing declared, and a server that was not even run. */
START_TEST(nothing_to_write)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	struct srv *srv;
	struct bed b;

	saves_begin();
	ok(srv_create(&opt, &srv));
	srv_checkpoint(srv);
	srv_destroy(srv);
	bed_start(&b, &opt);
	srv_checkpoint(b.srv);
	bed_stop(&b);
	must(saves_left() == 0, "something is left in %s", saves_dir);
	saves_end();
}
END_TEST

/* A server that is started and stopped again and again, while nobody trains, keeps what there is. */
START_TEST(stopped_without_a_push)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	struct bed b;

	saves_begin();
	for (int i = 0; i < 3; i++) {
		gs_trainer *t;
		gs_param *p;

		bed_start(&b, &opt);
		t = connect_as(b.uri, 0);
		p = declare_line(t, "w", 10, 1, 0);
		ok(gs_start(t));
		if (i == 0) {
			ok(gs_push(t, p, (float[10]){1}));
			ok(gs_step_end(t));
		}
		leave(t);
		bed_stop(&b);
		must(saves_left() == 1, "%u checkpoints after %d starts", saves_left(), i + 1);
		opt.n_restore = 1;
		opt.restore[0] = saves_dir;
	}
	must(saves_newest_step() == 1, "step %llu", (unsigned long long)saves_newest_step());
	saves_end();
}
END_TEST

TCase *saving_case(void)
{
	TCase *t = e2e_case("saving");

	tcase_add_test(t, disk_full);
	tcase_add_test(t, asked_for);
	tcase_add_loop_test(t, asked_for_often, 0, 2);
	tcase_add_loop_test(t, waited_for, 0, 2);
	tcase_add_loop_test(t, by_the_library, 0, 2);
	tcase_add_test(t, library_is_refused);
	tcase_add_test(t, nowhere_to_write);
	tcase_add_test(t, asked_twice);
	tcase_add_loop_test(t, cadence, 0, 2);
	tcase_add_test(t, stopped_in_a_step);
	tcase_add_loop_test(t, stopped_in_vain, 0, 2);
	tcase_add_loop_test(t, stopped_with_much_to_write, 0, 2);
	tcase_add_test(t, nothing_to_write);
	tcase_add_test(t, stopped_without_a_push);
	return t;
}

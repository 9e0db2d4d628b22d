/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer of a benchmark against a server of this process: it counts what it did, and notices
 * when the weights say something else.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "perf/loops.h"
#include "run.h"
#include "server/server.h"

static struct srv *srv;
static pthread_t thread;
static char uri[64];

static void *serve(void *arg)
{
	(void)arg;
	ck_assert_int_eq(srv_run(srv), 0);
	return NULL;
}

static void start(enum srv_mode mode)
{
	struct srv_options opt = srv_options_default();

	snprintf(uri, sizeof(uri), "shm:peer-test-%d", (int)getpid());
	opt.listen[0] = uri;
	opt.n_listen = 1;
	opt.mode = mode;
	opt.spin_us = 0;
	opt.block_kib = 4; /* several blocks a parameter */
	opt.on_loss = SRV_LOSS_CONTINUE;
	ck_assert_msg(srv_create(&opt, &srv) == 0, "%s", err_text());
	ck_assert_int_eq(pthread_create(&thread, NULL, serve, NULL), 0);
}

static void stop(void)
{
	srv_stop(srv);
	pthread_join(thread, NULL);
	srv_destroy(srv);
}

static struct peer_config config(void)
{
	return (struct peer_config){
	    .uri = uri,
	    .server = getpid(),
	    .bytes = 10000,
	    .params = 3,
	    .optimizer = "sgd",
	    .table = 50,
	    .warmup = PEER_WARMUP_MIN,
	    .iters = 20,
	};
}

static void run_well(const struct peer_loop *loop, const struct peer_config *c, uint64_t pushed)
{
	struct peer_result r;

	ck_assert_msg(peer_run(loop, c, &r) == 0, "%s", err_text());
	ck_assert_uint_eq(r.n, c->iters);
	ck_assert_uint_eq(r.pushed, pushed);
	ck_assert_uint_eq(r.after, r.before + r.pushed);
	ck_assert_uint_gt(r.meter.wall_ns, 0);
	ck_assert_uint_gt(r.meter.cpu_ns, 0);
	/* The server is this process, too. */
	ck_assert_uint_gt(r.meter.server_cpu_ns, 0);
	ck_assert_uint_eq(r.trainers, 1);
	ck_assert_str_eq(r.transport, "shm");
	peer_free(&r);
}

static const struct peer_loop *const loops[] = {&perf_latency, &perf_push, &perf_pull,
						&perf_connect, &perf_rows};

START_TEST(counts_in_async_mode)
{
	static const uint64_t pushed[] = {28, 28, 1, 28, 28 * 3};
	struct peer_config c = config();

	start(SRV_ASYNC);
	c.copy = loops[_i] == &perf_connect;
	run_well(loops[_i], &c, pushed[_i]);
	stop();
}
END_TEST

START_TEST(counts_in_sync_mode)
{
	static const struct peer_loop *const all[] = {&perf_latency, &perf_scale, &perf_scale_one,
						      &perf_rows};
	struct peer_config c = config();

	start(SRV_SYNC);
	c.sync = true;
	c.many = true;
	c.one = all[_i] == &perf_scale_one;
	run_well(all[_i], &c, all[_i] == &perf_rows ? 28 * 3 : 28);
	stop();
}
END_TEST

/* Whichever way gradients leave and weights come. */
START_TEST(counts_however_it_is_done)
{
	struct peer_config c = config();

	start(SRV_ASYNC);
	c.copy = _i & 1;
	c.many = _i & 2;
	c.read = (enum peer_read)(_i / 4);
	run_well(&perf_latency, &c, 28);
	/* The weights go on from what they are. */
	run_well(&perf_latency, &c, 28);
	stop();
}
END_TEST

/* ---- what must not look fast ---------------------------------------------------------------- */

static int lose(struct peer *p, uint64_t ns[PEER_SERIES])
{
	ns[0] = 1;
	p->pushed++;
	return 0;
}

static int double_push(struct peer *p, uint64_t ns[PEER_SERIES])
{
	int rc = peer_push_applied(p);

	ns[0] = 1;
	if (rc == 0)
		rc = peer_push_applied(p);
	p->pushed--;
	return rc;
}

/* Only one of the parameters. */
static int tear(struct peer *p, uint64_t ns[PEER_SERIES])
{
	int rc = peer_gradient(p, 0);

	ns[0] = 1;
	if (rc == 0)
		rc = peer_lib(gs_push(p->trainer, p->param[0], p->grad[0]));
	p->pushed++;
	return rc;
}

static uint32_t one(const struct peer_config *c)
{
	(void)c;
	return 1;
}

static uint64_t none(const struct peer_config *c)
{
	(void)c;
	return 0;
}

START_TEST(notices_what_is_wrong)
{
	static int (*const wrong[])(struct peer *, uint64_t *) = {lose, double_push, tear};
	const struct peer_loop loop = {.name = "wrong",
				       .unit = "",
				       .count = "",
				       .series = {"all"},
				       .once = wrong[_i],
				       .messages = one,
				       .moved = none};
	struct peer_config c = config();
	struct peer_result r;

	start(SRV_ASYNC);
	ck_assert_int_eq(peer_run(&loop, &c, &r), -EBADMSG);
	stop();
}
END_TEST

START_TEST(wants_the_mode_that_it_was_told)
{
	struct peer_config c = config();
	struct peer_result r;

	start(SRV_SYNC);
	ck_assert_int_eq(peer_run(&perf_latency, &c, &r), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "--mode"));
	stop();
}
END_TEST

START_TEST(stops_where_weights_can_not_count)
{
	struct peer_config c = config();
	struct peer_result r;

	start(SRV_ASYNC);
	c.iters = PEER_GRADIENTS_MAX;
	c.bytes = 4;
	ck_assert_int_eq(peer_run(&perf_push, &c, &r), -EOVERFLOW);
	stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer");
	TCase *tc = tcase_create("peer");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, counts_in_async_mode, 0, 5);
	tcase_add_loop_test(tc, counts_in_sync_mode, 0, 4);
	tcase_add_loop_test(tc, counts_however_it_is_done, 0, 16);
	tcase_add_loop_test(tc, notices_what_is_wrong, 0, 3);
	tcase_add_test(tc, wants_the_mode_that_it_was_told);
	tcase_add_test(tc, stops_where_weights_can_not_count);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	return run_all(runner);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's options: the defaults hold, each limit is kept, and the text names it.
 */
#include "server/options.h"

#include <errno.h>

#include "suite.h"

static struct srv_options good(void)
{
	struct srv_options opt = srv_options_default();

	opt.listen[0] = "shm:options";
	opt.n_listen = 1;
	return opt;
}

START_TEST(defaults_hold)
{
	struct srv_options opt = good();

	ck_assert_int_eq(options_check(&opt), 0);
	ck_assert_uint_eq(opt.trainers, 1);
	ck_assert_int_eq(opt.mode, SRV_SYNC);
	ck_assert_uint_eq(opt.block_kib, 256);
	ck_assert_uint_eq(opt.slots, 2);
	ck_assert_int_eq(opt.on_loss, SRV_LOSS_WAIT);
	ck_assert_uint_eq(opt.loss_wait_ms, 30000);
	ck_assert_uint_eq(opt.keepalive_ms, 5000);
	opt.keepalive_ms = 0;
	opt.workers = 0;
	opt.spin_us = SRV_SPIN_FOREVER;
	ck_assert_int_eq(options_check(&opt), 0);
}
END_TEST

#define REFUSED(change, ...)                                    \
	do {                                                    \
		struct srv_options opt = good();                \
		change;                                         \
		ck_assert_int_eq(options_check(&opt), -EINVAL); \
		EXPECT_TEXT(__VA_ARGS__);                       \
	} while (0)

START_TEST(limits_are_named)
{
	REFUSED(opt.n_listen = 0, "listeners", "is 0", "1 to 8");
	REFUSED(opt.n_listen = 9, "listeners", "is 9", "1 to 8");
	REFUSED(opt.trainers = 0, "trainers", "is 0", "1 to 1024");
	REFUSED(opt.trainers = 1025, "trainers", "1025", "1 to 1024");
	REFUSED(opt.mode = 0, "mode", "is 0", "1 to 3");
	REFUSED(opt.mode = 4, "mode", "is 4", "1 to 3");
	REFUSED(opt.pollers = 0, "pollers", "is 0", "1 to 64");
	REFUSED(opt.pollers = 65, "pollers", "65", "1 to 64");
	REFUSED(opt.workers = 257, "workers", "257", "0 to 256");
	REFUSED(opt.huge_pages = 3, "huge pages", "is 3", "0 to 2");
	REFUSED(opt.block_kib = 0, "block size", "is 0", "1 to 1048576");
	REFUSED(opt.block_kib = 1048577, "block size", "1048577", "1 to 1048576");
	REFUSED(opt.slots = 0, "slots", "is 0", "1 to 8");
	REFUSED(opt.slots = 9, "slots", "is 9", "1 to 8");
	REFUSED(opt.talk_ms = 0, "silence", "is 0", "1 to 3600000");
	REFUSED(opt.talk_rate = 0, "messages a second", "is 0", "1 to 1000000");
	REFUSED(opt.talk_burst = 0, "messages at once", "is 0", "1 to 1073741824");
	REFUSED(opt.on_loss = 3, "losses", "is 3", "0 to 2");
	REFUSED(opt.on_straggler = 3, "stragglers", "is 3", "0 to 2");
	REFUSED(opt.keepalive_ms = 299, "keepalive", "is 299", "300 to");
	REFUSED(opt.keep = 0, "kept", "is 0", "1 to");
	REFUSED(opt.n_restore = 17, "restore", "is 17", "0 to 16");
	REFUSED(opt.n_restore = 1, "restore 0");
	REFUSED(opt.stop_ms = 0, "stop", "is 0", "1 to");
	REFUSED(opt.checkpoint_steps = 5, "no directory");
	REFUSED(opt.checkpoint_ms = 5, "no directory");
	REFUSED((opt.checkpoint_dir = "/tmp", opt.checkpoint_steps = 5, opt.mode = SRV_ASYNC), "5",
		"async");
	REFUSED(opt.spin_us = -2, "spin", "-2");
	REFUSED(opt.n_listen = 2, "listener 1");
}
END_TEST

/* Without a key only this host may reach a server that nobody called insecure. */
START_TEST(who_may_come_without_a_key)
{
	static const char *const near[] = {"shm:x", "rdma://127.0.0.1:0", "rdma://localhost:7",
					   "rdma://[::1]:7"};
	static const char *const far[] = {"rdma://10.0.0.1:0", "rdma://*:7", "rdma://host:7",
					  "rdma://[fd00::1]:7"};

	for (unsigned i = 0; i < 4; i++) {
		struct srv_options opt = good();

		opt.n_listen = 2;
		opt.listen[1] = near[i];
		ck_assert_int_eq(options_check(&opt), 0);
		opt.listen[1] = far[i];
		ck_assert_int_eq(options_check(&opt), -EACCES);
		EXPECT_TEXT(far[i], "no key", "--key-file", "--insecure", "chmod 600");
		opt.insecure = true;
		ck_assert_int_eq(options_check(&opt), 0);
		opt.insecure = false;
		opt.key_file = "key";
		ck_assert_int_eq(options_check(&opt), 0);
	}
}
END_TEST

START_TEST(a_key_that_can_not_be_had)
{
	struct srv_options opt = good();
	struct srv *srv = NULL;

	opt.key_file = "/nowhere/key";
	ck_assert_int_eq(srv_create(&opt, &srv), -ENOENT);
	EXPECT_TEXT("/nowhere/key");
	/* Insecure does not make it optional. */
	opt.insecure = true;
	opt.key_file = "/dev/null";
	ck_assert_int_eq(srv_create(&opt, &srv), -EINVAL);
	EXPECT_TEXT("not a regular file");
	ck_assert_ptr_null(srv);
}
END_TEST

START_TEST(a_server_refuses_them_too)
{
	struct srv_options opt = good();
	struct srv *srv = NULL;

	opt.slots = 100;
	ck_assert_int_eq(srv_create(&opt, &srv), -EINVAL);
	ck_assert_ptr_null(srv);
	opt = good();
	opt.listen[0] = "carrier-pigeon:7";
	ck_assert_int_eq(srv_create(&opt, &srv), -EINVAL);
	EXPECT_TEXT("carrier-pigeon");
	ck_assert_ptr_null(srv);
	srv_destroy(NULL);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("options");

	tcase_add_test(t, defaults_hold);
	tcase_add_test(t, limits_are_named);
	tcase_add_test(t, who_may_come_without_a_key);
	tcase_add_test(t, a_key_that_can_not_be_had);
	tcase_add_test(t, a_server_refuses_them_too);
	return run_suite("options", t);
}

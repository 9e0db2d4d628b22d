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
	REFUSED(opt.block_kib = 0, "block size", "is 0", "1 to 1048576");
	REFUSED(opt.block_kib = 1048577, "block size", "1048577", "1 to 1048576");
	REFUSED(opt.slots = 0, "slots", "is 0", "1 to 8");
	REFUSED(opt.slots = 9, "slots", "is 9", "1 to 8");
	REFUSED(opt.talk_ms = 0, "silence", "is 0", "1 to 3600000");
	REFUSED(opt.spin_us = -2, "spin", "-2");
	REFUSED(opt.n_listen = 2, "listener 1");
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
	tcase_add_test(t, a_server_refuses_them_too);
	return run_suite("options", t);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a server whose step waits for a lost trainer, or that is to exit when all is done.
 */
#include "cases.h"
#include "losses.h"

/* It does not exit while one is waited for. */
START_TEST(exit_when_done_waits_for_the_lost)
{
	struct srv_options opt = loss_options(1, 300000);
	struct raw r, back;
	struct bed bed;

	opt.exit_when_done = true;
	bed_start(&bed, &opt);
	loss_join(&r, 1, bed.uri);
	loss_of(&r, &bed, 1);
	bed_wait_connected(&bed, 0);
	nap_us(250000);
	loss_resume(&back, bed.uri, 0, &r);
	raw_wait_start(&back);
	raw_bye(&back);
	bed_done(&bed);
}
END_TEST

/* The server is stopped while its step waits for a lost one, and has gradients of dead sessions:
 * all of them are buried, with what they held. */
START_TEST(a_stop_waits_for_nobody)
{
	struct srv_options opt = loss_options(2, 300000);
	uint64_t one, two;
	struct raw r[2], back;
	struct bed bed;

	opt.on_loss = _i == 3 ? SRV_LOSS_STOP : SRV_LOSS_WAIT;
	bed_start(&bed, &opt);
	raw_join(&r[0], bed.uri, 0);
	one = bed_stats(&bed).memory;
	raw_join(&r[1], bed.uri, 1);
	two = bed_stats(&bed).memory;
	raw_wait_start(&r[0]);
	raw_wait_start(&r[1]);
	loss_push(&r[0], 0, 4, 2);
	loss_push(&r[1], 1, 3, 4);
	nap_us(20000);
	if (_i < 3)
		loss_of(&r[1], &bed, 1);
	if (_i == 1) { /* it is on its way back */
		raw_connect(&back, bed.uri, 0);
		raw_hello_again(&back, 1, r[1].welcome.session);
		must(raw_expect(&back, WIRE_WELCOME).welcome.resumed, "not resumed");
	} else if (_i == 2) { /* it came back, delivered more, and was lost again */
		loss_resume(&back, bed.uri, 1, &r[1]);
		raw_wait_start(&back);
		loss_push(&back, 0, 1, 4);
		nap_us(20000);
		loss_of(&back, &bed, 2);
	}
	uint64_t begin = clock_ns();

	srv_stop(bed.srv);
	pthread_join(bed.thread, NULL);
	must(bed.rc == 0, "srv_run: %d", bed.rc);
	must(clock_ns() - begin < scaled(1500, 6000) * NS_PER_MS, "it took %llu ms",
	     (unsigned long long)((clock_ns() - begin) / NS_PER_MS));
	must(bed_stats(&bed).memory == one - (two - one), "sessions are left: %llu bytes, not %llu",
	     (unsigned long long)bed_stats(&bed).memory, (unsigned long long)(one - (two - one)));
	srv_destroy(bed.srv);
	raw_free(&r[0]);
	if (_i == 3)
		raw_free(&r[1]);
	if (_i == 1)
		raw_free(&back);
}
END_TEST

/* One that is lost before it trained has not trained. */
START_TEST(exit_when_done_counts_trainers)
{
	struct srv_options opt = loss_options(2, 300000);
	struct raw r[2];
	struct bed bed;

	opt.exit_when_done = true;
	bed_start(&bed, &opt);
	raw_join(&r[0], bed.uri, 0);
	loss_of(&r[0], &bed, 1);
	loss_join(r, 2, bed.uri);
	raw_bye(&r[1]);
	raw_bye(&r[0]);
	bed_done(&bed);
}
END_TEST

/* Whoever is connected and has said nothing may not hold it up. */
START_TEST(exit_when_done_waits_for_no_stranger)
{
	struct srv_options opt = loss_options(1, 300000);
	struct raw r, stranger;
	struct bed bed;

	opt.mode = _i ? SRV_ASYNC : SRV_SYNC;
	opt.exit_when_done = true;
	opt.talk_ms = 600000;
	bed_start(&bed, &opt);
	raw_connect(&stranger, bed.uri, 0);
	bed_wait_connected(&bed, 1);
	raw_join(&r, bed.uri, 0);
	raw_wait_start(&r);
	raw_bye(&r);
	pthread_join(bed.thread, NULL);
	must(bed.rc == 0, "srv_run: %d", bed.rc);
	RAW_ENDS(&stranger, WIRE_E_SHUTDOWN, "stopping");
	srv_destroy(bed.srv);
}
END_TEST

/* In async mode the same rank that comes twice is one trainer, not two. */
START_TEST(exit_when_done_counts_ranks)
{
	struct srv_options opt = loss_options(2, 300000);
	struct raw r;
	struct bed bed;

	opt.mode = SRV_ASYNC;
	opt.exit_when_done = true;
	bed_start(&bed, &opt);
	raw_join(&r, bed.uri, 0);
	raw_wait_start(&r);
	loss_of(&r, &bed, 1);
	raw_join(&r, bed.uri, 0);
	raw_wait_start(&r);
	raw_bye(&r);
	bed_wait_connected(&bed, 0);
	nap_us(250000); /* a tick or two */
	raw_join(&r, bed.uri, 1);
	raw_wait_start(&r);
	raw_bye(&r);
	bed_done(&bed);
}
END_TEST

TCase *ending_case(void)
{
	TCase *t = e2e_case("ending");

	tcase_add_loop_test(t, a_stop_waits_for_nobody, 0, 4);
	tcase_add_test(t, exit_when_done_waits_for_the_lost);
	tcase_add_test(t, exit_when_done_counts_trainers);
	tcase_add_loop_test(t, exit_when_done_waits_for_no_stranger, 0, 2);
	tcase_add_test(t, exit_when_done_counts_ranks);
	return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is late: what the server does about it, and about a loss that it is to end with; and who is
 * not.
 */
#include "cases.h"
#include "losses.h"

START_TEST(stop_ends_the_server)
{
	struct srv_options opt = loss_options(2, 300000);
	struct raw r[2];
	struct bed bed;

	opt.on_loss = SRV_LOSS_STOP;
	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	raw_barrier(&r[0], 1);
	loss_of(&r[1], &bed, 1);
	RAW_ENDS(&r[0], WIRE_E_SHUTDOWN, "stopping");
	BED_FAILS(&bed, ECONNRESET, "trainer 1", "step 1", "barrier is missing");
}
END_TEST

static struct srv_options straggling(enum srv_straggler policy)
{
	struct srv_options opt = loss_options(2, 300000);

	opt.straggler_ms = LOSS_SOON_MS;
	opt.on_straggler = policy;
	return opt;
}

struct told {
	struct bed *bed;
	uint64_t n;
};

static bool was_told(void *arg)
{
	struct told *t = arg;

	return bed_stats(t->bed).stragglers >= t->n;
}

static void wait_told(struct bed *bed, uint64_t n)
{
	struct told t = {bed, n};

	wait_until(was_told, &t, "a straggler");
}

START_TEST(a_straggler_is_told_of)
{
	struct srv_options opt = straggling(SRV_STRAGGLER_WAIT);
	struct raw r[2];
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	nap_us(2 * LOSS_SOON_MS * 1000);
	must(bed_stats(&bed).stragglers == 0, "with no barrier there is no straggler");
	for (uint64_t step = 1; step <= 2; step++) {
		loss_push(&r[1], 0, 2, 1);
		raw_barrier(&r[0], step);
		wait_told(&bed, step);
		nap_us(2 * LOSS_SOON_MS * 1000);
		must(bed_stats(&bed).stragglers == step, "told of twice");
		loss_still_waits(&r[0], step);
		raw_barrier(&r[1], step);
		loss_ends(&r[0], step);
		loss_ends(&r[1], step);
	}
	raw_bye(&r[0]);
	raw_bye(&r[1]);
	bed_stop(&bed);
}
END_TEST

/* It is not waited for either, though losses are. */
START_TEST(a_straggler_is_dropped)
{
	struct srv_options opt = straggling(SRV_STRAGGLER_DROP);
	struct srv_stats s;
	struct raw r[2];
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	loss_push(&r[0], 0, 4, 2);
	loss_push(&r[1], 0, 2, 4);
	raw_barrier(&r[0], 1);
	RAW_ENDS(&r[1], WIRE_E_SHUTDOWN, "straggler", "step 1");
	loss_ends(&r[0], 1);
	wait_until(loss_is_given_up, &bed, "giving up");
	s = bed_stats(&bed);
	must(s.stragglers == 1 && s.lost == 1 && s.given_up == 1 && s.violations == 0, "stats");
	raw_bye(&r[0]);
	loss_sees(bed.uri, (const float[]){-3, -3, -2, -2});
	bed_stop(&bed);
}
END_TEST

START_TEST(a_straggler_stops_the_server)
{
	struct srv_options opt = straggling(SRV_STRAGGLER_STOP);
	struct raw r[2];
	struct bed bed;

	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	loss_push(&r[1], 0, 4, 4);
	raw_barrier(&r[0], 1);
	RAW_ENDS(&r[0], WIRE_E_SHUTDOWN, "stopping");
	BED_FAILS(&bed, ETIME, "trainer 1", "straggler", "step 1", "no gradient yet of \"b\"");
	raw_free(&r[1]);
}
END_TEST

/* One that was lost and comes back late in the step has its time from then on. */
START_TEST(who_comes_back_is_no_straggler_yet)
{
	struct srv_options opt = straggling(SRV_STRAGGLER_DROP);
	struct raw r[2], back;
	struct bed bed;

	opt.straggler_ms = scaled(1000, 4000);
	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	raw_barrier(&r[0], 1);
	loss_of(&r[1], &bed, 1);
	nap_us(opt.straggler_ms * 1500);
	must(bed_stats(&bed).stragglers == 0, "a lost one is no straggler");
	loss_resume(&back, bed.uri, 1, &r[1]);
	raw_wait_start(&back);
	loss_still_waits(&r[0], 1);
	nap_us(150000); /* a tick or two */
	must(bed_stats(&bed).stragglers == 0, "dropped as it came");
	raw_barrier(&back, 1);
	loss_ends(&back, 1);
	loss_ends(&r[0], 1);
	raw_bye(&r[0]);
	raw_bye(&back);
	bed_stop(&bed);
}
END_TEST

/* A trainer that has nothing to do is not silent: its machine answers. */
START_TEST(idle_is_not_silent)
{
	struct srv_options opt = loss_options(2, 300000);
	struct raw r[2];
	struct bed bed;

	opt.mode = _i ? SRV_ASYNC : SRV_SYNC;
	opt.keepalive_ms = LOSS_SOON_MS;
	bed_start(&bed, &opt);
	loss_join(r, 2, bed.uri);
	for (int i = 0; i < 100; i++) {
		raw_poll(&r[0]); /* the other does not even look */
		nap_us(10 * LOSS_SOON_MS);
	}
	nap_us(3 * LOSS_SOON_MS * 1000);
	must(bed_stats(&bed).silent == 0 && bed_stats(&bed).connected == 2, "silent");
	raw_bye(&r[0]);
	raw_bye(&r[1]);
	bed_stop(&bed);
}
END_TEST

TCase *stragglers_case(void)
{
	TCase *t = e2e_case("stragglers");

	tcase_add_test(t, stop_ends_the_server);
	tcase_add_test(t, a_straggler_is_told_of);
	tcase_add_test(t, a_straggler_is_dropped);
	tcase_add_test(t, a_straggler_stops_the_server);
	tcase_add_test(t, who_comes_back_is_no_straggler_yet);
	tcase_add_loop_test(t, idle_is_not_silent, 0, 2);
	return t;
}

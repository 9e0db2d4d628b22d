/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainers that are lost and come again: whoever takes a rank takes its place, and each gradient counts
 * once. What follows a loss, and a straggler, is a policy.
 */
#include <signal.h>

#include "cases.h"
#include "child.h"
#include "life.h"

enum { RANKS = 3 };

static void *live(void *arg)
{
	life_run(arg);
	return NULL;
}

static struct srv_options waiting_options(uint32_t trainers, enum srv_mode mode)
{
	struct srv_options opt = bed_options(trainers, mode);

	opt.on_loss = SRV_LOSS_WAIT;
	opt.loss_wait_ms = 300 * 1000;
	opt.block_kib = 1;
	return opt;
}

/* ---- exactly once ------------------------------------------------------------------------------ */

static void lives_and_deaths(enum srv_mode mode, uint32_t workers, uint64_t seed)
{
	struct srv_options opt = waiting_options(RANKS, mode);
	uint64_t steps = scaled(40, 8);
	struct life life[RANKS];
	pthread_t thread[RANKS];
	uint32_t died = 0, resumed = 0;
	struct srv_stats stats;
	struct bed bed;

	opt.workers = workers;
	opt.staleness = mode == SRV_SSP ? 2 : 0;
	bed_start(&bed, &opt);
	for (uint32_t r = 0; r < RANKS; r++) {
		life[r] = (struct life){.uri = bed.uri,
					.mode = mode,
					.rank = r,
					.steps = steps,
					.odds = 25,
					.deaths = scaled(30, 6),
					.rng = mix64(seed * RANKS + r)};
		pthread_create(&thread[r], NULL, live, &life[r]);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_join(thread[r], NULL);
		died += life[r].died;
		resumed += life[r].resumed;
	}
	bed_wait_connected(&bed, 0);
	stats = bed_stats(&bed);
	must(died > RANKS, "only %u deaths", died);
	must(resumed, "nobody resumed");
	must(stats.lost && stats.lost <= died && stats.rejoined == stats.lost,
	     "%u died, %llu were lost, %llu rejoined", died, (unsigned long long)stats.lost,
	     (unsigned long long)stats.rejoined);
	must(stats.given_up == 0, "given up");
	must(stats.violations == 0, "%llu violations", (unsigned long long)stats.violations);
	if (mode == SRV_SYNC)
		must(stats.step == steps, "step %llu", (unsigned long long)stats.step);
	life_verify(bed.uri, RANKS, steps);
	bed_stop(&bed);
}

START_TEST(sync_counts_each_gradient_once)
{
	if (!left_out(_i, 4))
		lives_and_deaths(SRV_SYNC, (uint32_t)_i % 3, (uint64_t)_i);
}
END_TEST

START_TEST(async_counts_each_gradient_once)
{
	if (!left_out(_i, 4))
		lives_and_deaths(SRV_ASYNC, (uint32_t)_i % 3, (uint64_t)_i);
}
END_TEST

START_TEST(ssp_counts_each_gradient_once)
{
	if (!left_out(_i, 3))
		lives_and_deaths(SRV_SSP, (uint32_t)_i % 3, (uint64_t)_i);
}
END_TEST

/* ---- killed ------------------------------------------------------------------------------------ */

struct lives { /* of one rank, in processes */
	const char *uri;
	enum srv_mode mode;
	uint32_t rank, kills;
	uint64_t steps, rng;
	pthread_t thread;
};

/* Kills it so many times, at any moment of its life; the last one may live. */
static void *kill_and_restart(void *arg)
{
	struct lives *l = arg;
	char rank[16], mode[16], steps[16];

	snprintf(rank, sizeof(rank), "%u", l->rank);
	snprintf(mode, sizeof(mode), "%d", (int)l->mode);
	snprintf(steps, sizeof(steps), "%llu", (unsigned long long)l->steps);
	for (;;) {
		struct child c;

		child_start(&c, "living", l->uri, rank, mode, steps, NULL);
		child_says(&c, "born");
		if (l->kills) {
			nap_us(rnd(&l->rng, scaled(25000, 400000)));
			l->kills--;
			child_signal(&c, SIGKILL);
		}
		int status = child_end(&c);

		if (status == 0)
			return NULL;
		must(status == 128 + SIGKILL, "rank %u ended with %d", l->rank, status);
	}
}

START_TEST(killed_processes_count_once)
{
	enum srv_mode mode = (enum srv_mode)(1 + _i % 3);
	struct srv_options opt = waiting_options(2, mode);
	uint64_t steps = scaled(200, 12);
	struct lives lives[2];
	struct srv_stats stats;
	struct bed bed;

	if (left_out(_i, 3))
		return;
	opt.workers = (uint32_t)_i % 2;
	opt.staleness = mode == SRV_SSP ? 2 : 0;
	bed_start(&bed, &opt);
	for (uint32_t r = 0; r < 2; r++) {
		lives[r] = (struct lives){.uri = bed.uri,
					  .mode = mode,
					  .rank = r,
					  .kills = scaled(12, 2),
					  .steps = steps,
					  .rng = mix64((uint64_t)_i * 2 + r)};
		pthread_create(&lives[r].thread, NULL, kill_and_restart, &lives[r]);
	}
	for (uint32_t r = 0; r < 2; r++)
		pthread_join(lives[r].thread, NULL);
	bed_wait_connected(&bed, 0);
	stats = bed_stats(&bed);
	/* On a slow machine all may die before they have a rank. */
	must((stats.lost || e2e_small) && stats.rejoined == stats.lost,
	     "%llu were lost, %llu rejoined",
	     (unsigned long long)stats.lost, (unsigned long long)stats.rejoined);
	must(stats.violations == 0, "%llu violations", (unsigned long long)stats.violations);
	life_verify(bed.uri, 2, steps);
	bed_stop(&bed);
}
END_TEST

TCase *rejoin_case(void)
{
	TCase *t = e2e_case("rejoin");

	tcase_add_loop_test(t, sync_counts_each_gradient_once, 0, 12);
	tcase_add_loop_test(t, async_counts_each_gradient_once, 0, 12);
	tcase_add_loop_test(t, ssp_counts_each_gradient_once, 0, 6);
	tcase_add_loop_test(t, killed_processes_count_once, 0, 6);
	return t;
}

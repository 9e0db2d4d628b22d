/* SPDX-License-Identifier: Apache-2.0
 *
 * Who takes part in a step: trainers that leave, join late, come back, and are replaced.
 */
#include "cases.h"
#include "job.h"

static struct job *odd_job(uint64_t seed)
{
	struct job *job = job_create(seed);

	job->delay_us = 40;
	return job;
}

START_TEST(unequal_numbers_of_steps)
{
	struct srv_options opt = bed_options(4, SRV_SYNC);
	const uint32_t steps[] = {3, 12, 6, 9};
	struct job *job = odd_job(21);
	struct bed bed;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	job_run_all(job, bed.uri, 4, steps);
	must(bed_stats(&bed).step == 12, "steps");
	bed_stop(&bed);
	job_verify(job, 12);
	free(job);
}
END_TEST

struct partner {
	struct hand hand;
	struct job *job;
	struct bed *bed;
	uint32_t rank;
	uint64_t at_least; /* steps that it makes even when it is alone */
	_Atomic bool end;
	pthread_t thread;
};

static _Atomic uint64_t left; /* trainers that went */

/* While others are there (or wait to be let in) it makes steps with them; alone it waits, so that a
 * slow machine does not make more steps than the job has. */
static void *keep_stepping(void *arg)
{
	struct partner *p = arg;

	hand_join(&p->hand, p->job, p->bed->uri, (int32_t)p->rank);
	while (!p->end) {
		if (bed_stats(p->bed).joined - left < 2 && hand_step(&p->hand) > p->at_least)
			nap_us(300);
		else
			hand_make_step(&p->hand);
	}
	hand_look(&p->hand);
	hand_leave(&p->hand);
	left++;
	return NULL;
}

static void partner_start(struct partner *p, struct job *job, struct bed *bed, uint32_t rank,
			  uint64_t at_least)
{
	*p = (struct partner){.job = job, .bed = bed, .rank = rank, .at_least = at_least};
	pthread_create(&p->thread, NULL, keep_stepping, p);
}

static void partner_end(struct partner *p)
{
	p->end = true;
	pthread_join(p->thread, NULL);
}

/* Its gradients of the step that it left without a barrier count; then the divisor is one less. */
START_TEST(bye_in_the_middle_of_a_step)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct job *job = odd_job(22);
	struct partner other;
	struct hand h;
	struct bed bed;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	partner_start(&other, job, &bed, 1, 6);
	hand_join(&h, job, bed.uri, 0);
	hand_make_step(&h);
	hand_make_step(&h);
	hand_look(&h);
	hand_push(&h);
	hand_leave(&h);
	left++;
	bed_wait_step(&bed, 6);
	partner_end(&other);
	uint64_t steps = bed_stats(&bed).step;
	bed_stop(&bed);
	job_verify(job, steps);
	free(job);
}
END_TEST

/* A rank is free again after a bye; who takes it begins at a step's boundary. */
START_TEST(late_joiners)
{
	struct srv_options opt = bed_options(3, SRV_SYNC);
	struct job *job = odd_job(23);
	uint32_t rounds = scaled(5, 2);
	struct partner other, second;
	struct hand a, b;
	struct bed bed;

	opt.workers = 2;
	bed_start(&bed, &opt);
	partner_start(&other, job, &bed, 2, 0);
	partner_start(&second, job, &bed, 1, 0);
	hand_join(&a, job, bed.uri, 0);
	second.end = true;
	hand_make_step(&a);
	hand_make_step(&a);
	hand_leave(&a);
	left++;
	pthread_join(second.thread, NULL);
	for (uint32_t i = 0; i < rounds; i++) {
		hand_join(&b, job, bed.uri, (int32_t)(i % 2));
		must(hand_step(&b) > 1, "it joined step 1 again");
		hand_make_step(&b);
		hand_make_step(&b);
		hand_leave(&b);
		left++;
	}
	partner_end(&other);
	uint64_t steps = bed_stats(&bed).step;
	bed_stop(&bed);
	job_verify(job, steps);
	free(job);
}
END_TEST

START_TEST(all_leave_and_others_come)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct job *job = odd_job(24);
	uint64_t before = 0;
	struct hand h;
	struct bed bed;

	bed_start(&bed, &opt);
	job_run_all(job, bed.uri, 2, (const uint32_t[]){4, 4});
	for (int i = 0; i < 4; i++) {
		before = bed_stats(&bed).step;
		hand_join(&h, job, bed.uri, -1);
		must(h.rank == 0, "rank %u is the lowest free one", h.rank);
		hand_make_step(&h);
		hand_make_step(&h);
		must(bed_stats(&bed).step == before + 2, "it waits for nobody");
		hand_leave(&h);
		bed_wait_connected(&bed, 0);
	}
	uint64_t steps = bed_stats(&bed).step;
	bed_stop(&bed);
	job_verify(job, steps);
	free(job);
}
END_TEST

/* One that pushed and left with nobody else there: the step is still made. */
START_TEST(the_last_one_leaves_gradients)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct job *job = odd_job(25);
	struct hand h;
	struct bed bed;

	if (left_out(_i, 3))
		return;
	opt.workers = (uint32_t)_i;
	opt.block_kib = 1;
	bed_start(&bed, &opt);
	for (int i = 0; i < 3; i++) {
		hand_join(&h, job, bed.uri, 0);
		hand_make_step(&h);
		hand_look(&h);
		hand_push(&h);
		hand_leave(&h);
	}
	bed_wait_step(&bed, 6);
	hand_join(&h, job, bed.uri, 0);
	hand_look(&h);
	must(hand_step(&h) == 7, "step");
	hand_leave(&h);
	bed_stop(&bed);
	job_verify(job, 6);
	free(job);
}
END_TEST

START_TEST(exit_when_done)
{
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct job *job = odd_job(26);
	struct bed bed;

	opt.exit_when_done = true;
	bed_start(&bed, &opt);
	job_run_all(job, bed.uri, 2, (const uint32_t[]){3, 2});
	bed_done(&bed);
	job_verify(job, 3);
	free(job);
}
END_TEST

START_TEST(one_too_many_and_a_rank_twice)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct gs_options o;
	gs_trainer *a, *b, *none = NULL;
	struct bed bed;

	bed_start(&bed, &opt);
	a = connect_as(bed.uri, 1);
	o = trainer_options(bed.uri, 1);
	fails(gs_connect(&o, &none), EEXIST, "rank 1", "alive");
	o.rank = 2;
	fails(gs_connect(&o, &none), ERANGE, "rank 2", "2 trainers");
	b = connect_as(bed.uri, -1);
	o.rank = -1;
	fails(gs_connect(&o, &none), EUSERS, "2 trainers");
	must(!none, "an output was touched");
	gs_close(b);
	b = connect_as(bed.uri, 0);
	declare_line(b, "w", 10, 1, 0);
	ok(gs_start(b));
	gs_close(a);
	leave(b);
	must(bed_stats(&bed).violations == 0, "violations");
	bed_stop(&bed);
}
END_TEST

TCase *membership_case(void)
{
	TCase *t = e2e_case("membership");

	tcase_add_test(t, unequal_numbers_of_steps);
	tcase_add_test(t, bye_in_the_middle_of_a_step);
	tcase_add_test(t, late_joiners);
	tcase_add_test(t, all_leave_and_others_come);
	tcase_add_loop_test(t, the_last_one_leaves_gradients, 0, 3);
	tcase_add_test(t, exit_when_done);
	tcase_add_test(t, one_too_many_and_a_rank_twice);
	return t;
}

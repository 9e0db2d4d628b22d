/* SPDX-License-Identifier: Apache-2.0
 *
 * Sync mode: the weights are those of the reference, bit for bit, whatever the server's threads,
 * the blocks' size, the slots and the order of arrival.
 */
#include "cases.h"
#include "job.h"

static uint64_t run_job(const struct srv_options *opt, struct job *job, uint32_t steps)
{
	uint32_t each[JOB_RANKS];
	struct bed bed;
	uint64_t sum;

	for (uint32_t r = 0; r < JOB_RANKS; r++)
		each[r] = steps;
	bed_start(&bed, opt);
	job_run_all(job, bed.uri, opt->trainers, each);
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).violations == 0, "violations");
	must(bed_stats(&bed).step == steps, "%llu steps", (unsigned long long)bed_stats(&bed).step);
	bed_stop(&bed);
	sum = job_verify(job, steps);
	free(job);
	return sum;
}

/* trainers × workers × pollers × block size; the odd job has all optimizers in it. */
static const uint32_t workers_of[] = {0, 1, 3};

START_TEST(every_shape_of_server)
{
	uint32_t trainers = 1 + (uint32_t)_i / 3, workers = workers_of[_i % 3];
	uint64_t first = 0;

	if (left_out(_i, 2))
		return;
	for (uint32_t k = 0; k < scaled(4, 1); k++) {
		struct srv_options opt = bed_options(trainers, SRV_SYNC);
		struct job *job = job_create(7);
		uint64_t sum;

		opt.workers = workers;
		opt.pollers = e2e_small ? 1 + (uint32_t)_i % 2 : 1 + k % 2;
		if ((e2e_small ? (uint32_t)_i / 2 : k / 2) % 2 == 0)
			opt.block_kib = 1;
		job->delay_us = 60;
		job->zero_copy = k % 2;
		sum = run_job(&opt, job, scaled(8, 3));
		must(k == 0 || sum == first, "another server, other weights");
		first = sum;
	}
}
END_TEST

START_TEST(across_runs_and_slots)
{
	uint64_t first = 0;

	for (uint32_t slots = 1; slots <= 8; slots += e2e_small ? 7 : 1) {
		struct srv_options opt = bed_options(3, SRV_SYNC);
		struct job *job = job_create(11);
		uint64_t sum;

		opt.slots = slots;
		opt.block_kib = 1;
		job->delay_us = slots * 30;
		sum = run_job(&opt, job, scaled(12, 3));
		must(slots == 1 || sum == first, "other weights with %u slots", slots);
		first = sum;
	}
}
END_TEST

/* The mean is over those who pushed; a parameter that nobody pushed stays as it is. */
START_TEST(pushes_left_out)
{
	struct srv_options opt = bed_options(3, SRV_SYNC);
	struct job *job = job_create(100 + (uint64_t)_i);
	uint32_t steps = scaled(20, 6);
	uint64_t updates[JOB_PARAMS], version;
	struct hand hand[3];
	struct bed bed;
	bool untouched = false;

	if (left_out(_i, 3))
		return;
	opt.workers = (uint32_t)_i;
	opt.block_kib = _i % 2 ? 1 : 256;
	job->skip = 2;
	bed_start(&bed, &opt);
	for (uint32_t r = 0; r < 3; r++)
		hand[r] = (struct hand){0};
	job_run_all(job, bed.uri, 3, (uint32_t[]){steps, steps, steps});
	/* The first step cannot be joined by one alone: a member of a later one looks at versions.
	 */
	hand_join(&hand[0], job, bed.uri, 0);
	hand_look(&hand[0]);
	for (uint32_t p = 0; p < job->n; p++) {
		updates[p] = job_updates(job, steps, p);
		untouched |= updates[p] < steps;
		for (uint64_t e = 0; e < job_elems(job, p); e += job_elems(job, p) / 2 + 1) {
			ok(gs_block_version(hand[0].t, hand[0].param[p], e, &version));
			must(version == updates[p], "version %llu of \"%s\", %llu updates",
			     (unsigned long long)version, job->param[p].name,
			     (unsigned long long)updates[p]);
		}
	}
	must(untouched || e2e_small, "everything was pushed by somebody in every step");
	hand_leave(&hand[0]);
	bed_stop(&bed);
	job_verify(job, steps);
	free(job);
}
END_TEST

START_TEST(what_the_library_refuses)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct job *job = job_create(3);
	struct hand h;
	struct bed bed;
	float *buf;

	bed_start(&bed, &opt);
	hand_join(&h, job, bed.uri, 0);
	fails(gs_step_wait(h.t), EDEADLK, "step 1");
	job_gradient(job, 0, 1, 0, h.buf);
	ok(gs_push(h.t, h.param[0], h.buf));
	fails(gs_push(h.t, h.param[0], h.buf), EALREADY, "\"one\"", "step 1");
	fails(gs_grad_buffer(h.t, h.param[0], (void **)&buf), EALREADY, "\"one\"");
	fails(gs_wait_applied(h.t, h.param[0]), EDEADLK, "step 1");
	ok(gs_step_post(h.t));
	fails(gs_step_post(h.t), EALREADY, "step 1");
	fails(gs_push(h.t, h.param[1], h.buf), EALREADY, "step 1");
	ok(gs_wait_applied(h.t, h.param[0]));
	ok(gs_step_wait(h.t));
	must(hand_step(&h) == 2, "step");
	hand_leave(&h);
	bed_stop(&bed);
	free(job);
}
END_TEST

TCase *sync_case(void)
{
	TCase *t = e2e_wire_case("sync");

	tcase_add_loop_test(t, every_shape_of_server, 0, 12);
	tcase_add_test(t, across_runs_and_slots);
	tcase_add_loop_test(t, pushes_left_out, 0, 3);
	tcase_add_test(t, what_the_library_refuses);
	return t;
}

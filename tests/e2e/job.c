/* SPDX-License-Identifier: Apache-2.0
 *
 * The made job, its trainers and its reference.
 */
#include "job.h"

#include "kernels/kern.h"

static const double LR = 0.05;

/* Odd shapes with all optimizers between them. */
static const struct job_param odd[] = {
    {"one", "sgd", 1, {1}, 0},
    {"seven", "momentum", 1, {7}, 0.5},
    {"small", "nesterov", 2, {3, 5}, 0.9},
    {"rows", "momentum", 2, {1000, 37}, 0.9},
    {"line", "sgd", 1, {1031}, 0},
    {"cube", "nesterov", 3, {5, 9, 13}, 0.7},
    {"long", "sgd", 2, {2, 1500}, 0},
};

/* The same with fewer rows. */
static const struct job_param few[] = {
    {"one", "sgd", 1, {1}, 0},
    {"seven", "momentum", 1, {7}, 0.5},
    {"small", "nesterov", 2, {3, 5}, 0.9},
    {"rows", "momentum", 2, {50, 37}, 0.9},
    {"long", "sgd", 2, {2, 700}, 0},
};

struct job *job_create(uint64_t seed)
{
	struct job *job = calloc(1, sizeof(*job));

	must(job, "no memory");
	job->param = e2e_small ? few : odd;
	job->n = e2e_small ? sizeof(few) / sizeof(few[0]) : sizeof(odd) / sizeof(odd[0]);
	job->seed = seed;
	return job;
}

uint64_t job_elems(const struct job *job, uint32_t p)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < job->param[p].ndim; i++)
		n *= job->param[p].dim[i];
	return n;
}

static uint64_t longest(const struct job *job)
{
	uint64_t most = 0;

	for (uint32_t p = 0; p < job->n; p++)
		most = job_elems(job, p) > most ? job_elems(job, p) : most;
	return most;
}

void job_gradient(const struct job *job, uint32_t rank, uint64_t step, uint32_t p, float *out)
{
	uint64_t x = mix64(job->seed ^ mix64((uint64_t)rank << 40 ^ step << 8 ^ p));
	uint64_t n = job_elems(job, p);

	for (uint64_t i = 0; i < n; i++) {
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		out[i] = (float)(int32_t)(x >> 32) * 0x1p-31f;
	}
}

/* ---- a trainer
 * ------------------------------------------------------------------------------------ */

static void declare_all(struct hand *h)
{
	for (uint32_t i = 0; i < h->job->n; i++) {
		const struct job_param *p = &h->job->param[i];
		struct gs_param_desc d = GS_PARAM_DESC_INIT;

		d.name = p->name;
		d.ndim = p->ndim;
		memcpy(d.shape, p->dim, sizeof(p->dim));
		d.optimizer = p->optimizer;
		gs_setting(&d, "lr", LR);
		if (strcmp(p->optimizer, "sgd") != 0)
			gs_setting(&d, "momentum", p->momentum);
		d.init = GS_INIT_UNIFORM;
		d.init_a = -1;
		d.init_b = 1;
		d.init_seed = h->job->seed + i;
		ok(gs_declare(h->t, &d, &h->param[i]));
	}
}

void hand_join(struct hand *h, struct job *job, const char *uri, int32_t rank)
{
	struct gs_info info;

	h->job = job;
	h->t = connect_as(uri, rank);
	gs_get_info(h->t, &info);
	must(info.rank < JOB_RANKS && (rank < 0 || info.rank == (uint32_t)rank), "rank %u",
	     info.rank);
	h->rank = info.rank;
	h->rng = mix64(job->seed ^ h->rank);
	h->buf = malloc(longest(job) * sizeof(float));
	declare_all(h);
	ok(gs_start(h->t));
}

uint64_t hand_step(struct hand *h)
{
	struct gs_info info;

	gs_get_info(h->t, &info);
	must(info.step >= 1 && info.step <= JOB_STEPS + 1, "step %llu",
	     (unsigned long long)info.step);
	return info.step;
}

void hand_look(struct hand *h)
{
	uint64_t step = hand_step(h);

	for (uint32_t p = 0; p < h->job->n; p++) {
		/* Between a release and the own push nothing changes: the ways agree. */
		ok(gs_pull(h->t, h->param[p], (enum gs_consistency)((step + p) % 3), h->buf));
		h->job->seen[step][h->rank][p] =
		    kern_checksum(h->buf, job_elems(h->job, p) * sizeof(float), 1);
	}
}

static void push_one(struct hand *h, uint64_t step, uint32_t p)
{
	void *buf = h->buf;

	if (h->job->skip && rnd(&h->rng, h->job->skip) == 0)
		return;
	if (h->job->delay_us)
		nap_us(rnd(&h->rng, h->job->delay_us));
	if (h->job->zero_copy && (step + p) % 2)
		ok(gs_grad_buffer(h->t, h->param[p], (void **)&buf));
	job_gradient(h->job, h->rank, step, p, buf);
	h->job->pushed[step][h->rank][p] = 1;
	ok(gs_push(h->t, h->param[p], buf));
}

void hand_push(struct hand *h)
{
	uint64_t step = hand_step(h);
	uint32_t order[JOB_PARAMS];

	for (uint32_t i = 0; i < h->job->n; i++) {
		uint32_t k = rnd(&h->rng, i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	for (uint32_t i = 0; i < h->job->n; i++)
		push_one(h, step, order[i]);
}

void hand_make_step(struct hand *h)
{
	hand_look(h);
	hand_push(h);
	ok(gs_step_end(h->t));
}

void hand_drop(struct hand *h)
{
	gs_close(h->t);
	free(h->buf);
}

void hand_leave(struct hand *h)
{
	ok(gs_leave(h->t));
	hand_drop(h);
}

static void *make_steps(void *arg)
{
	struct hand *h = arg;

	hand_join(h, h->job, h->uri, (int32_t)h->rank);
	for (uint32_t i = 0; i < h->steps; i++)
		hand_make_step(h);
	hand_look(h);
	hand_leave(h);
	return NULL;
}

void job_run_all(struct job *job, const char *uri, uint32_t ranks, const uint32_t *steps)
{
	struct hand hand[JOB_RANKS];

	for (uint32_t r = 0; r < ranks; r++) {
		hand[r] = (struct hand){.job = job, .uri = uri, .rank = r, .steps = steps[r]};
		must(pthread_create(&hand[r].thread, NULL, make_steps, &hand[r]) == 0, "thread");
	}
	for (uint32_t r = 0; r < ranks; r++)
		pthread_join(hand[r].thread, NULL);
}

/* ---- the reference
 * -------------------------------------------------------------------------------- */

static struct kern_opt optimizer(const struct job_param *p)
{
	struct kern_setting s[2] = {{"lr", LR}, {"momentum", p->momentum}};
	struct kern_opt opt;

	ok(kern_opt_parse(p->optimizer, s, strcmp(p->optimizer, "sgd") ? 2 : 1, &opt));
	return opt;
}

static void check_seen(const struct job *job, uint64_t step, uint32_t p, uint64_t sum)
{
	for (uint32_t r = 0; r < JOB_RANKS; r++)
		must(!job->seen[step][r][p] || job->seen[step][r][p] == sum,
		     "trainer %u saw other weights of \"%s\" in step %llu", r, job->param[p].name,
		     (unsigned long long)step);
}

/* The step, as update t. False: nobody pushed, so there is none. */
static bool apply_step(const struct job *job, uint64_t step, uint32_t p, float *w, float *state,
		       float *const *grad, uint64_t t)
{
	const float *pushed[JOB_RANKS];
	struct kern_opt opt = optimizer(&job->param[p]);
	uint64_t n = job_elems(job, p);
	unsigned k = 0;

	for (uint32_t r = 0; r < JOB_RANKS; r++) {
		if (!job->pushed[step][r][p])
			continue;
		job_gradient(job, r, step, p, grad[r]);
		pushed[k++] = grad[r];
	}
	if (k)
		kern_apply_mean(&opt, t, w, &state, pushed, k, n);
	return k;
}

static uint64_t verify_param(const struct job *job, uint64_t steps, uint32_t p, uint64_t sum)
{
	uint64_t n = job_elems(job, p), bytes = n * sizeof(float);
	float *w = malloc(bytes), *state = calloc(n, sizeof(float));
	uint64_t updates = 0;
	float *grad[JOB_RANKS];

	for (uint32_t r = 0; r < JOB_RANKS; r++)
		grad[r] = malloc(bytes);
	kern_init_fill(KERN_INIT_UNIFORM, job->seed + p, -1, 1, 0, w, n);
	for (uint64_t s = 1; s <= steps; s++) {
		check_seen(job, s, p, kern_checksum(w, bytes, 1));
		updates += apply_step(job, s, p, w, state, grad, updates + 1);
	}
	check_seen(job, steps + 1, p, kern_checksum(w, bytes, 1));
	sum = kern_checksum(w, bytes, sum);
	for (uint32_t r = 0; r < JOB_RANKS; r++)
		free(grad[r]);
	free(w);
	free(state);
	return sum;
}

uint64_t job_verify(const struct job *job, uint64_t steps)
{
	uint64_t sum = 0;

	for (uint32_t p = 0; p < job->n; p++)
		sum = verify_param(job, steps, p, sum);
	return sum;
}

uint64_t job_updates(const struct job *job, uint64_t steps, uint32_t p)
{
	uint64_t n = 0;

	for (uint64_t s = 1; s <= steps; s++) {
		bool any = false;

		for (uint32_t r = 0; r < JOB_RANKS; r++)
			any |= job->pushed[s][r][p];
		n += any;
	}
	return n;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's trainers lose their connections at any moment, and go on (gs_reconnect): each gradient
 * counts once. What they push is that of life.h. Connections are cut by shutting their sockets down, so
 * this is for shm; over a network the fault layer's tests do it.
 */
#include <stdatomic.h>

#include "cases.h"
#include "life.h"

enum { RANKS = 3 };

static _Atomic uint32_t cuts, losses;

struct survivor {
	const char *uri;
	enum srv_mode mode;
	uint32_t rank;
	uint64_t steps;
	pthread_t thread;
	gs_trainer *t;
	gs_param *p[LIFE_PARAMS];
};

/* A call that failed for a lost connection is made again. */
static void again(struct survivor *s, int rc)
{
	int rewound = -1;

	must(rc == -ECONNRESET || rc == -ESHUTDOWN, "rank %u: %d: %s", s->rank, rc,
	     gs_last_error());
	ok(gs_reconnect(s->t, &rewound));
	must(rewound == 0, "rank %u: rewound", s->rank);
	atomic_fetch_add(&losses, 1);
}

#define SURELY(s, call)                          \
	do {                                     \
		int surely_rc;                   \
		while ((surely_rc = (call)) < 0) \
			again(s, surely_rc);     \
	} while (0)

static void push(struct survivor *s, uint64_t step)
{
	float values[LIFE_DENSE];
	int64_t ids[LIFE_PUSH];

	for (uint32_t p = 0; p < LIFE_P_TABLE; p++) {
		for (uint32_t i = 0; i < LIFE_DENSE; i++)
			values[i] = life_value(s->rank, step, p);
		SURELY(s, gs_push(s->t, s->p[p], values));
	}
	life_rows(step, ids);
	for (uint32_t i = 0; i < LIFE_PUSH * LIFE_DIM; i++)
		values[i] = life_value(s->rank, step, LIFE_P_TABLE);
	SURELY(s, gs_push_rows(s->t, s->p[LIFE_P_TABLE], ids, values, LIFE_PUSH));
}

static void copy_run(void *ctx, uint32_t p, uint64_t first, uint64_t count, const void *weights)
{
	float(*values)[LIFE_DENSE] = ctx;

	memcpy(values[p] + first, weights, count * sizeof(float));
}

/* Three of four with a pull: in sync mode it must be of this step, and some look in place. */
static void end_step(struct survivor *s, uint64_t step)
{
	float values[LIFE_P_TABLE][LIFE_DENSE];
	void *dst[LIFE_P_TABLE];

	if (step % 4 == 1) {
		SURELY(s, gs_step_end(s->t));
		return;
	}
	for (uint32_t p = 0; p < LIFE_P_TABLE; p++)
		dst[p] = values[p];
	if (step % 2 && s->mode == SRV_SYNC)
		SURELY(s, gs_step_view(s->t, s->p, LIFE_P_TABLE, copy_run, values));
	else
		SURELY(s, gs_step_pull(s->t, s->p, dst, LIFE_P_TABLE));
	for (uint32_t p = 0; s->mode == SRV_SYNC && p < LIFE_P_TABLE; p++) {
		double sum = life_sum(RANKS, step, p);

		for (uint64_t i = 0; i < gs_param_elems(s->p[p]); i++)
			must((double)values[p][i] == sum,
			     "rank %u, step %llu: element %llu of parameter %u is %g, not %g",
			     s->rank, (unsigned long long)step, (unsigned long long)i, p,
			     (double)values[p][i], sum);
	}
}

/* The steps are short, and who cuts may get no CPU until all are made: as long as nobody was lost, each
 * step of the second half waits for a cut. */
static void wait_for_cut(const struct survivor *s, uint64_t step)
{
	uint32_t before = atomic_load(&cuts);

	while (step > s->steps / 2 && !atomic_load(&losses) && atomic_load(&cuts) == before)
		nap_us(100);
}

static void *survive(void *arg)
{
	struct survivor *s = arg;

	for (uint64_t step = 1; step <= s->steps; step++) {
		wait_for_cut(s, step);
		push(s, step);
		if (s->mode != SRV_ASYNC)
			end_step(s, step);
	}
	for (uint32_t p = 0; s->mode == SRV_ASYNC && p < LIFE_PARAMS; p++)
		SURELY(s, gs_wait_applied(s->t, s->p[p]));
	/* One that stayed would hold up the others, whose steps have other numbers by now. */
	if (s->mode == SRV_SSP) {
		gs_close(s->t);
		s->t = NULL;
	}
	return NULL;
}

static void *start_one(void *arg)
{
	struct survivor *s = arg;

	ok(gs_start(s->t));
	return NULL;
}

static bool have_ended(struct survivor *s)
{
	for (int r = 0; r < RANKS; r++)
		if (s[r].thread && pthread_tryjoin_np(s[r].thread, NULL) == 0)
			s[r].thread = 0;
	return !s[0].thread && !s[1].thread && !s[2].thread;
}

START_TEST(cut_at_any_moment)
{
	enum srv_mode mode = (enum srv_mode)(1 + _i % 3);
	struct srv_options opt = bed_options(RANKS, mode);
	uint64_t rng = (uint64_t)_i, steps = scaled(1500, 20);
	struct survivor s[RANKS];
	struct bed bed;

	if (!over_shm())
		return;
	cuts = losses = 0;
	opt.on_loss = SRV_LOSS_WAIT;
	opt.loss_wait_ms = 300000;
	opt.block_kib = 1;
	opt.workers = (uint32_t)_i % 2;
	opt.staleness = mode == SRV_SSP ? 2 : 0;
	bed_start(&bed, &opt);
	for (uint32_t r = 0; r < RANKS; r++) {
		s[r] = (struct survivor){.uri = bed.uri, .mode = mode, .rank = r, .steps = steps};
		s[r].t = connect_as(bed.uri, (int32_t)r);
		life_declare(s[r].t, s[r].p);
		pthread_create(&s[r].thread, NULL, start_one, &s[r]);
	}
	for (uint32_t r = 0; r < RANKS; r++)
		pthread_join(s[r].thread, NULL);
	for (uint32_t r = 0; r < RANKS; r++)
		pthread_create(&s[r].thread, NULL, survive, &s[r]);
	while (!have_ended(s)) {
		nap_us(500 + rnd(&rng, scaled(4000, 200000)));
		/* Each cut costs its trainer a pause, and in sync mode the others too. */
		if (cuts < scaled(25, 5) || !losses) {
			cut_one(&rng);
			cuts++;
		}
	}
	for (uint32_t r = 0; r < RANKS; r++)
		gs_close(s[r].t);
	must(losses, "nobody was lost");
	must(bed_stats(&bed).violations == 0, "violations");
	bed_wait_connected(&bed, 0);
	life_verify(bed.uri, RANKS, steps);
	bed_stop(&bed);
}
END_TEST

TCase *resume_case(void)
{
	TCase *t = e2e_case("resume");

	tcase_add_loop_test(t, cut_at_any_moment, 0, 9);
	return t;
}

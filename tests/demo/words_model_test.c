/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss and its gradient against the definition in double precision, and the scores.
 */
#include "suites.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "words_topics.h"

/* Not a multiple of what is summed at once. */
enum { DIM = 21, IN_ROWS = 3, OUT_ROWS = 4, PAIRS = 5, TARGETS = 3 };

static uint32_t middle[PAIRS] = {0, 1, 1, 2, 0};
/* A word may be its own noise, and come twice. */
static uint32_t target[PAIRS * TARGETS] = {0, 1, 2, 3, 3, 1, 1, 0, 0, 2, 3, 1, 1, 1, 1};
static const struct words_batch batch = {.rows = {IN_ROWS, OUT_ROWS},
					 .pairs = PAIRS,
					 .targets = TARGETS,
					 .middle = middle,
					 .target = target};

struct vectors {
	float in[IN_ROWS * DIM], out[OUT_ROWS * DIM];
};

static double reference(const struct vectors *v)
{
	double loss = 0;

	for (unsigned p = 0; p < PAIRS; p++)
		for (unsigned k = 0; k < TARGETS; k++) {
			double x = 0;

			for (unsigned d = 0; d < DIM; d++)
				x += (double)v->in[middle[p] * DIM + d] *
				     v->out[target[p * TARGETS + k] * DIM + d];
			loss += log(1 + exp(k == 0 ? -x : x));
		}
	return loss;
}

static void random_vectors(struct vectors *v)
{
	kern_init_fill(KERN_INIT_NORMAL, 1, 0, 0.3, 0, v->in, IN_ROWS * DIM);
	kern_init_fill(KERN_INIT_NORMAL, 2, 0, 0.3, 0, v->out, OUT_ROWS * DIM);
}

static void check_derivative(struct vectors *v, float *at, float got)
{
	float was = *at;
	double step = 1e-2, up, down;

	*at = (float)(was + step);
	up = reference(v);
	*at = (float)(was - step);
	down = reference(v);
	*at = was;
	ck_assert_double_eq_tol(got, (up - down) / (2 * step), 1e-3);
}

START_TEST(gradient)
{
	struct vectors v, g;
	const float *const row[] = {v.in, v.out};
	float *const grad[] = {g.in, g.out};

	random_vectors(&v);
	memset(&g, 0xff, sizeof(g));
	ck_assert_double_eq_tol(words_gradient(&batch, DIM, row, grad), reference(&v), 1e-5);
	for (unsigned i = 0; i < IN_ROWS * DIM; i++)
		check_derivative(&v, &v.in[i], g.in[i]);
	for (unsigned i = 0; i < OUT_ROWS * DIM; i++)
		check_derivative(&v, &v.out[i], g.out[i]);
}
END_TEST

START_TEST(large_scores_stay_finite)
{
	struct vectors v, g;
	const float *const row[] = {v.in, v.out};
	float *const grad[] = {g.in, g.out};

	random_vectors(&v);
	for (unsigned i = 0; i < IN_ROWS * DIM; i++)
		v.in[i] *= 1e4f;
	ck_assert(isfinite(words_gradient(&batch, DIM, row, grad)));
	ck_assert(!kern_nonfinite(KERN_F32, &g, sizeof(g) / sizeof(float)));
	v.in[0] = NAN; /* no more than that it ends */
	ck_assert(isfinite(words_gradient(&batch, DIM, row, grad)));
}
END_TEST

START_TEST(knowing_nothing)
{
	struct words_config config = topics_config(2);
	struct words_task task;
	struct words_score score;
	float *tables[WORDS_TABLES];

	topics_start(&task, &config);
	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		tables[t] = words_task_table(&task);
		words_task_init(&task, t, tables[t]);
	}
	ck_assert_int_eq(words_task_score(&task, (const float *const *)tables, &score), 0);
	ck_assert_double_eq(score.auc, 0.5);
	ck_assert_double_eq_tol(score.loss, (1 + config.negatives) * log(2), 1e-9);
	ck_assert_uint_gt(score.pairs, 100);

	/* One number per topic tells them apart: only noise of the same topic, half of it, scores
	 * as high as what is near. */
	memset(tables[WORDS_IN], 0, task.corpus->words * config.dim * sizeof(float));
	for (uint32_t w = 0; w < task.corpus->words; w++)
		tables[WORDS_IN][w * config.dim] = tables[WORDS_OUT][w * config.dim] =
		    task.corpus->word[w][0] == 's' ? 1 : -1;
	ck_assert_int_eq(words_task_score(&task, (const float *const *)tables, &score), 0);
	ck_assert_double_eq_tol(score.auc, 0.75, 0.02);

	tables[WORDS_OUT][3] = INFINITY;
	ck_assert_int_eq(words_task_score(&task, (const float *const *)tables, &score), -EDOM);
	ck_assert_ptr_nonnull(strstr(err_text(), "learning rate"));
	for (unsigned t = 0; t < WORDS_TABLES; t++)
		free(tables[t]);
	words_task_end(&task);
}
END_TEST

START_TEST(nearest)
{
	/* Angles to the first: 0, 90, 180, 45 degrees, and no direction. */
	static const float in[][2] = {{2, 0}, {5, 0}, {0, 1}, {-1, 0}, {3, 3}, {0, 0}};
	uint32_t near[5];

	words_nearest(in[0], 6, 2, 0, 5, near);
	ck_assert_uint_eq(near[0], 1);
	ck_assert_uint_eq(near[1], 4);
	ck_assert_uint_eq(near[2] + near[3], 2 + 5); /* as near as one another */
	ck_assert_uint_eq(near[4], 3);
	words_nearest(in[0], 6, 2, 1, 1, near);
	ck_assert_uint_eq(near[0], 0);
}
END_TEST

Suite *words_model_suite(void)
{
	Suite *suite = suite_create("words_model");
	TCase *tc = tcase_create("model");

	tcase_add_test(tc, gradient);
	tcase_add_test(tc, large_scores_stay_finite);
	tcase_add_test(tc, knowing_nothing);
	tcase_add_test(tc, nearest);
	suite_add_tcase(suite, tc);
	return suite;
}

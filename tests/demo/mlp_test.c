/* SPDX-License-Identifier: Apache-2.0
 *
 * The model against a forward pass in double precision and its numeric derivatives.
 */
#include "suites.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "demo/digits.h"
#include "demo/mlp.h"

enum { ROWS = 24, WIDEST = 128 };

struct fixture {
	struct mlp *mlp;
	struct digits *digits;
	float weights[MLP_WEIGHTS], grads[MLP_WEIGHTS];
	const float *w[MLP_PARAMS];
	float *g[MLP_PARAMS];
};

static struct fixture *fixture(unsigned rows)
{
	struct fixture *f = calloc(1, sizeof(*f));

	ck_assert_int_eq(mlp_create(rows, &f->mlp), 0);
	ck_assert_int_eq(digits_load(1, &f->digits), 0);
	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		struct mlp_init init = mlp_init_of(p, 1);
		float *w = f->weights + mlp_params[p].offset;

		/* Biases, too, so that they are put to the test. */
		if (init.kind == KERN_INIT_ZERO)
			init = (struct mlp_init){KERN_INIT_UNIFORM, p, -0.1, 0.1};
		kern_init_fill(init.kind, init.seed, init.a, init.b, 0, w, mlp_params[p].len);
		f->w[p] = w;
		f->g[p] = f->grads + mlp_params[p].offset;
	}
	return f;
}

static void fixture_free(struct fixture *f)
{
	mlp_destroy(f->mlp);
	digits_free(f->digits);
	free(f);
}

/* One row's loss, from the definition: y = x W^T + b, ReLU between, -log softmax. */
static double ref_loss(const double *weights, const float *x, unsigned y, unsigned *best)
{
	double in[WIDEST], out[WIDEST], sum = 0;

	for (unsigned c = 0; c < DIGITS_FEATURES; c++)
		in[c] = x[c];
	for (unsigned p = 0; p < MLP_PARAMS; p += 2) {
		unsigned n = mlp_params[p].shape[0], k = mlp_params[p].shape[1];
		const double *w = weights + mlp_params[p].offset;
		const double *b = weights + mlp_params[p + 1].offset;

		for (unsigned j = 0; j < n; j++) {
			out[j] = b[j];
			for (unsigned i = 0; i < k; i++)
				out[j] += w[j * k + i] * in[i];
		}
		for (unsigned j = 0; j < n; j++)
			in[j] = out[j] > 0 ? out[j] : 0;
	}
	*best = 0;
	for (unsigned j = 0; j < DIGITS_CLASSES; j++) {
		sum += exp(out[j]);
		if (out[j] > out[*best])
			*best = j;
	}
	return log(sum) - out[y];
}

static double ref_mean_loss(const double *weights, const struct fixture *f, unsigned *hits)
{
	double sum = 0;
	unsigned best;

	*hits = 0;
	for (unsigned r = 0; r < ROWS; r++) {
		sum += ref_loss(weights, f->digits->train_x[r], f->digits->train_y[r], &best);
		*hits += best == f->digits->train_y[r];
	}
	return sum / ROWS;
}

START_TEST(parameters)
{
	size_t at = 0;

	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		const struct mlp_param *m = &mlp_params[p];

		ck_assert_uint_eq(m->offset, at);
		ck_assert_uint_eq(m->len, m->ndim == 2 ? m->shape[0] * m->shape[1] : m->shape[0]);
		at += m->len;
	}
	ck_assert_uint_eq(at, MLP_WEIGHTS);
	ck_assert_uint_eq(mlp_params[0].shape[1], DIGITS_FEATURES);
	ck_assert_uint_eq(mlp_params[MLP_PARAMS - 1].len, DIGITS_CLASSES);
}
END_TEST

START_TEST(initial_weights)
{
	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		struct mlp_init a = mlp_init_of(p, 1), b = mlp_init_of(p, 2);

		if (mlp_params[p].ndim == 1) {
			ck_assert_int_eq(a.kind, KERN_INIT_ZERO);
			continue;
		}
		ck_assert_int_eq(a.kind, KERN_INIT_NORMAL);
		ck_assert_double_eq_tol(a.b * a.b * mlp_params[p].shape[1], 2, 1e-12);
		ck_assert_uint_ne(a.seed, b.seed);
		for (unsigned q = 0; q < p; q++)
			ck_assert_uint_ne(a.seed, mlp_init_of(q, 1).seed);
	}
}
END_TEST

START_TEST(gradient)
{
	struct fixture *f = fixture(ROWS);
	static double w[MLP_WEIGHTS];
	unsigned hits, ref_hits, checked = 0;
	double loss, h = 1e-6;

	for (size_t i = 0; i < MLP_WEIGHTS; i++) {
		w[i] = f->weights[i];
		f->grads[i] = NAN; /* overwritten, never added to */
	}
	mlp_gradient(f->mlp, f->w, f->digits->train_x[0], f->digits->train_y, ROWS, f->g, &loss,
		     &hits);
	ck_assert_double_eq_tol(loss, ref_mean_loss(w, f, &ref_hits), 1e-5);
	ck_assert_uint_eq(hits, ref_hits);
	/* Every 23rd weight: some of each parameter. */
	for (size_t i = 0; i < MLP_WEIGHTS; i += i < 17000 ? 23 : 1) {
		double keep = w[i], up, down;

		w[i] = keep + h;
		up = ref_mean_loss(w, f, &ref_hits);
		w[i] = keep - h;
		down = ref_mean_loss(w, f, &ref_hits);
		w[i] = keep;
		if (!(fabs((up - down) / (2 * h) - f->grads[i]) < 2e-6))
			ck_abort_msg("weight %zu: %g, not %g", i, (double)f->grads[i],
				     (up - down) / (2 * h));
		checked += f->grads[i] != 0;
	}
	ck_assert_uint_gt(checked, 400);
	fixture_free(f);
}
END_TEST

/* The mean of the shards' gradients is the batch's. */
START_TEST(shards_add_up)
{
	struct fixture *f = fixture(ROWS);
	static float whole[MLP_WEIGHTS], sum[MLP_WEIGHTS];

	mlp_gradient(f->mlp, f->w, f->digits->train_x[0], f->digits->train_y, ROWS, f->g, NULL,
		     NULL);
	memcpy(whole, f->grads, sizeof(whole));
	for (unsigned s = 0; s < 4; s++) {
		mlp_gradient(f->mlp, f->w, f->digits->train_x[s * ROWS / 4],
			     f->digits->train_y + s * ROWS / 4, ROWS / 4, f->g, NULL, NULL);
		for (size_t i = 0; i < MLP_WEIGHTS; i++)
			sum[i] += f->grads[i] / 4;
	}
	for (size_t i = 0; i < MLP_WEIGHTS; i++)
		if (!(fabsf(sum[i] - whole[i]) < 1e-6f))
			ck_abort_msg("weight %zu: %g, not %g", i, (double)sum[i], (double)whole[i]);
	fixture_free(f);
}
END_TEST

START_TEST(evaluate_in_pieces)
{
	struct fixture *f = fixture(ROWS), *g = fixture(7);
	double loss, piece_loss;
	unsigned hits, piece_hits;

	mlp_evaluate(f->mlp, f->w, f->digits->train_x[0], f->digits->train_y, ROWS, &loss, &hits);
	mlp_evaluate(g->mlp, g->w, f->digits->train_x[0], f->digits->train_y, ROWS, &piece_loss,
		     &piece_hits);
	ck_assert_double_eq_tol(loss, piece_loss, 1e-6);
	ck_assert_uint_eq(hits, piece_hits);
	mlp_evaluate(f->mlp, f->w, f->digits->train_x[0], f->digits->train_y, 0, &loss, &hits);
	ck_assert_double_eq(loss, 0);
	ck_assert_uint_eq(hits, 0);
	fixture_free(f);
	fixture_free(g);
}
END_TEST

START_TEST(huge_outputs)
{
	struct fixture *f = fixture(1);
	double loss;

	/* exp of these would overflow, and the right one's probability underflows to 0. */
	f->weights[mlp_params[5].offset + 3] = 1e6f;
	f->digits->train_y[0] = 2;
	mlp_gradient(f->mlp, f->w, f->digits->train_x[0], f->digits->train_y, 1, f->g, &loss, NULL);
	ck_assert_double_eq_tol(loss, 1e6, 100);
	ck_assert_float_eq(f->g[5][3], 1);
	ck_assert_float_eq(f->g[5][2], -1);
	ck_assert_float_eq(f->g[5][4], 0);
	fixture_free(f);
}
END_TEST

START_TEST(create)
{
	struct mlp *m;

	ck_assert_int_eq(mlp_create(0, &m), -EINVAL);
	ck_assert_str_eq(err_text(), "mlp: 0 rows: there must be at least 1");
	mlp_destroy(NULL);
}
END_TEST

START_TEST(checksum_sees_every_parameter)
{
	struct fixture *f = fixture(1);
	uint64_t sum = mlp_checksum(f->w), again;

	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		float *last = f->weights + mlp_params[p].offset + mlp_params[p].len - 1;
		float keep = *last;

		*last = nextafterf(keep, 10);
		again = mlp_checksum(f->w);
		ck_assert_uint_ne(again, sum);
		*last = keep;
	}
	again = mlp_checksum(f->w);
	ck_assert_uint_eq(again, sum);
	fixture_free(f);
}
END_TEST

Suite *mlp_suite(void)
{
	Suite *suite = suite_create("mlp");
	TCase *tc = tcase_create("mlp");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, parameters);
	tcase_add_test(tc, initial_weights);
	tcase_add_test(tc, gradient);
	tcase_add_test(tc, shards_add_up);
	tcase_add_test(tc, evaluate_in_pieces);
	tcase_add_test(tc, huge_outputs);
	tcase_add_test(tc, create);
	tcase_add_test(tc, checksum_sees_every_parameter);
	suite_add_tcase(suite, tc);
	return suite;
}

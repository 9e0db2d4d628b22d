/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward and backward through the layers.
 *
 * Reproducible because: products are OpenBLAS's, on one thread; sums here are in a written order;
 * exp and log are rmath's, in double precision, rather than the C library's expf and logf, of which
 * glibc has variants with and without fused multiply-add that may differ in the last bit.
 */
#include "demo/mlp.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/rmath.h"

enum { LAYERS = MLP_PARAMS / 2, IN = 64, HIDDEN_1 = 128, HIDDEN_2 = 64, OUT = 10 };

/* Layer l has widths[l] inputs and widths[l + 1] outputs. */
static const unsigned widths[LAYERS + 1] = {IN, HIDDEN_1, HIDDEN_2, OUT};

enum {
	LEN_W1 = HIDDEN_1 * IN,
	LEN_W2 = HIDDEN_2 * HIDDEN_1,
	LEN_W3 = OUT * HIDDEN_2,
	AT_B1 = LEN_W1,
	AT_W2 = AT_B1 + HIDDEN_1,
	AT_B2 = AT_W2 + LEN_W2,
	AT_W3 = AT_B2 + HIDDEN_2,
	AT_B3 = AT_W3 + LEN_W3,
};

const struct mlp_param mlp_params[MLP_PARAMS] = {
    {"fc1.weight", 2, {HIDDEN_1, IN}, LEN_W1, 0},
    {"fc1.bias", 1, {HIDDEN_1, 0}, HIDDEN_1, AT_B1},
    {"fc2.weight", 2, {HIDDEN_2, HIDDEN_1}, LEN_W2, AT_W2},
    {"fc2.bias", 1, {HIDDEN_2, 0}, HIDDEN_2, AT_B2},
    {"fc3.weight", 2, {OUT, HIDDEN_2}, LEN_W3, AT_W3},
    {"fc3.bias", 1, {OUT, 0}, OUT, AT_B3},
};

_Static_assert(AT_B3 + OUT == MLP_WEIGHTS, "mlp.h says how many weights there are");

struct mlp {
	unsigned rows;
	float *out[LAYERS]; /* each layer's outputs, after its ReLU if it has one */
	float *err[LAYERS]; /* the loss's derivatives by each layer's outputs before the ReLU */
};

struct mlp_init mlp_init_of(unsigned param, uint64_t run_seed)
{
	const struct mlp_param *p = &mlp_params[param];

	if (p->ndim == 1)
		return (struct mlp_init){.kind = KERN_INIT_ZERO};
	return (struct mlp_init){
	    .kind = KERN_INIT_NORMAL,
	    .seed = kern_checksum(p->name, strlen(p->name), run_seed),
	    .a = 0,
	    .b = sqrt(2.0 / p->shape[1]),
	};
}

uint64_t mlp_checksum(const float *const weights[MLP_PARAMS])
{
	uint64_t sum = 0;

	for (unsigned p = 0; p < MLP_PARAMS; p++)
		sum = kern_checksum(weights[p], mlp_params[p].len * sizeof(float), sum);
	return sum;
}

int mlp_create(unsigned rows, struct mlp **out)
{
	struct mlp *mlp;

	if (rows == 0)
		return err_set(EINVAL, "mlp: 0 rows: there must be at least 1");
	mlp = calloc(1, sizeof(*mlp));
	if (!mlp)
		return err_set(ENOMEM, "mlp: no memory");
	mlp->rows = rows;
	for (unsigned l = 0; l < LAYERS; l++) {
		mlp->out[l] = calloc(rows, widths[l + 1] * sizeof(float));
		mlp->err[l] = calloc(rows, widths[l + 1] * sizeof(float));
		if (!mlp->out[l] || !mlp->err[l]) {
			mlp_destroy(mlp);
			return err_set(ENOMEM, "mlp: no memory for the activations of %u rows",
				       rows);
		}
	}
	*out = mlp;
	return 0;
}

void mlp_destroy(struct mlp *mlp)
{
	if (!mlp)
		return;
	for (unsigned l = 0; l < LAYERS; l++) {
		free(mlp->out[l]);
		free(mlp->err[l]);
	}
	free(mlp);
}

static void forward(struct mlp *mlp, const float *const *weights, const float *x, unsigned rows)
{
	for (unsigned l = 0; l < LAYERS; l++) {
		unsigned in = widths[l], n = widths[l + 1];
		const float *bias = weights[2 * l + 1];
		float *out = mlp->out[l];
		bool relu = l + 1 < LAYERS;

		kern_gemm(false, true, (int)rows, (int)n, (int)in, 1, l ? mlp->out[l - 1] : x,
			  weights[2 * l], 0, out);
		for (unsigned r = 0; r < rows; r++, out += n)
			for (unsigned j = 0; j < n; j++) {
				float z = out[j] + bias[j];

				out[j] = relu && !(z > 0) ? 0 : z;
			}
	}
}

/* The loss of one row, -log softmax(z)[y], and its derivatives by z, softmax(z) - onehot(y), times
 * `scale`, if wanted. The largest z is subtracted first, so that exp can't overflow. */
static double cross_entropy(const float *z, unsigned y, double scale, float *err, bool *hit)
{
	double e[OUT], sum = 0;
	unsigned best = 0;

	for (unsigned j = 1; j < OUT; j++)
		if (z[j] > z[best])
			best = j;
	for (unsigned j = 0; j < OUT; j++) {
		e[j] = rm_exp((double)z[j] - (double)z[best]);
		sum += e[j];
	}
	for (unsigned j = 0; err && j < OUT; j++)
		err[j] = (float)((e[j] / sum - (j == y ? 1 : 0)) * scale);
	*hit = best == y;
	return rm_log(sum) - ((double)z[y] - (double)z[best]);
}

/* Sums over the rows that are in mlp->out; fills the last layer's err if wanted. */
static double loss_of(struct mlp *mlp, const uint8_t *y, unsigned rows, bool want_err,
		      unsigned *hits)
{
	const float *z = mlp->out[LAYERS - 1];
	float *err = mlp->err[LAYERS - 1];
	double loss = 0;
	bool hit;

	*hits = 0;
	for (unsigned r = 0; r < rows; r++) {
		loss += cross_entropy(z + (size_t)r * OUT, y[r], 1.0 / rows,
				      want_err ? err + (size_t)r * OUT : NULL, &hit);
		*hits += hit;
	}
	return loss;
}

static void backward(struct mlp *mlp, const float *const *weights, const float *x, unsigned rows,
		     float *const *grads)
{
	for (unsigned l = LAYERS; l-- > 0;) {
		unsigned in = widths[l], n = widths[l + 1];
		const float *err = mlp->err[l];
		float *bias = grads[2 * l + 1];

		kern_gemm(true, false, (int)n, (int)in, (int)rows, 1, err, l ? mlp->out[l - 1] : x,
			  0, grads[2 * l]);
		memset(bias, 0, n * sizeof(*bias));
		for (unsigned r = 0; r < rows; r++)
			for (unsigned j = 0; j < n; j++)
				bias[j] += err[(size_t)r * n + j];
		if (l == 0)
			break;
		kern_gemm(false, false, (int)rows, (int)in, (int)n, 1, err, weights[2 * l], 0,
			  mlp->err[l - 1]);
		/* The ReLU's derivative: 1 where it let its input through. */
		for (size_t i = 0; i < (size_t)rows * in; i++)
			if (!(mlp->out[l - 1][i] > 0))
				mlp->err[l - 1][i] = 0;
	}
}

void mlp_gradient(struct mlp *mlp, const float *const weights[MLP_PARAMS], const float *x,
		  const uint8_t *y, unsigned rows, float *const grads[MLP_PARAMS], double *loss,
		  unsigned *hits)
{
	unsigned right;
	double sum;

	forward(mlp, weights, x, rows);
	sum = loss_of(mlp, y, rows, true, &right);
	backward(mlp, weights, x, rows, grads);
	if (loss)
		*loss = sum / rows;
	if (hits)
		*hits = right;
}

void mlp_evaluate(struct mlp *mlp, const float *const weights[MLP_PARAMS], const float *x,
		  const uint8_t *y, unsigned rows, double *loss, unsigned *hits)
{
	unsigned all = 0, right, n;
	double sum = 0;

	for (unsigned at = 0; at < rows; at += n) {
		n = rows - at < mlp->rows ? rows - at : mlp->rows;
		forward(mlp, weights, x + (size_t)at * IN, n);
		sum += loss_of(mlp, y + at, n, false, &right);
		all += right;
	}
	if (loss)
		*loss = rows ? sum / rows : 0;
	if (hits)
		*hits = all;
}

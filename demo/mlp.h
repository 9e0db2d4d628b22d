/* SPDX-License-Identifier: Apache-2.0
 *
 * The demo's model: a multi-layer perceptron 64-128-64-10 with ReLU between its layers and the mean
 * softmax cross-entropy as its loss. Layers are as torch.nn.Linear: y = x W^T + b.
 *
 * The same weights and rows give the same bits, on every machine whose OpenBLAS runs the same
 * kernel (demo/pin.h).
 */
#ifndef GS_DEMO_MLP_H
#define GS_DEMO_MLP_H

#include <stdint.h>

#include "kernels/kern.h"

enum { MLP_PARAMS = 6, MLP_WEIGHTS = 17226 };

struct mlp_param {
	const char *name;
	unsigned ndim;
	unsigned shape[2];
	size_t len;    /* elements */
	size_t offset; /* of its first element, when the parameters lie one after the other */
};

extern const struct mlp_param mlp_params[MLP_PARAMS];

/* A parameter's initial values, as kern_init_fill takes them: weights are normal with variance
 * 2/inputs (K. He et al., "Delving Deep into Rectifiers", ICCV 2015, eq. 10), biases zero. */
struct mlp_init {
	enum kern_init kind;
	uint64_t seed;
	double a, b;
};
struct mlp_init mlp_init_of(unsigned param, uint64_t run_seed);

/* A checksum of all weights: the parameters' checksums, chained in their order, from 0. */
uint64_t mlp_checksum(const float *const weights[MLP_PARAMS]);

/* Room for the activations of up to `rows` rows. Errors: -EINVAL (rows is 0), -ENOMEM. */
struct mlp;
int mlp_create(unsigned rows, struct mlp **out);
void mlp_destroy(struct mlp *mlp);

/* The gradient of the rows' mean loss, into `grads`, one array a parameter, overwritten. `x` is
 * rows x 64, row-major; `y` are the right classes. Also gives the mean loss and how many rows are
 * classified rightly (either may be NULL). 1 <= rows <= what the mlp was made for. */
void mlp_gradient(struct mlp *mlp, const float *const weights[MLP_PARAMS], const float *x,
		  const uint8_t *y, unsigned rows, float *const grads[MLP_PARAMS], double *loss,
		  unsigned *hits);

/* Mean loss and hits alone, for any number of rows. */
void mlp_evaluate(struct mlp *mlp, const float *const weights[MLP_PARAMS], const float *x,
		  const uint8_t *y, unsigned rows, double *loss, unsigned *hits);

#endif

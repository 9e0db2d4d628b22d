/* SPDX-License-Identifier: Apache-2.0
 *
 * The demo in a single process, without a server: the oracle that distributed synchronous training
 * must match bit for bit.
 */
#ifndef GS_DEMO_SINGLE_H
#define GS_DEMO_SINGLE_H

#include "demo/digits.h"

struct single_result {
	unsigned steps;
	double loss;       /* the mean over the last epoch's steps */
	unsigned hits;     /* of DIGITS_TEST */
	double accuracy;   /* hits / DIGITS_TEST */
	uint64_t checksum; /* mlp_checksum of the final weights */
};

/* Trains as `trainers` trainers and a synchronous server would: each step makes the gradients of
 * all shards at the same weights and applies them in rank order. Errors: as digits_check,
 * digits_load, mlp_create. */
int single_train(const struct digits_config *config, struct single_result *out);

#endif

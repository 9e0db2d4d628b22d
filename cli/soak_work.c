/* SPDX-License-Identifier: Apache-2.0
 *
 * The work of soak: whole numbers, added up.
 */
#include "cli/soak_work.h"

#include "base/err.h"
#include "kernels/kern.h"

#include <errno.h>
#include <inttypes.h>

static const struct {
	const char *name;
	uint64_t elems;
} params[SOAK_PARAMS] = {
    [SOAK_BLOCKS] = {"blocks", 700},
    [SOAK_WHOLE] = {"whole", 300},
    [SOAK_ROWS] = {"rows", SOAK_TABLE_ROWS * SOAK_DIM},
    [SOAK_MOVING] = {"moving", 600},
};

int soak_declare(gs_trainer *t, unsigned param, gs_param **out)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = params[param].name;
	d.ndim = 1;
	d.shape[0] = params[param].elems;
	d.optimizer = "add";
	d.reduce = GS_SUM;
	switch (param) {
	case SOAK_WHOLE:
		d.nonfinite = GS_NONFINITE_REJECT;
		break;
	case SOAK_ROWS:
		d.kind = GS_TABLE;
		d.ndim = 2;
		d.shape[0] = SOAK_TABLE_ROWS;
		d.shape[1] = SOAK_DIM;
		d.push_rows = SOAK_PUSH_ROWS;
		d.slot_rows = 8;
		break;
	case SOAK_MOVING:
		d.optimizer = "momentum";
		gs_setting(&d, "lr", 0.01);
		d.init = GS_INIT_NORMAL;
		d.init_b = 1;
		d.init_seed = 7;
		d.schedule = "step:every=100,gamma=0.99";
		break;
	default:
		break;
	}
	return gs_declare(t, &d, out);
}

static uint32_t value(uint32_t rank, uint64_t n)
{
	return 1 + (uint32_t)((rank + n) % 3);
}

static uint32_t row_of(uint64_t n, unsigned i)
{
	return (uint32_t)((7 * n + 3 * i) % SOAK_TABLE_ROWS); /* each at most once: 3 is odd */
}

static int push_rows(gs_trainer *t, gs_param *p, uint32_t rank, uint64_t n)
{
	int64_t ids[SOAK_PUSH_ROWS];
	float values[SOAK_PUSH_ROWS * SOAK_DIM];

	for (unsigned i = 0; i < SOAK_PUSH_ROWS; i++)
		ids[i] = row_of(n, i);
	for (unsigned i = 0; i < SOAK_PUSH_ROWS * SOAK_DIM; i++)
		values[i] = (float)value(rank, n);
	return gs_push_rows(t, p, ids, values, SOAK_PUSH_ROWS);
}

int soak_push(gs_trainer *t, gs_param *p, unsigned param, uint32_t rank, uint64_t n,
	      const float *weights)
{
	float grad[SOAK_MAX_ELEMS];

	if (param == SOAK_ROWS)
		return push_rows(t, p, rank, n);
	for (uint64_t i = 0; i < params[param].elems; i++)
		grad[i] = param == SOAK_MOVING
			      ? weights[i] - (float)value(rank, n)
			      : (float)(value(rank, n) * (1 + i % 2));
	return gs_push(t, p, grad);
}

void soak_sums_to(struct soak_sums *s, uint64_t n)
{
	if (n < s->n)
		*s = (struct soak_sums){.trainers = s->trainers};
	while (s->n < n) {
		uint64_t all = 0;

		s->n++;
		for (uint32_t r = 0; r < s->trainers; r++)
			all += value(r, s->n);
		s->dense += all;
		for (unsigned i = 0; i < SOAK_PUSH_ROWS; i++)
			s->row[row_of(s->n, i)] += all;
	}
}

static uint64_t wanted(const struct soak_sums *s, unsigned param, uint64_t i)
{
	return param == SOAK_ROWS ? s->row[i / SOAK_DIM] : s->dense * (1 + i % 2);
}

static int pull(gs_trainer *t, gs_param *p, unsigned param, float *out)
{
	int64_t ids[SOAK_TABLE_ROWS];

	if (param != SOAK_ROWS)
		return gs_pull(t, p, GS_CONSISTENT, out);
	for (unsigned i = 0; i < SOAK_TABLE_ROWS; i++)
		ids[i] = i;
	return gs_pull_rows(t, p, ids, SOAK_TABLE_ROWS, GS_ROWS_AUTO, out);
}

int soak_check(gs_trainer *t, gs_param *const *p, bool steps, const struct soak_sums *sums,
	       float out[SOAK_PARAMS][SOAK_MAX_ELEMS])
{
	for (unsigned k = 0; k < soak_params(steps); k++) {
		int rc = pull(t, p[k], k, out[k]);

		if (rc < 0)
			return rc;
		for (uint64_t i = 0; k != SOAK_MOVING && i < params[k].elems; i++) {
			if (out[k][i] != (float)wanted(sums, k, i))
				return err_set(EBADMSG,
					       "after %" PRIu64 " steps element %" PRIu64
					       " of \"%s\" is %.9g; it must be %" PRIu64,
					       sums->n, i, params[k].name, (double)out[k][i],
					       wanted(sums, k, i));
		}
	}
	return 0;
}

uint64_t soak_checksum(bool steps, float weights[SOAK_PARAMS][SOAK_MAX_ELEMS])
{
	uint64_t sum = 0;

	for (unsigned k = 0; k < soak_params(steps); k++)
		sum = kern_checksum(weights[k], params[k].elems * sizeof(float), sum);
	return sum;
}

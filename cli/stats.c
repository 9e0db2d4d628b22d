/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tensor's values are like. Values are copied out in pieces: those of other programs' files
 * are not aligned.
 */
#include "cli/stats.h"

#include <math.h>
#include <string.h>

#include "kernels/kern.h"

enum { PIECE = 1024 };

#define WIDEN(type)                                \
	do {                                       \
		type v[PIECE];                     \
		memcpy(v, data, n * sizeof(type)); \
		for (size_t i = 0; i < n; i++)     \
			out[i] = (double)v[i];     \
	} while (0)

static void widen_half(enum kern_dtype dtype, const void *data, double *out, size_t n)
{
	uint16_t half[PIECE];
	float v[PIECE];

	memcpy(half, data, n * sizeof(half[0]));
	kern_widen(dtype, half, v, n);
	for (size_t i = 0; i < n; i++)
		out[i] = v[i];
}

static void widen(enum store_dtype dtype, const void *data, double *out, size_t n)
{
	switch (dtype) {
	case STORE_F64:
		WIDEN(double);
		break;
	case STORE_F32:
		WIDEN(float);
		break;
	case STORE_F16:
		widen_half(KERN_F16, data, out, n);
		break;
	case STORE_BF16:
		widen_half(KERN_BF16, data, out, n);
		break;
	case STORE_I64:
		WIDEN(int64_t);
		break;
	case STORE_I32:
		WIDEN(int32_t);
		break;
	case STORE_I16:
		WIDEN(int16_t);
		break;
	case STORE_I8:
		WIDEN(int8_t);
		break;
	case STORE_U64:
		WIDEN(uint64_t);
		break;
	case STORE_U32:
		WIDEN(uint32_t);
		break;
	case STORE_U16:
		WIDEN(uint16_t);
		break;
	case STORE_U8:
	case STORE_BOOL:
	case STORE_DTYPES:
		WIDEN(uint8_t);
		break;
	}
}

/* `sum` and `squares` wait for the end in mean and norm. */
static void take(struct stats *s, const double *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(v[i])) {
			s->nonfinite++;
			continue;
		}
		if (s->finite == 0 || v[i] < s->min)
			s->min = v[i];
		if (s->finite == 0 || v[i] > s->max)
			s->max = v[i];
		s->finite++;
		s->mean += v[i];
		s->norm += v[i] * v[i];
	}
}

struct stats stats_of(const struct store_tensor *t)
{
	uint64_t size = store_dtype_size(t->dtype), left = t->len / size;
	const char *at = t->data;
	struct stats s = {0};
	double v[PIECE];

	while (left) {
		size_t n = left < PIECE ? (size_t)left : PIECE;

		widen(t->dtype, at, v, n);
		take(&s, v, n);
		at += n * size;
		left -= n;
	}
	if (s.finite)
		s.mean /= (double)s.finite;
	s.norm = sqrt(s.norm);
	return s;
}

/* The squares of large doubles have no finite sum. */
static json_t *real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

json_t *stats_json(const struct stats *s)
{
	bool some = s->finite > 0;

	return json_pack("{s:o, s:o, s:o, s:o, s:I}", "min", some ? real(s->min) : json_null(),
			 "mean", some ? real(s->mean) : json_null(), "max",
			 some ? real(s->max) : json_null(), "norm",
			 some ? real(s->norm) : json_null(), "nonfinite", (json_int_t)s->nonfinite);
}

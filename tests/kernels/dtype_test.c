/* SPDX-License-Identifier: Apache-2.0
 *
 * Number formats, exhaustively, against arithmetic on what the formats' definitions say; and the
 * look for infinities and NaNs, in every place.
 */
#include "suites.h"

#include <math.h>
#include <string.h>

#include "kernels/kern.h"

enum { ALL = 65536 };

static const enum kern_dtype halves[] = {KERN_BF16, KERN_F16};

static uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static float of_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static int exponent_bits(enum kern_dtype dtype)
{
	return dtype == KERN_BF16 ? 8 : 5;
}

/* What a 16-bit number is, by the definition of IEEE 754. */
static double value_of(enum kern_dtype dtype, uint16_t h)
{
	int e_bits = exponent_bits(dtype), m_bits = 15 - e_bits, bias = (1 << (e_bits - 1)) - 1;
	int e = h >> m_bits & ((1 << e_bits) - 1), m = h & ((1 << m_bits) - 1);
	double v;

	if (e == (1 << e_bits) - 1)
		v = m ? NAN : INFINITY;
	else if (e == 0)
		v = ldexp(m, 1 - bias - m_bits);
	else
		v = ldexp((1 << m_bits) + m, e - bias - m_bits);
	return h & 0x8000 ? -v : v;
}

static void widen_all(void)
{
	static uint16_t in[ALL];
	static float out[ALL];

	for (unsigned h = 0; h < ALL; h++)
		in[h] = (uint16_t)h;
	for (unsigned d = 0; d < 2; d++) {
		kern_widen(halves[d], in, out, ALL);
		for (unsigned h = 0; h < ALL; h++) {
			double want = value_of(halves[d], (uint16_t)h);
			bool same = isnan(want) ? isnan(out[h]) != 0 : out[h] == want;

			if (!same || !signbit(out[h]) != !(h & 0x8000))
				ck_abort_msg("%s: %#x widens to %a, not %a", kern_isa(), h,
					     (double)out[h], want);
		}
	}
}

START_TEST(widens)
{
	each_isa(widen_all);
}
END_TEST

/* There and back gives the same bits; a NaN stays one, with its sign. */
static void round_trips(void)
{
	static uint16_t in[ALL], back[ALL];
	static float wide[ALL];

	for (unsigned h = 0; h < ALL; h++)
		in[h] = (uint16_t)h;
	for (unsigned d = 0; d < 2; d++) {
		kern_widen(halves[d], in, wide, ALL);
		kern_narrow(halves[d], wide, back, ALL);
		for (unsigned h = 0; h < ALL; h++) {
			bool nan = isnan(value_of(halves[d], (uint16_t)h));
			bool good =
			    nan ? isnan(value_of(halves[d], back[h])) && !((back[h] ^ h) & 0x8000)
				: back[h] == h;

			ck_assert_msg(good, "%s: %#x comes back as %#x", kern_isa(), h, back[h]);
		}
	}
}

START_TEST(there_and_back)
{
	each_isa(round_trips);
}
END_TEST

/* The 16-bit number nearest to x: `low` and the next one away from zero enclose it. */
static uint16_t nearest(enum kern_dtype dtype, uint16_t low, double x)
{
	double a = value_of(dtype, low), b = value_of(dtype, (uint16_t)(low + 1));

	/* Beyond the largest lies infinity; it is as far as the next finite number would be. */
	if (isinf(b))
		b = a + (a - value_of(dtype, (uint16_t)(low - 1)));
	if (x - a == b - x)
		return low & 1 ? (uint16_t)(low + 1) : low;
	return x - a < b - x ? low : (uint16_t)(low + 1);
}

/* Around and in the middle between all neighbours: ties, subnormals and overflow among them. */
static void narrow_all(void)
{
	enum { PROBES = 5 };
	static float in[ALL / 2 * PROBES];
	static uint16_t low[ALL / 2 * PROBES], out[ALL / 2 * PROBES];

	for (unsigned d = 0; d < 2; d++) {
		unsigned infinity = d == 0 ? 0x7f80 : 0x7c00, n = 0;

		for (unsigned h = 0; h < infinity; h++) {
			double a = value_of(halves[d], (uint16_t)h);
			double b = value_of(halves[d], (uint16_t)(h + 1));
			float middle;

			if (isinf(b))
				b = a + (a - value_of(halves[d], (uint16_t)(h - 1)));
			middle = (float)((a + b) / 2);
			if (isinf(middle))
				continue;
			for (unsigned p = 0; p < PROBES; p++) {
				in[n] = p == 0   ? (float)a
					: p == 1 ? nextafterf((float)a, INFINITY)
					: p == 2 ? nextafterf(middle, 0)
					: p == 3 ? middle
						 : nextafterf(middle, INFINITY);
				low[n++] = (uint16_t)h;
			}
		}
		for (unsigned sign = 0; sign < 2; sign++) {
			kern_narrow(halves[d], in, out, n);
			for (unsigned i = 0; i < n; i++) {
				uint16_t want = nearest(halves[d], low[i], fabsf(in[i]));

				want |= sign ? 0x8000 : 0;
				if (out[i] != want)
					ck_abort_msg("%s: %a becomes %#x, not %#x", kern_isa(),
						     (double)in[i], out[i], want);
			}
			for (unsigned i = 0; i < n; i++)
				in[i] = -in[i];
		}
	}
}

START_TEST(narrows)
{
	each_isa(narrow_all);
}
END_TEST

static void narrow_odd(void)
{
	const float in[] = {
	    INFINITY,           -INFINITY, 3.4e38f, 1e30f, -1e30f, 65519.0f,
	    65520.0f,           1e-45f,    -1e-45f, 0.0f,  -0.0f,  of_bits(0x7f800001),
	    of_bits(0xffffffff)};
	const uint16_t bf16[] = {0x7f80, 0xff80, 0x7f80, 0x714a, 0xf14a, 0x4780,
				 0x4780, 0,      0x8000, 0,      0x8000};
	const uint16_t f16[] = {0x7c00, 0xfc00, 0x7c00, 0x7c00, 0xfc00, 0x7bff,
				0x7c00, 0,      0x8000, 0,      0x8000};
	uint16_t a[13], b[13];

	kern_narrow(KERN_BF16, in, a, 13);
	kern_narrow(KERN_F16, in, b, 13);
	ck_assert_mem_eq(a, bf16, sizeof(bf16));
	ck_assert_mem_eq(b, f16, sizeof(f16));
	/* A NaN whose payload does not fit is not made an infinity. */
	for (unsigned i = 11; i < 13; i++) {
		ck_assert(isnan(value_of(KERN_BF16, a[i])));
		ck_assert(isnan(value_of(KERN_F16, b[i])));
	}
}

START_TEST(narrows_odd_values)
{
	each_isa(narrow_odd);
}
END_TEST

/* The last elements of a length are not done by the wide instructions: the same bits there. */
START_TEST(same_bits_in_every_set_and_place)
{
	enum { LEN = 67, MANY = 4096 };
	static float in[MANY], wide[2][MANY];
	static uint16_t whole[2][MANY], part[LEN];

	kern_init_fill(KERN_INIT_UNIFORM, 3, 0, 1, 0, in, MANY);
	for (unsigned i = 0; i < MANY; i++) /* all bit patterns, NaNs among them */
		in[i] = of_bits((uint32_t)i * 0x9e3779b1u ^ bits_of(in[i]));
	for (unsigned d = 0; d < 2; d++) {
		ck_assert_int_eq(kern_isa_use("baseline"), 0);
		kern_narrow(halves[d], in, whole[d], MANY);
		kern_widen(halves[d], whole[d], wide[d], MANY);
		for (unsigned i = 1; kern_isa_at(i); i++) {
			static uint16_t narrow[MANY];
			static float widened[MANY];

			if (kern_isa_use(kern_isa_at(i)))
				continue;
			kern_narrow(halves[d], in, narrow, MANY);
			kern_widen(halves[d], whole[d], widened, MANY);
			ck_assert_mem_eq(narrow, whole[d], sizeof(narrow));
			ck_assert_mem_eq(widened, wide[d], sizeof(widened));
			for (size_t len = 0; len < LEN; len++) {
				memset(part, 0x55, sizeof(part));
				kern_narrow(halves[d], in + 1, part, len);
				ck_assert_mem_eq(part, whole[d] + 1, len * sizeof(*part));
				ck_assert_uint_eq(part[len], 0x5555);
			}
		}
	}
}
END_TEST

START_TEST(floats_are_copied)
{
	const float in[] = {1.5f, -0.0f, INFINITY};
	float out[3];

	kern_widen(KERN_F32, in, out, 3);
	ck_assert_mem_eq(in, out, sizeof(in));
	memset(out, 0, sizeof(out));
	kern_narrow(KERN_F32, in, out, 3);
	ck_assert_mem_eq(in, out, sizeof(in));
}
END_TEST

/* One odd number in `len`, at `at`. */
static void check_nonfinite(enum kern_dtype dtype, size_t len, size_t at, float odd)
{
	float x[140];
	uint16_t h[140];
	const void *data = dtype == KERN_F32 ? (const void *)x : h;

	for (size_t i = 0; i < len; i++)
		x[i] = i % 2 ? -3.0e4f : 6.0e4f;
	if (dtype != KERN_F32)
		kern_narrow(dtype, x, h, len);
	ck_assert(!kern_nonfinite(dtype, data, len));
	if (dtype == KERN_F32)
		x[at] = odd;
	else
		kern_narrow(dtype, &odd, h + at, 1);
	ck_assert_msg(kern_nonfinite(dtype, data, len), "%s: not seen at %zu of %zu", kern_isa(),
		      at, len);
}

static void nonfinite_everywhere(void)
{
	static const float odd[] = {INFINITY, -INFINITY, NAN};

	for (enum kern_dtype dtype = KERN_F32; dtype <= KERN_F16; dtype++) {
		ck_assert(!kern_nonfinite(dtype, "", 0));
		for (size_t len = 1; len <= 140; len += len < 20 ? 1 : 17)
			for (size_t at = 0; at < len; at++)
				check_nonfinite(dtype, len, at, odd[(at + len) % 3]);
	}
}

START_TEST(nonfinite_in_every_lane)
{
	each_isa(nonfinite_everywhere);
}
END_TEST

Suite *dtype_suite(void)
{
	Suite *suite = suite_create("number formats");
	TCase *tc = tcase_create("convert");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, widens);
	tcase_add_test(tc, there_and_back);
	tcase_add_test(tc, narrows);
	tcase_add_test(tc, narrows_odd_values);
	tcase_add_test(tc, same_bits_in_every_set_and_place);
	tcase_add_test(tc, floats_are_copied);
	tcase_add_test(tc, nonfinite_in_every_lane);
	suite_add_tcase(suite, tc);
	return suite;
}

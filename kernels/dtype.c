/* SPDX-License-Identifier: Apache-2.0
 *
 * bfloat16 and IEEE half to float and back, and the look for infinities and NaNs.
 *
 * The conversions of halves that are written out here are those of F16C, bit for bit, NaNs as well:
 * they keep their sign and what fits of their payload, and become quiet.
 */
#include "kernels/loop.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

KERN_INLINE float from_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

KERN_INLINE uint32_t to_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* ---- bfloat16: a float's upper half --------------------------------------------------------- */

KERN_INLINE uint16_t bf16_of(float x)
{
	uint32_t bits = to_bits(x), magnitude = bits & 0x7fffffffu;
	uint32_t even = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40u;

	return (uint16_t)(magnitude > 0x7f800000u ? quiet : even);
}

/* As bf16_of. The compiler finds none of this: it won't mix elements of two sizes at full width. */
#if defined(__AVX512F__)
KERN_INLINE __m256i bf16_of_wide(__m512i bits)
{
	const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff);
	__m512i upper = _mm512_srli_epi32(bits, 16);
	__m512i even = _mm512_add_epi32(_mm512_add_epi32(bits, half), _mm512_and_si512(upper, one));
	__mmask16 nan = _mm512_cmpgt_epi32_mask(
	    _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)), _mm512_set1_epi32(0x7f800000));
	__m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));

	return _mm512_cvtepi32_epi16(
	    _mm512_mask_blend_epi32(nan, _mm512_srli_epi32(even, 16), quiet));
}
#elif defined(__AVX2__)
KERN_INLINE __m128i bf16_of_wide(__m256i bits)
{
	const __m256i one = _mm256_set1_epi32(1), half = _mm256_set1_epi32(0x7fff);
	__m256i upper = _mm256_srli_epi32(bits, 16);
	__m256i even = _mm256_add_epi32(_mm256_add_epi32(bits, half), _mm256_and_si256(upper, one));
	__m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)),
					 _mm256_set1_epi32(0x7f800000));
	__m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
	__m256i h = _mm256_blendv_epi8(_mm256_srli_epi32(even, 16), quiet, nan);

	return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
#endif

static void widen_bf16(const uint16_t *restrict in, float *restrict out, size_t len)
{
	size_t i = 0;

#if defined(__AVX512F__)
	for (; i + 16 <= len; i += 16)
		_mm512_storeu_si512(
		    out + i,
		    _mm512_slli_epi32(
			_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(in + i))), 16));
#elif defined(__AVX2__)
	for (; i + 8 <= len; i += 8)
		_mm256_storeu_si256(
		    (void *)(out + i),
		    _mm256_slli_epi32(
			_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(in + i))), 16));
#endif
	for (; i < len; i++)
		out[i] = from_bits((uint32_t)in[i] << 16);
}

static void narrow_bf16(const float *restrict in, uint16_t *restrict out, size_t len)
{
	size_t i = 0;

#if defined(__AVX512F__)
	for (; i + 16 <= len; i += 16)
		_mm256_storeu_si256((void *)(out + i), bf16_of_wide(_mm512_loadu_si512(in + i)));
#elif defined(__AVX2__)
	for (; i + 8 <= len; i += 8)
		_mm_storeu_si128((void *)(out + i),
				 bf16_of_wide(_mm256_loadu_si256((const void *)(in + i))));
#endif
	for (; i < len; i++)
		out[i] = bf16_of(in[i]);
}

/* ---- half ----------------------------------------------------------------------------------- */

/* F. Giesen, "Half to float done quick", https://gist.github.com/rygorous/2156668: as the float
 * with the same exponent field, times 2^(127 - 15), which makes subnormals right too. */
KERN_INLINE float of_f16(uint16_t h)
{
	uint32_t magnitude = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
	uint32_t finite = to_bits(from_bits(magnitude << 13) * 0x1p112f);
	uint32_t infinite = magnitude << 13 | 0x7f800000u;
	uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0;

	return from_bits(sign | (magnitude >= 0x7c00u ? infinite | quiet : finite));
}

/* The same author's https://gist.github.com/rygorous/2156668, float_to_half_fast3_rtne: what
 * becomes subnormal is rounded by an addition that moves its last bit to where it must be. */
KERN_INLINE uint16_t f16_of(float x)
{
	uint32_t bits = to_bits(x), sign = bits >> 16 & 0x8000u, m = bits & 0x7fffffffu;
	uint32_t subnormal = to_bits(from_bits(m) + 0.5f) - 0x3f000000u;
	uint32_t normal = (m - 0x38000000u + 0xfffu + (m >> 13 & 1)) >> 13;
	uint32_t nan = 0x7e00u | (m >> 13 & 0x3ffu);
	uint32_t h = m < 0x38800000u ? subnormal : normal;

	h = m >= 0x477ff000u ? 0x7c00u : h;
	return (uint16_t)(sign | (m > 0x7f800000u ? nan : h));
}

static void widen_f16(const uint16_t *restrict in, float *restrict out, size_t len)
{
	size_t i = 0;

#if defined(__AVX512F__)
	for (; i + 16 <= len; i += 16)
		_mm512_storeu_ps(out + i,
				 _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(in + i))));
#elif defined(__F16C__)
	for (; i + 8 <= len; i += 8)
		_mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(in + i))));
#endif
	for (; i < len; i++)
		out[i] = of_f16(in[i]);
}

static void narrow_f16(const float *restrict in, uint16_t *restrict out, size_t len)
{
	size_t i = 0;

#if defined(__AVX512F__)
	for (; i + 16 <= len; i += 16)
		_mm256_storeu_si256((void *)(out + i), _mm512_cvtps_ph(_mm512_loadu_ps(in + i),
								       _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
	for (; i + 8 <= len; i += 8)
		_mm_storeu_si128((void *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i),
								    _MM_FROUND_TO_NEAREST_INT));
#endif
	for (; i < len; i++)
		out[i] = f16_of(in[i]);
}

/* ---- all ------------------------------------------------------------------------------------ */

void KERN_SYMBOL(kern_widen)(enum kern_dtype dtype, const void *in, float *out, size_t len)
{
	if (dtype == KERN_F32)
		memcpy(out, in, len * sizeof(*out));
	else
		(dtype == KERN_BF16 ? widen_bf16 : widen_f16)(in, out, len);
}

void KERN_SYMBOL(kern_narrow)(enum kern_dtype dtype, const float *in, void *out, size_t len)
{
	if (dtype == KERN_F32)
		memcpy(out, in, len * sizeof(*in));
	else
		(dtype == KERN_BF16 ? narrow_bf16 : narrow_f16)(in, out, len);
}

static bool nonfinite_floats(const float *x, size_t len)
{
	uint32_t odd = 0;

	for (size_t i = 0; i < len; i++)
		odd |= kern_odd(x[i]);
	return odd >> 31;
}

/* As kern_odd, of an exponent of these bits. */
static bool nonfinite_halves(const uint16_t *x, uint16_t exponent, size_t len)
{
	const uint16_t one = exponent & (uint16_t)-exponent;
	uint16_t odd = 0;

	for (size_t i = 0; i < len; i++)
		odd |= (uint16_t)((x[i] & exponent) + one);
	return odd >> 15;
}

bool KERN_SYMBOL(kern_nonfinite)(enum kern_dtype dtype, const void *data, size_t len)
{
	if (dtype == KERN_F32)
		return nonfinite_floats(data, len);
	return nonfinite_halves(data, dtype == KERN_BF16 ? 0x7f80 : 0x7c00, len);
}

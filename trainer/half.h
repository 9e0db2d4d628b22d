/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of a gradient's type to float and back: to the nearest, ties to even.
 */
#ifndef GS_TRAINER_HALF_H
#define GS_TRAINER_HALF_H

#include <stdint.h>
#include <string.h>

#include "proto/wire.h"

#if defined(__FLT16_MAX__)
typedef _Float16 half_float;
#else /* clang before 15 on x86 knows it by this name alone */
typedef __fp16 half_float;
#endif

static inline float half_widen(enum wire_dtype type, const void *at)
{
	uint32_t bits = 0;
	half_float half;
	float f;

	switch (type) {
	case WIRE_F16:
		memcpy(&half, at, sizeof(half));
		return (float)half;
	case WIRE_BF16:
		memcpy((uint8_t *)&bits + 2, at, 2);
		memcpy(&f, &bits, sizeof(f));
		return f;
	default:
		memcpy(&f, at, sizeof(f));
		return f;
	}
}

static inline uint16_t half_bf16(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	if (f != f)
		return (uint16_t)(bits >> 16 | 0x40); /* a NaN whose upper half is not all of it */
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline void half_narrow(enum wire_dtype type, float f, void *at)
{
	half_float half = (half_float)f;
	uint16_t upper = half_bf16(f);

	switch (type) {
	case WIRE_F16:
		memcpy(at, &half, sizeof(half));
		break;
	case WIRE_BF16:
		memcpy(at, &upper, sizeof(upper));
		break;
	default:
		memcpy(at, &f, sizeof(f));
		break;
	}
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules. Pure: a text becomes a schedule, a schedule and a clock become a rate.
 *
 * A schedule is written NAME[:key=value[,key=value…]]; a warm-up may stand in front, with a +:
 * "cosine:steps=1000,end=0.001", "warmup:steps=100+step:every=300,gamma=0.5". gradslot.h lists them
 * with their formulas and sources.
 *
 * The clock counts what has been done before: 0 at the first update. What a unit of it is, is the
 * caller's: rounds in sync mode, updates of the parameter elsewhere. A warm-up of n units takes
 * clocks 0 .. n-1, and the schedule behind it begins with its own clock 0 at n. It rises to the
 * rate with which that schedule begins.
 */
#ifndef GS_KERNELS_SCHEDULE_H
#define GS_KERNELS_SCHEDULE_H

#include <float.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	SCHEDULE_POINTS = 16, /* boundaries of one schedule at most */
	SCHEDULE_TEXT = 255,  /* bytes of one text at most */
};

enum schedule_kind {
	SCHEDULE_CONSTANT,
	SCHEDULE_STEP,
	SCHEDULE_MULTISTEP,
	SCHEDULE_PIECEWISE,
	SCHEDULE_EXPONENTIAL,
	SCHEDULE_INVERSE_TIME,
	SCHEDULE_POLYNOMIAL,
	SCHEDULE_COSINE,
	SCHEDULE_ONE_CYCLE,
	SCHEDULE_NOAM,
	SCHEDULE_KINDS,
};

/* The keys that have one number. Counts are whole, from 1 to 2^53. */
enum schedule_value {
	SCHEDULE_EVERY,
	SCHEDULE_GAMMA,
	SCHEDULE_STAIRCASE, /* 0 or 1, as SCHEDULE_CYCLE and SCHEDULE_LINEAR */
	SCHEDULE_STEPS,
	SCHEDULE_END,
	SCHEDULE_POWER,
	SCHEDULE_CYCLE,
	SCHEDULE_MULT,
	SCHEDULE_PCT_START,
	SCHEDULE_DIV_FACTOR,
	SCHEDULE_FINAL_DIV_FACTOR,
	SCHEDULE_LINEAR,
	SCHEDULE_D_MODEL,
	SCHEDULE_WARMUP,
	SCHEDULE_FROM,
	SCHEDULE_VALUES,
};

struct schedule {
	enum schedule_kind kind;
	uint64_t warmup;               /* units of linear warm-up in front; 0: none */
	double warmup_from;            /* its first factor */
	double value[SCHEDULE_VALUES]; /* 0 where the kind has no such key */
	uint32_t points;
	uint64_t at[SCHEDULE_POINTS];     /* ascending */
	double rate[SCHEDULE_POINTS + 1]; /* piecewise: before at[0], ..., from at[points - 1] on */
};

/* "" and NULL are constant. Errors: -EINVAL: the text names the schedule, the key, the value and
 * its limit, or what there is. `out` is untouched on failure. */
int schedule_parse(const char *text, struct schedule *out);
/* The rate of an optimizer whose own is lr, at this clock. At least 0, and at most FLT_MAX whatever
 * the schedule multiplies by, for lr of at least 0 and finite. The same bits on every machine. */
double schedule_rate(const struct schedule *s, double lr, uint64_t clock);
/* It gives schedule_bounded(lr) at any clock. */
static inline bool schedule_is_steady(const struct schedule *s)
{
	return s->kind == SCHEDULE_CONSTANT && s->warmup == 0;
}
/* Optimizers keep floats: a rate that grew out of them stays at the largest. */
static inline double schedule_bounded(double rate)
{
	return rate < (double)FLT_MAX ? rate : (double)FLT_MAX;
}
/* Whether both give the same rates. Defaults may be written out in one. */
bool schedule_same(const struct schedule *a, const struct schedule *b);
/* The i-th name, for help texts: the kinds in their order; NULL past the last. */
const char *schedule_at(unsigned i);

#endif

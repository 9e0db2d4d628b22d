/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates. Divisions, square roots and rmath.h only: no function of the C library's whose last bits
 * differ between machines. A clock may be any uint64_t: counting is done in whole numbers, and
 * fractions of a schedule's length stop at 1.
 */
#include "kernels/schedule.h"

#include <math.h>

#include "kernels/rmath.h"

static uint64_t count(const struct schedule *s, enum schedule_value v)
{
	return (uint64_t)s->value[v];
}

/* a at f = 1 and b at f = 0, both exactly. */
static double mix(double a, double b, double f)
{
	return a * f + b * (1 - f);
}

/* (1 + cos(pi x))/2, which loses its digits near x = 1, as the square that it equals. */
static double half_wave(double x)
{
	double c = rm_cos_pi(x / 2);

	return c * c;
}

static double fraction(uint64_t clock, double of)
{
	double x = (double)clock / of;

	return x < 1 ? x : 1;
}

static unsigned passed(const struct schedule *s, uint64_t clock)
{
	unsigned n = 0;

	while (n < s->points && clock >= s->at[n])
		n++;
	return n;
}

/* The clock in units of `every`: whole ones only if it is a staircase. */
static double periods(const struct schedule *s, uint64_t clock)
{
	if (s->value[SCHEDULE_STAIRCASE] != 0)
		return (double)(clock / count(s, SCHEDULE_EVERY));
	return (double)clock / s->value[SCHEDULE_EVERY];
}

static double polynomial(const struct schedule *s, double lr, uint64_t clock)
{
	uint64_t steps = count(s, SCHEDULE_STEPS);
	double of = s->value[SCHEDULE_STEPS];

	/* The end moves to the next multiple of it. */
	if (s->value[SCHEDULE_CYCLE] != 0 && clock > 0)
		of *= (double)((clock - 1) / steps + 1);
	return mix(lr, s->value[SCHEDULE_END],
		   rm_pow(1 - fraction(clock, of), s->value[SCHEDULE_POWER]));
}

/* How far the clock is in its cycle: each takes `mult` times the one before. */
static double cycle_fraction(uint64_t clock, uint64_t steps, uint64_t mult)
{
	if (mult == 1)
		return fraction(clock % steps, (double)steps);
	while (clock >= steps) {
		clock -= steps;
		if (steps > UINT64_MAX / mult)
			return fraction(clock, (double)steps * (double)mult);
		steps *= mult;
	}
	return fraction(clock, (double)steps);
}

static double cosine(const struct schedule *s, double lr, uint64_t clock)
{
	double x;

	if (s->value[SCHEDULE_CYCLE] != 0)
		x = cycle_fraction(clock, count(s, SCHEDULE_STEPS), count(s, SCHEDULE_MULT));
	else
		x = fraction(clock, s->value[SCHEDULE_STEPS]);
	return mix(lr, s->value[SCHEDULE_END], half_wave(x));
}

static double one_cycle(const struct schedule *s, double lr, uint64_t clock)
{
	double last = s->value[SCHEDULE_STEPS] - 1;
	double top = s->value[SCHEDULE_PCT_START] * s->value[SCHEDULE_STEPS] - 1;
	double t = (double)clock < last ? (double)clock : last;
	double first = schedule_bounded(lr / s->value[SCHEDULE_DIV_FACTOR]);
	double end = schedule_bounded(first / s->value[SCHEDULE_FINAL_DIV_FACTOR]);
	bool rises = t <= top;
	double x;

	if (rises)
		x = top > 0 ? t / top : 1;
	else
		x = (t - top) / (last - top);
	x = s->value[SCHEDULE_LINEAR] != 0 ? 1 - x : half_wave(x);
	return rises ? mix(first, lr, x) : mix(lr, end, x);
}

static double noam(const struct schedule *s, double lr, uint64_t clock)
{
	double t = (double)clock + 1, w = s->value[SCHEDULE_WARMUP];
	double rises = t / (w * sqrt(w)), falls = 1 / sqrt(t);

	return lr / sqrt(s->value[SCHEDULE_D_MODEL]) * (rises < falls ? rises : falls);
}

static double unwarmed(const struct schedule *s, double lr, uint64_t clock)
{
	double gamma = s->value[SCHEDULE_GAMMA];

	switch (s->kind) {
	case SCHEDULE_STEP:
		return lr * rm_pow(gamma, (double)(clock / count(s, SCHEDULE_EVERY)));
	case SCHEDULE_MULTISTEP:
		return lr * rm_pow(gamma, passed(s, clock));
	case SCHEDULE_PIECEWISE:
		return s->rate[passed(s, clock)];
	case SCHEDULE_EXPONENTIAL:
		return lr * rm_pow(gamma, periods(s, clock));
	case SCHEDULE_INVERSE_TIME:
		return lr / (1 + gamma * periods(s, clock));
	case SCHEDULE_POLYNOMIAL:
		return polynomial(s, lr, clock);
	case SCHEDULE_COSINE:
		return cosine(s, lr, clock);
	case SCHEDULE_ONE_CYCLE:
		return one_cycle(s, lr, clock);
	case SCHEDULE_NOAM:
		return noam(s, lr, clock);
	case SCHEDULE_CONSTANT:
	case SCHEDULE_KINDS:
		break;
	}
	return lr;
}

double schedule_rate(const struct schedule *s, double lr, uint64_t clock)
{
	double behind = schedule_bounded(unwarmed(s, lr, clock < s->warmup ? 0 : clock - s->warmup));

	if (clock >= s->warmup)
		return behind;
	return mix(behind, behind * s->warmup_from, fraction(clock, (double)s->warmup));
}

bool schedule_same(const struct schedule *a, const struct schedule *b)
{
	bool same = a->kind == b->kind && a->warmup == b->warmup &&
		    a->warmup_from == b->warmup_from && a->points == b->points;

	for (unsigned i = 0; i < SCHEDULE_VALUES; i++)
		same = same && a->value[i] == b->value[i];
	for (unsigned i = 0; i < a->points; i++)
		same = same && a->at[i] == b->at[i];
	for (unsigned i = 0; i <= a->points; i++)
		same = same && a->rate[i] == b->rate[i];
	return same;
}

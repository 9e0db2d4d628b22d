/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of schedules and keys. Numbers are decimal with a point, whatever the process's locale
 * says.
 */
#include "kernels/schedule_keys.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* A count stops where whole doubles begin to have gaps. */
enum type { COUNT, FLAG, FACTOR, ABOVE_0, PART };

static const struct {
	const char *limit;
	double min, max;
	bool open; /* min itself is outside */
	bool whole;
} types[] = {
    [COUNT] = {"a whole number from 1 to 2^53", 1, 0x1p53, false, true},
    [FLAG] = {"0 or 1", 0, 1, false, true},
    [FACTOR] = {"at least 0 and finite", 0, HUGE_VAL, false, false},
    [ABOVE_0] = {"above 0 and finite", 0, HUGE_VAL, true, false},
    [PART] = {"from 0 to 1", 0, 1, false, false},
};

static const struct {
	const char *name;
	enum type type;
} keys[SCHEDULE_KEYS] = {
    [SCHEDULE_EVERY] = {"every", COUNT},
    [SCHEDULE_GAMMA] = {"gamma", FACTOR},
    [SCHEDULE_STAIRCASE] = {"staircase", FLAG},
    [SCHEDULE_STEPS] = {"steps", COUNT},
    [SCHEDULE_END] = {"end", FACTOR},
    [SCHEDULE_POWER] = {"power", ABOVE_0},
    [SCHEDULE_CYCLE] = {"cycle", FLAG},
    [SCHEDULE_MULT] = {"mult", COUNT},
    [SCHEDULE_PCT_START] = {"pct_start", PART},
    [SCHEDULE_DIV_FACTOR] = {"div_factor", ABOVE_0},
    [SCHEDULE_FINAL_DIV_FACTOR] = {"final_div_factor", ABOVE_0},
    [SCHEDULE_LINEAR] = {"linear", FLAG},
    [SCHEDULE_D_MODEL] = {"d_model", COUNT},
    [SCHEDULE_WARMUP] = {"warmup", COUNT},
    [SCHEDULE_FROM] = {"from", PART},
    [SCHEDULE_AT] = {"at", COUNT},
    [SCHEDULE_RATES] = {"rates", FACTOR},
};

const struct schedule_rule schedule_rules[SCHEDULE_RULES] = {
    [SCHEDULE_CONSTANT] = {"constant", 0, {{0, 0}}},
    [SCHEDULE_STEP] = {"step", 2, {{SCHEDULE_EVERY, NAN}, {SCHEDULE_GAMMA, 0.1}}},
    [SCHEDULE_MULTISTEP] = {"multistep", 2, {{SCHEDULE_AT, NAN}, {SCHEDULE_GAMMA, 0.1}}},
    [SCHEDULE_PIECEWISE] = {"piecewise", 2, {{SCHEDULE_AT, NAN}, {SCHEDULE_RATES, NAN}}},
    [SCHEDULE_EXPONENTIAL] =
	{"exponential", 3, {{SCHEDULE_GAMMA, NAN}, {SCHEDULE_EVERY, 1}, {SCHEDULE_STAIRCASE, 0}}},
    [SCHEDULE_INVERSE_TIME] =
	{"inverse_time", 3, {{SCHEDULE_GAMMA, NAN}, {SCHEDULE_EVERY, 1}, {SCHEDULE_STAIRCASE, 0}}},
    [SCHEDULE_POLYNOMIAL] =
	{"polynomial",
	 4,
	 {{SCHEDULE_STEPS, NAN}, {SCHEDULE_END, 0}, {SCHEDULE_POWER, 1}, {SCHEDULE_CYCLE, 0}}},
    [SCHEDULE_COSINE] =
	{"cosine",
	 4,
	 {{SCHEDULE_STEPS, NAN}, {SCHEDULE_END, 0}, {SCHEDULE_CYCLE, 0}, {SCHEDULE_MULT, 1}}},
    [SCHEDULE_ONE_CYCLE] = {"one_cycle",
			    5,
			    {{SCHEDULE_STEPS, NAN},
			     {SCHEDULE_PCT_START, 0.3},
			     {SCHEDULE_DIV_FACTOR, 25},
			     {SCHEDULE_FINAL_DIV_FACTOR, 1e4},
			     {SCHEDULE_LINEAR, 0}}},
    [SCHEDULE_NOAM] = {"noam", 2, {{SCHEDULE_D_MODEL, NAN}, {SCHEDULE_WARMUP, NAN}}},
    [SCHEDULE_RULE_WARMUP] = {"warmup", 2, {{SCHEDULE_STEPS, NAN}, {SCHEDULE_FROM, 0}}},
};

static bool is(struct schedule_span s, const char *name)
{
	return s.len == strlen(name) && !memcmp(s.p, name, s.len);
}

const char *schedule_key_name(unsigned key)
{
	return keys[key].name;
}

/* What `rule` has, for error texts. */
static const char *list_keys(const struct schedule_rule *rule, char *out, size_t size)
{
	size_t len = (size_t)snprintf(out, size, "%s", rule->n ? "" : "none");

	for (unsigned i = 0; i < rule->n; i++)
		len += (size_t)snprintf(out + len, size - len, "%s%s", i ? ", " : "",
					keys[rule->has[i].key].name);
	return out;
}

int schedule_key_missing(const struct schedule_rule *rule, unsigned key)
{
	char there[96];

	return err_set(EINVAL, "schedule %s: %s must be given; the keys are %s", rule->name,
		       keys[key].name, list_keys(rule, there, sizeof(there)));
}

int schedule_key_find(const struct schedule_rule *rule, struct schedule_span name, unsigned *out)
{
	char there[96];

	for (unsigned i = 0; i < rule->n; i++)
		if (is(name, keys[rule->has[i].key].name)) {
			*out = rule->has[i].key;
			return 0;
		}
	return err_set(EINVAL, "schedule %s has no key \"%.*s\"; it has %s", rule->name,
		       SCHEDULE_SHOW(name), list_keys(rule, there, sizeof(there)));
}

int schedule_rule_find(struct schedule_span name, const struct schedule_rule **out)
{
	char there[160];
	size_t len = 0;

	for (unsigned r = 0; r < SCHEDULE_RULES; r++)
		if (is(name, schedule_rules[r].name)) {
			*out = &schedule_rules[r];
			return 0;
		}
	for (unsigned r = 0; r < SCHEDULE_KINDS; r++)
		len += (size_t)snprintf(there + len, sizeof(there) - len, "%s%s", r ? ", " : "",
					schedule_rules[r].name);
	return err_set(EINVAL,
		       "schedule \"%.*s\": unknown; there are %s; warmup goes in front, with a +",
		       SCHEDULE_SHOW(name), there);
}

/* strtod would take the locale's point, hexadecimal numbers, infinities and spaces in front. */
static bool to_double(struct schedule_span text, double *out)
{
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	size_t sane = strspn(text.p, "0123456789.eE+-");
	char *end;

	if (!c)
		return false;
	*out = strtod_l(text.p, &end, c) + 0.0; /* -0 becomes 0 */
	freelocale(c);
	return text.len && sane >= text.len && end == text.p + text.len;
}

static bool fits(enum type t, double v)
{
	/* Numbers too small to be normal have lost digits. */
	if (!(v == 0 || isnormal(v)) || v < types[t].min || v > types[t].max)
		return false;
	if (types[t].open && v == types[t].min)
		return false;
	return !types[t].whole || v == (double)(uint64_t)v;
}

int schedule_key_number(const struct schedule_rule *rule, unsigned key, struct schedule_span text,
			double *out)
{
	const char *limit = types[keys[key].type].limit;
	double v;

	if (!to_double(text, &v))
		return err_set(EINVAL,
			       "schedule %s: %s is \"%.*s\"; it must be a decimal number, %s",
			       rule->name, keys[key].name, SCHEDULE_SHOW(text), limit);
	if (!fits(keys[key].type, v))
		return err_set(EINVAL, "schedule %s: %s is %.*s; it must be %s", rule->name,
			       keys[key].name, SCHEDULE_SHOW(text), limit);
	*out = v;
	return 0;
}

const char *schedule_at(unsigned i)
{
	return i < SCHEDULE_KINDS ? schedule_rules[i].name : NULL;
}

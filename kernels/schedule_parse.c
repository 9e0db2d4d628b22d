/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of schedules: parts with a + between, NAME:key=value,key=value/value, by the tables of
 * schedule_keys.h.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "kernels/schedule_keys.h"

/* Gives the front of *rest, up to `by`, and takes both off. False: there was no `by`, and the
 * front is all of it. */
static bool cut(struct schedule_span *rest, char by, struct schedule_span *front)
{
	const char *end = rest->len ? memchr(rest->p, by, rest->len) : NULL;

	*front = *rest;
	if (!end)
		return false;
	front->len = (size_t)(end - rest->p);
	*rest = (struct schedule_span){end + 1, rest->len - front->len - 1};
	return true;
}

/* What was read of one part. */
struct part {
	const struct schedule_rule *rule;
	struct schedule s; /* a warm-up's too: its keys are values */
	unsigned given;    /* a bit for each key */
	unsigned rates;
};

static int take_list(struct part *p, unsigned key, struct schedule_span text, double *out,
		     unsigned max, unsigned *n)
{
	struct schedule_span one;
	bool more;

	*n = 0;
	do {
		int rc;

		if (*n == max)
			return err_set(EINVAL, "schedule %s: %s has more than %u numbers",
				       p->rule->name, schedule_key_name(key), max);
		more = cut(&text, '/', &one);
		rc = schedule_key_number(p->rule, key, one, &out[*n]);
		if (rc)
			return rc;
		++*n;
	} while (more);
	return 0;
}

static int take_at(struct part *p, struct schedule_span text)
{
	double at[SCHEDULE_POINTS];
	int rc = take_list(p, SCHEDULE_AT, text, at, SCHEDULE_POINTS, &p->s.points);

	if (rc)
		return rc;
	for (unsigned i = 0; i < p->s.points; i++) {
		if (i && at[i] <= at[i - 1])
			return err_set(EINVAL,
				       "schedule %s: at has %.0f behind %.0f; each must be above "
				       "the one before",
				       p->rule->name, at[i], at[i - 1]);
		p->s.at[i] = (uint64_t)at[i];
	}
	return 0;
}

static int take_key(struct part *p, struct schedule_span text)
{
	struct schedule_span name;
	unsigned key;
	int rc;

	if (!cut(&text, '=', &name))
		return err_set(EINVAL, "schedule %s: \"%.*s\" is not key=value", p->rule->name,
			       SCHEDULE_SHOW(name));
	rc = schedule_key_find(p->rule, name, &key);
	if (rc)
		return rc;
	if (p->given & 1u << key)
		return err_set(EINVAL, "schedule %s: %s is given twice", p->rule->name,
			       schedule_key_name(key));
	p->given |= 1u << key;
	if (key == SCHEDULE_AT)
		return take_at(p, text);
	if (key == SCHEDULE_RATES)
		return take_list(p, key, text, p->s.rate, SCHEDULE_POINTS + 1, &p->rates);
	return schedule_key_number(p->rule, key, text, &p->s.value[key]);
}

/* Defaults, and what only all keys together show. */
static int complete(struct part *p)
{
	const struct schedule_rule *rule = p->rule;
	double *value = p->s.value;

	for (unsigned i = 0; i < rule->n; i++) {
		if (p->given & 1u << rule->has[i].key)
			continue;
		if (isnan(rule->has[i].fallback))
			return schedule_key_missing(rule, rule->has[i].key);
		value[rule->has[i].key] = rule->has[i].fallback;
	}
	if (p->rates && p->rates != p->s.points + 1)
		return err_set(
		    EINVAL,
		    "schedule %s: rates has %u numbers for %u of at; it must have one more: %u",
		    rule->name, p->rates, p->s.points, p->s.points + 1);
	if (value[SCHEDULE_MULT] > 1 && value[SCHEDULE_CYCLE] == 0)
		return err_set(EINVAL, "schedule %s: mult is %.0f with no cycles; add cycle=1",
			       rule->name, value[SCHEDULE_MULT]);
	return 0;
}

static int parse_part(struct schedule_span text, struct part *p)
{
	struct schedule_span name, one;
	bool more = cut(&text, ':', &name);
	int rc;

	memset(p, 0, sizeof(*p));
	rc = schedule_rule_find(name, &p->rule);
	if (rc)
		return rc;
	while (more) {
		more = cut(&text, ',', &one);
		rc = take_key(p, one);
		if (rc)
			return rc;
	}
	return complete(p);
}

/* Like cut, at a + that is not an exponent's sign. */
static bool cut_part(struct schedule_span *rest, struct schedule_span *front)
{
	for (size_t i = 0; i < rest->len; i++) {
		const char *next = rest->p + i + 1;

		/* The text's final NUL at the latest is there. */
		if (rest->p[i] != '+' || (*next >= '0' && *next <= '9'))
			continue;
		*front = (struct schedule_span){rest->p, i};
		*rest = (struct schedule_span){next, rest->len - i - 1};
		return true;
	}
	*front = *rest;
	return false;
}

/* The parts as one schedule; n is 1 or 2. */
static int join(const struct part *p, unsigned n, struct schedule *out)
{
	const struct schedule_rule *warmup = &schedule_rules[SCHEDULE_RULE_WARMUP];
	const struct part *last = &p[n - 1];
	struct schedule s = {.kind = SCHEDULE_CONSTANT};

	if (n == 2 && p[0].rule != warmup)
		return err_set(EINVAL, "schedule %s stands before a +; only warmup may",
			       p[0].rule->name);
	if (n == 2 && last->rule == warmup)
		return err_set(EINVAL, "schedule warmup is given twice");
	if (last->rule != warmup) {
		s = last->s;
		s.kind = (enum schedule_kind)(last->rule - schedule_rules);
	}
	if (p[0].rule == warmup) {
		s.warmup = (uint64_t)p[0].s.value[SCHEDULE_STEPS];
		s.warmup_from = p[0].s.value[SCHEDULE_FROM];
	}
	*out = s;
	return 0;
}

int schedule_parse(const char *text, struct schedule *out)
{
	struct schedule_span rest = {text ? text : "", text ? strnlen(text, SCHEDULE_TEXT + 1) : 0};
	struct part part[2];
	struct schedule_span one;
	unsigned n = 0;
	bool more;

	if (!rest.len)
		rest = (struct schedule_span){"constant", strlen("constant")};
	if (rest.len > SCHEDULE_TEXT)
		return err_set(EINVAL, "schedule \"%.*s...\" is longer than %d bytes",
			       SCHEDULE_SHOW(rest), SCHEDULE_TEXT);
	do {
		int rc;

		more = cut_part(&rest, &one);
		if (n == 2)
			return err_set(EINVAL,
				       "schedule \"%.*s\" is one too many; a warm-up and "
				       "one schedule are all",
				       SCHEDULE_SHOW(one));
		rc = parse_part(one, &part[n]);
		if (rc)
			return rc;
		n++;
	} while (more);
	return join(part, n, out);
}

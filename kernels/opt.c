/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers by name: which settings each has, their defaults and limits.
 */
#include "kernels/kern.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

enum setting { LR, MOMENTUM, DAMPENING, SETTINGS };

/* Limits hold for the float that is kept, so that 0.99999999999 is not let through as 1. */
static const struct {
	const char *name;
	const char *limit; /* for error texts */
	float fallback;    /* NAN: must be given */
	float max;
	bool open; /* max itself is outside */
} settings[SETTINGS] = {
    [LR] = {"lr", "at least 0 and finite", NAN, INFINITY, true},
    [MOMENTUM] = {"momentum", "at least 0 and less than 1", 0.9f, 1, true},
    [DAMPENING] = {"dampening", "from 0 to 1", 0, 1, false},
};

static const struct {
	const char *name;
	const char *has; /* for error texts */
	bool takes[SETTINGS];
	unsigned arrays;
} rules[] = {
    [KERN_SGD] = {"sgd", "lr", {[LR] = true}, 0},
    [KERN_MOMENTUM] = {"momentum",
		       "lr, momentum, dampening",
		       {[LR] = true, [MOMENTUM] = true, [DAMPENING] = true},
		       1},
    [KERN_NESTEROV] = {"nesterov", "lr, momentum", {[LR] = true, [MOMENTUM] = true}, 1},
};

enum {
	RULES = sizeof(rules) / sizeof(rules[0]),
	NAME_MAX_ = sizeof(((struct kern_setting *)0)->name)
};

static int find_rule(const char *name)
{
	for (int r = 0; r < RULES; r++)
		if (name && !strcmp(name, rules[r].name))
			return r;
	return err_set(EINVAL, "optimizer \"%.32s\": unknown; there are sgd, momentum, nesterov",
		       name ? name : "");
}

static int find_setting(int rule, const struct kern_setting *s)
{
	for (int k = 0; k < SETTINGS; k++)
		if (rules[rule].takes[k] && !strncmp(s->name, settings[k].name, NAME_MAX_))
			return k;
	return err_set(EINVAL, "optimizer %s has no setting \"%.*s\"; it has %s", rules[rule].name,
		       (int)NAME_MAX_, s->name, rules[rule].has);
}

static int take(int rule, int k, double value, float *out)
{
	float v = (float)value;
	bool fits = v >= 0 && (settings[k].open ? v < settings[k].max : v <= settings[k].max);

	if (!fits)
		return err_set(EINVAL, "optimizer %s: %s is %.9g; it must be %s", rules[rule].name,
			       settings[k].name, value, settings[k].limit);
	*out = v;
	return 0;
}

int kern_opt_parse(const char *name, const struct kern_setting *s, unsigned n, struct kern_opt *out)
{
	float value[SETTINGS];
	bool given[SETTINGS] = {false};
	int rule = find_rule(name);

	if (rule < 0)
		return rule;
	for (int k = 0; k < SETTINGS; k++)
		value[k] = settings[k].fallback;
	for (unsigned i = 0; i < n; i++) {
		int k = find_setting(rule, &s[i]), rc;

		if (k < 0)
			return k;
		if (given[k])
			return err_set(EINVAL, "optimizer %s: %s is given twice", name,
				       settings[k].name);
		given[k] = true;
		rc = take(rule, k, s[i].value, &value[k]);
		if (rc)
			return rc;
	}
	if (!given[LR])
		return err_set(EINVAL, "optimizer %s: lr must be given; the settings are %s", name,
			       rules[rule].has);
	*out = (struct kern_opt){
	    .rule = (enum kern_rule)rule,
	    .lr = value[LR],
	    .momentum = rules[rule].takes[MOMENTUM] ? value[MOMENTUM] : 0,
	    .dampening = rules[rule].takes[DAMPENING] ? value[DAMPENING] : 0,
	};
	return 0;
}

const char *kern_opt_name(const struct kern_opt *opt)
{
	return rules[opt->rule].name;
}

unsigned kern_opt_arrays(const struct kern_opt *opt)
{
	return rules[opt->rule].arrays;
}
